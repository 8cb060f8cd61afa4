"""Collectives over ranks: who meets whom, how long, who came last, who is missing; bandwidths as in nccl-tests."""

from typing import Any

import pytest
from execgraph.schema.linked import Communication
from execgraph.tools.analyses import RankTrace, Table, analyse
from hypothesis import given, strategies as st
from support.builder.timeline import TraceBuilder
from support.references import COMMUNICATION, Act, linked_of, picked
from support.runs import link_run

NAME = "collectives_over_ranks"


def rank_of(rank: int, *talks: tuple[int, int, Communication], base: int = 0) -> RankTrace:
    """A rank whose communications are (start, end, arguments)."""
    acts = [Act(start, end, COMMUNICATION, 20, "ncclDevKernel_Generic") for start, end, _ in talks]
    linked = linked_of(acts, communications=[recorded for _, _, recorded in talks], rank=rank, base_time_ns=base)
    return RankTrace(rank, linked)


def tables(*ranks: RankTrace) -> tuple[list[dict[str, Any]], Table]:
    found = analyse(ranks, [NAME])
    return found[NAME].rows(), found[f"{NAME}_missing"]


def all_reduce(sequence: int = 1, elements: int = 1_000, **more: Any) -> Communication:
    given = {"name": "allreduce", "dtype": "Float", "ranks": [0, 1, 2], "group": "0"} | more
    return Communication(in_elements=elements, out_elements=elements, sequence=sequence, **given)


def test_members_meet_by_group_and_sequence_number() -> None:
    ranks = [
        rank_of(0, (0, 90, all_reduce(1)), (100, 150, all_reduce(2))),
        rank_of(1, (20, 90, all_reduce(1)), (170, 180, all_reduce(2)), base=-10),
        rank_of(2, (50, 90, all_reduce(1))),
    ]
    rows, missing = tables(*ranks)
    first, second = rows
    assert (first["sequence"], first["latency"], first["start_skew"], first["straggler"]) == (1, 0.04, 0.05, 2)
    assert (second["latency"], second["start_skew"], second["straggler"]) == (0.01, 0.06, 1)
    assert picked(rows, "present", "members", "missing") == [(3, 3, ""), (2, 3, "2")]
    assert missing.rows() == [{"rank": 2, "group": "0 (0-2)", "missing": 1}]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=2, max_size=5))
def test_latency_skew_and_straggler_are_over_those_present(spans: list[tuple[int, int]]) -> None:
    ranks = [rank_of(rank, (start, start + length, all_reduce())) for rank, (start, length) in enumerate(spans)]
    row = tables(*ranks)[0][0]
    starts, lengths = zip(*spans, strict=True)
    assert round(1000 * row["latency"]) == min(lengths) == lengths[row["straggler"]]
    assert round(1000 * row["start_skew"]) == max(starts) - min(starts)
    # all tables name the same rank last
    found, last = analyse(ranks, [NAME]), row["straggler"]
    assert [row["rank"] for row in found[f"{NAME}_waits_by_rank"].rows() if row["last"]] == [last]
    assert {row["waits_for"] for row in found[f"{NAME}_waits"].rows()} == {last}


def test_who_is_last_does_not_depend_on_the_clocks_where_all_end_together() -> None:
    for clock in (-1_000, 0, 1_000):
        rows, _ = tables(rank_of(0, (0, 90, all_reduce())), rank_of(1, (50, 90, all_reduce()), base=clock))
        assert rows[0]["straggler"] == 1
    broadcast = all_reduce(name="broadcast")
    rows, _ = tables(rank_of(0, (0, 20, broadcast)), rank_of(1, (30, 90, broadcast)))
    assert rows[0]["straggler"] == 1  # who starts last, as a root does not wait for the end


@pytest.mark.parametrize(
    ("name", "given", "taken", "size", "factor"),
    [
        ("allreduce", 100, 100, 400, 1.5), ("_allgather_base", 100, 400, 1_600, 0.75),
        ("all_gather", 100, -1, 1_600, 0.75), ("_reduce_scatter_base", 400, 100, 1_600, 0.75),
        ("reduce_scatter", -1, 100, 1_600, 0.75), ("all_to_allv", 100, 120, 480, 0.75),
        ("broadcast", 100, 100, 400, 1.0), ("reduce", 100, 100, 400, 1.0), ("barrier", -1, -1, 0, 1.0),
    ],
)  # fmt: skip
def test_sizes_and_bus_factors_are_those_of_nccl_tests(name, given, taken, size, factor):
    sizes = {"in_elements": given, "out_elements": taken}
    recorded = Communication(name=name, dtype="Float", ranks=[0, 1, 2, 3], group="1", sequence=4, **sizes)
    row = tables(rank_of(0, (0, 100, recorded)))[0][0]
    assert row["size"] == size
    bandwidths = [row["algorithm_bandwidth"], row["bus_bandwidth"]]
    assert bandwidths == ([None, None] if not size else pytest.approx([size / 100, factor * size / 100]))
    assert (row["start_skew"], row["straggler"]) == (None, -1)


def test_the_size_of_an_unknown_dtype_is_not_known_and_said() -> None:
    ranks = [rank_of(0, *((at, at + 90, all_reduce(at, dtype=kind)) for at, kind in ((1, "fp12"), (100, "fp16"))))]
    table = analyse(ranks, [NAME])[NAME]
    assert picked(table.rows(), "size", "bus_bandwidth")[0] == (None, None) and table.rows()[1]["size"] == 2_000
    assert "1 of unknown dtype (fp12), so their bytes are not known" in table.note


def test_uneven_splits_show_as_imbalance() -> None:
    def uneven(*splits: int) -> Communication:
        return all_reduce(name="all_to_allv", in_split=list(splits))

    rows, _ = tables(rank_of(0, (0, 9, uneven(1, 1))), rank_of(1, (0, 9, uneven(1, 5))))
    assert rows[0]["imbalance"] == pytest.approx(5 / 2)
    assert tables(rank_of(0, (0, 9, all_reduce())))[0][0]["imbalance"] is None


def test_collectives_without_numbers_meet_by_order_groups_named_by_address_by_members_and_sends_their_receives():
    ranks = [rank_of(rank, (0, 9, all_reduce(-1, 10)), (20, 29, all_reduce(-1, 20))) for rank in range(2)]
    rows, _ = tables(*ranks)
    assert picked(rows, "repetition", "size", "present") == [(0, 40.0, 2), (1, 80.0, 2)]

    def in_group(address: int) -> Communication:
        return all_reduce(1, group=str(94_594_108_284_448 + address))

    ranks = [rank_of(rank, (0, 9, in_group(rank)), (20, 29, in_group(7 + rank))) for rank in range(2)]
    rows, _ = tables(*ranks)
    assert picked(rows, "group", "present") == [("(0-2)", 2), ("number 2 (0-2)", 2)]
    send = Communication(name="send", dtype="Float", ranks=[2, 5], group="1", in_elements=8, target=5, sequence=3)
    receive = Communication(name="recv", dtype="Float", ranks=[2, 5], group="1", out_elements=8, source=2, sequence=9)
    rows, _ = tables(rank_of(2, (0, 30, send)), rank_of(5, (10, 30, receive)))
    assert picked(rows, "present", "straggler", "size", "bus_bandwidth") == [(2, 5, 32.0, 32 / 20)]


def test_clocks_that_disagree_are_told_by_ends_far_apart() -> None:
    def note(clock: int) -> str:
        ranks = [rank_of(rank, (rank * clock + 9, rank * clock + 29, all_reduce())) for rank in range(2)]
        return analyse(ranks, [NAME])[NAME].note

    assert note(20) == ""
    assert note(5_000).startswith("members end 5 µs apart (median): the ranks' clocks disagree")


def test_communication_of_no_known_group_is_counted() -> None:
    found = analyse([rank_of(0, (0, 9, Communication()))], [NAME])[NAME]
    shown = (len(found), found.note)
    assert shown == (0, "no communication with a known group was recorded: 1 communications whose group is not known")


def test_recorded_collectives_of_played_ranks_meet() -> None:
    ranks = []
    for rank in range(2):
        t = TraceBuilder(rank=rank, world_size=2)
        group = t.group([0, 1])
        t.work(10 * rank)
        for _ in range(2):
            t.collective("allreduce", group=group, tensors=[t.tensor((256,))], duration=64)
        t.device_synchronize()
        ranks.append(RankTrace(rank, link_run(t)))
    rows, missing = tables(*ranks)
    assert picked(rows[:1], "present", "missing", "size", "start_skew") == [(2, "", 1024.0, 10.0)]
    assert [row["bus_bandwidth"] for row in rows] == pytest.approx([1024 / 64_000] * 2)
    assert missing.note == "every rank recorded all collectives of its groups"


def test_bandwidth_by_size_is_beside_the_best_of_the_same_group_and_kind() -> None:
    """3 ranks move 4/3 of 4 kB per ns of the shortest duration; the best is that of the larger size."""
    small, large = all_reduce(1, 1_000), all_reduce(3, 8_000)
    first = (0, 40, small), (100, 120, all_reduce(2, 1_000)), (200, 240, large)
    again = (10, 40, small), (100, 120, all_reduce(2, 1_000)), (200, 240, large)
    table = analyse([rank_of(0, *first), rank_of(1, *again)], [NAME])[f"{NAME}_by_size"]
    small_row, large_row = table.rows()
    assert picked((small_row, large_row), "size", "count") == [(4_000, 2), (32_000, 1)]
    assert small_row["latency"] == pytest.approx(0.025)
    assert small_row["bus_bandwidth"] == pytest.approx((4_000 / 30 + 4_000 / 20) / 2 * 4 / 3)
    assert large_row["bus_bandwidth"] == large_row["best_bandwidth"] == pytest.approx(800 * 4 / 3)
    assert small_row["of_best"] == pytest.approx(100 * small_row["bus_bandwidth"] / large_row["bus_bandwidth"])
    assert table.note == ""
    assert "include its waiting" in analyse([rank_of(0, (0, 40, all_reduce()))], [NAME])[f"{NAME}_by_size"].note


def details(*ranks: RankTrace) -> dict[str, list[dict[str, Any]]]:
    """The further tables by the last part of their names."""
    return {name.removeprefix(f"{NAME}_"): table.rows() for name, table in analyse(ranks, [NAME]).items()}


def test_who_comes_last_is_awaited_by_the_others_whatever_the_clocks_say() -> None:
    """Rank 2 is in the first collective for the shortest time, rank 0 in the second; the clock of rank 1 is far off."""
    found = details(
        rank_of(0, (0, 90, all_reduce(1)), (180, 200, all_reduce(2))),
        rank_of(1, (20, 90, all_reduce(1)), (150, 200, all_reduce(2)), base=10**6),
        rank_of(2, (50, 90, all_reduce(1)), (100, 200, all_reduce(2))),
    )
    shown = picked(found["waits"], "rank", "waits_for", "time")
    assert shown == [(2, 0, 0.08), (0, 2, 0.05), (1, 0, 0.03), (1, 2, 0.03)]
    by_rank = picked(found["waits_by_rank"], "last", "last_pct", "waited", "awaited")
    assert by_rank == [(1, 50, 0.05, 0.11), (0, 0, 0.06, 0), (1, 50, 0.08, 0.08)]


def test_nobody_waits_in_a_broadcast_or_alone() -> None:
    broadcast = all_reduce(1, 8, name="broadcast", ranks=[0, 1])
    assert details(rank_of(0, (0, 90, broadcast)), rank_of(1, (20, 90, broadcast)))["waits"] == []
    assert details(rank_of(0, (0, 90, all_reduce())))["waits_by_rank"] == []


def test_what_no_computation_hides_is_exposed_by_group() -> None:
    acts = [
        Act(0, 100, COMMUNICATION, 20, "ncclDevKernel_Generic"),
        Act(200, 260, COMMUNICATION, 20, "ncclDevKernel_Generic"),
        Act(30, 50, name="gemm"),
        Act(40, 70, stream=9, name="gemm"),
    ]
    talks = [all_reduce(1), all_reduce(1, ranks=[0, 1], group="7")]
    rank = RankTrace(0, linked_of(acts, communications=talks))
    rows = {row["group"]: row for row in details(rank)["by_group"]}
    assert (rows["0 (0-2)"]["time"], rows["0 (0-2)"]["exposed"], rows["0 (0-2)"]["exposed_pct"]) == (0.1, 0.06, 60)
    assert rows["7 (0-1)"]["exposed_pct"] == 100
    (row,) = details(rank_of(0, (0, 90, all_reduce())))["by_group"]
    assert (row["exposed"], row["exposed_pct"]) == (None, None)  # nobody computes


def test_what_goes_where_in_an_all_to_all_follows_the_splits() -> None:
    def talk(*splits: int) -> Communication:
        given = {"name": "all_to_allv", "dtype": "Float", "ranks": [0, 1], "group": "0", "sequence": 1}
        return Communication(in_elements=sum(splits), out_elements=sum(splits), in_split=list(splits), **given)  # type: ignore[arg-type]

    rows = details(rank_of(0, (0, 90, talk(3, 5))), rank_of(1, (0, 90, talk(2, 0))))["all_to_all"]
    assert picked(rows, "source", "destination", "size") == [(0, 0, 12), (0, 1, 20), (1, 0, 8), (1, 1, 0)]
