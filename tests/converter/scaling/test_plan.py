"""Scaled jobs: who sends to whom, which ranks are removed, what is refused, how long and large collectives are."""

from collections import Counter

import numpy as np
import pytest
from execgraph.converter.ranks import graph_calls, match, recorded_groups
from execgraph.converter.scaling import rank_facts
from execgraph.converter.scaling.lengths import SOURCES, Fit, Fits, Line, Measured, costs
from execgraph.converter.scaling.roles import NamedGroup
from execgraph.schema.arguments import ASTRA_SIM
from execgraph.schema.comm_groups import LARGEST_JOB
from execgraph.schema.errors import DataError, RequestError
from execgraph.schema.graph import CollectiveType, NodeType
from execgraph.tools.replay import replay_ranks
from hypothesis import given, strategies as st
from support.graphs import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    KB,
    REDUCE_SCATTER,
    GraphBuilder,
    Rank,
    data_parallel,
    lengths,
    line,
    meeting,
    plan_of,
    scaled,
    sizes,
    stages,
    tensor_by_data,
)


def test_a_group_may_be_named_with_the_only_type_that_it_has() -> None:
    named, typed = (plan_of(data_parallel(2), 2, groups=(group,)) for group in ("0", "0=all_reduce"))
    assert [use.joined for use in typed.uses] == [use.joined for use in named.uses] != [""]


# messages


def test_messages_stay_in_their_copy() -> None:
    for copy, graph in enumerate(scaled(stages(2), 2)[::2]):
        sends = graph.type == NodeType.COMM_SEND
        ends = [graph.integers(f"comm_{end}")[sends].tolist() for end in ("src", "dst", "tag")]
        assert ends == [[2 * copy] * 2, [2 * copy + 1] * 2, [0, 1]]


@given(st.integers(1, 3), st.integers(2, 4), st.integers(2, 3))
def test_every_message_has_two_ends_and_every_group_its_members(replicas: int, copies: int, more: int) -> None:
    graphs = scaled(stages(replicas + 1), copies)
    graphs = scaled(graphs, more)
    rows = [np.flatnonzero(np.isin(graph.type, (5, 6, 7))) for graph in graphs]
    calls = [graph_calls(graph, own, rank) for rank, (graph, own) in enumerate(zip(graphs, rows, strict=True))]
    found = match(calls)
    ends = Counter(found.matched.tolist())
    of_collective = [(call.type == NodeType.COMM_COLL, ends[call.matched]) for call in found.rows()]
    assert {*of_collective} == {(False, 2), (True, (replicas + 1) * copies * more)}
    told = Counter(
        (int(call[0]), int(call[1]), int(call[2]), int(call[3]))
        for call in zip(found.type, found.source, found.target, found.tag, strict=True)
        if call[0] != NodeType.COMM_COLL
    )
    assert set(told.values()) == {1}
    for rank, graph in enumerate(graphs):
        known = recorded_groups(graph)
        assert all(rank in ranks and max(ranks) < len(graphs) for ranks in known.lists)
        assert graph.metadata["rank"] == rank


# fewer ranks


def test_replicas_can_be_removed() -> None:
    graphs = scaled(stages(3), 1, removed=(2, 3))
    assert [recorded_groups(graph).lists for graph in graphs] == [[(0, 2)], [(1, 3)], [(0, 2)], [(1, 3)]]
    assert lengths(graphs[0]) == pytest.approx([line(ALL_REDUCE, 2, size) for size in (1_000_000, 2_000_000)], rel=1e-3)
    assert lengths(scaled(stages(3), 2, removed=(2, 3))[0]) == pytest.approx(
        [line(ALL_REDUCE, 4, size) for size in (1_000_000, 2_000_000)], rel=1e-3
    )


@pytest.mark.parametrize(
    ("job", "removed", "why"),
    [
        (stages(3), (2,), "the messages from rank 2 to rank 3 would lose one end; that is another program"),
        (tensor_by_data(), (0, 2), r"group 0,1 \(tp\) would lose members and is no data-parallel one; that is another"),
        (data_parallel(2), (1,), r"group 0,1 \(0\) would have one member left, which exchanges nothing"),
        (data_parallel(2), (0, 1), "no rank is left"),
        (data_parallel(2), (9, 5), "rank 5 cannot be removed: the job has the ranks 0,1"),
    ],
)
def test_what_would_be_another_program_is_refused(job, removed, why):
    with pytest.raises(DataError, match=why):
        plan_of(job, 1, removed=removed)


@pytest.mark.parametrize(
    ("key", "values", "why"),
    [
        ("rank", [0, 0], "the ranks of the graphs, 0,0, are no ranks of a job of 2: build the whole"),
        ("rank", [0, 2], "the ranks of the graphs, 0,2, are no ranks of a job of 2: build the whole"),
        ("rank", [-1, 1], "the ranks of the graphs, -1,1, are no ranks of a job of 2: build the whole"),
        ("world_size", [2, 8], "rank 0 is of a job of 2 ranks, rank 1 of one of 8: build each job by itself"),
    ],
)
def test_graphs_of_one_rank_of_none_or_of_two_jobs_are_refused(key: str, values: list[int], why: str) -> None:
    graphs = data_parallel(2)
    for graph, value in zip(graphs, values, strict=True):
        graph.metadata[key] = value
    with pytest.raises(DataError, match=why):
        plan_of(graphs)


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (
            meeting(
                2,
                (ALL_REDUCE, 1_000_000, 100 * KB, {"pg_desc": "dp"}),
                (ALL_REDUCE, 1000, 9 * KB, {"ranks": [], "pg_name": "other"}),
            ),
            "it is not recorded which ranks are in group",
        ),
        (
            meeting(2, (ALL_REDUCE, 1000, 9 * KB, {"ranks": [0, 1, 2]})),
            "has ranks that are not of the job, which has 2",
        ),
        (
            meeting(2, (ALL_REDUCE, 1000, 9 * KB, {"ranks": [0, 1, 7]})),
            "has ranks that are not of the job, which has 2",
        ),
        (
            [*meeting(4, (ALL_REDUCE, 1000, 9 * KB, {"ranks": [0, 1]}))[:2], Rank(2, 4), Rank(3, 4)],
            "ranks 2,3 are in no",
        ),
    ],
)
def test_members_of_groups_are_known_and_of_the_job_and_every_rank_has_replicas(job: list[Rank], why: str) -> None:
    with pytest.raises(DataError, match=why):
        plan_of(job, groups=("dp",))


@pytest.mark.parametrize("text", ["dp", "a=b", "a=all_reduce,b", "=all_reduce"])
def test_what_does_not_end_in_types_is_the_name_of_a_group(text: str) -> None:
    assert NamedGroup.of(text) == NamedGroup(text, text)
    named = NamedGroup.of("a=b=all_reduce,all_to_all")
    assert (named.name, named.kinds) == ("a=b", {ALL_REDUCE, ALL_TO_ALL})


def test_a_group_may_go_as_a_whole_and_two_replicas_are_enough() -> None:
    plan = plan_of(tensor_by_data(), 2, removed=(2, 3))
    assert plan.ranks.keys() == {0, 1}
    found = [recorded_groups(graph).lists for graph in scaled(tensor_by_data(), 2, removed=(2, 3))]
    assert found == [[(0, 1), (0, 2)], [(0, 1), (1, 3)], [(2, 3), (0, 2)], [(2, 3), (1, 3)]]


# groups of the scaled job


@pytest.mark.parametrize(("target", "name"), [("generic", "1"), (ASTRA_SIM, "")])
def test_only_astra_sim_has_no_name_for_the_group_of_all(target: str, name: str) -> None:
    graphs = data_parallel(2)
    for graph in graphs:
        graph.metadata["target"] = target
    for graph in scaled(graphs, 2):
        assert {graph.texts("pg_name")[row] for row in np.flatnonzero(graph.type == NodeType.COMM_COLL)} == {name}
    part = scaled([*tensor_by_data()], 2)[0]
    assert {part.texts("pg_name")[row] for row in np.flatnonzero(part.type == NodeType.COMM_COLL)} == {"1", "3"}


def test_what_a_graph_does_not_say_of_its_rank_is_unknown() -> None:
    graph = GraphBuilder()
    graph.activity("gemm", 0, 5)
    known = graph.build()
    del known.attributes["is_cpu_op"]
    facts = rank_facts(known)
    assert (facts.rank, facts.source, facts.world_size, facts.target, facts.has_host) == (-1, -1, -1, "", False)


# what is refused


def test_ranks_do_the_same_work_whose_kernels_are_the_same_as_often() -> None:
    def work(*kernels: str, copies: int = 0) -> str:
        graph = GraphBuilder(rank=0)
        for number, name in enumerate(kernels):
            graph.activity(name, 10 * number, 5, cat="kernel")
        for number in range(copies):
            graph.activity("copy", 1_000 + 10 * number, 5, cat="gpu_memcpy")
        graph.collective(5_000, 5, ranks=[0, 1], cat="kernel")
        return rank_facts(graph.build()).work

    assert work("gemm", "relu", "gemm") == work("relu", "gemm", "gemm", copies=1) != work("relu", "gemm")


def test_one_copy_of_all_ranks_is_refused() -> None:
    with pytest.raises(RequestError, match="the scaled job would be the same; give data_parallel above 1"):
        scaled(stages(2), 1)


@pytest.mark.parametrize("copies", [LARGEST_JOB // 2 + 1, 1_000_000_000])
def test_more_ranks_than_a_file_can_name_are_refused_at_once(copies: int) -> None:
    with pytest.raises(DataError, match=f"{copies} copies of 2 ranks are more than {LARGEST_JOB}; make fewer"):
        plan_of(data_parallel(2), copies)


def test_of_a_mesh_of_two_data_parallel_dimensions_the_user_names_one() -> None:
    job = [Rank(rank, 4) for rank in range(4)]
    for one in job:
        one.meet(REDUCE_SCATTER, [one.rank // 2 * 2, one.rank // 2 * 2 + 1], 1000, 9 * KB, pg_desc="dp_shard")
        one.meet(ALL_REDUCE, [one.rank % 2, one.rank % 2 + 2], 500, 9 * KB, pg_desc="dp_replicate", pg_name="r")
    with pytest.raises(DataError, match="are two dimensions of data parallelism, of which one can grow"):
        plan_of(job)
    named = plan_of(job, groups=("dp_replicate",)).uses
    assert [use.group.name for use in named if use.joined] == ["r", "r"]


@pytest.mark.parametrize("text", ["all", "0-99999999999999999999", "9" * 5000, "0-999999999", "0-5:0", "3-", ""])
def test_metadata_that_list_no_ranks_are_one_line(text: str) -> None:
    graph = scaled(data_parallel(2))[0]
    graph.metadata["ranks_of_group_1"] = text
    with pytest.raises(DataError, match="the metadata ranks_of_group_1 of the graph is no list of ranks"):
        recorded_groups(graph)


def test_metadata_list_no_more_ranks_in_all_than_a_few_jobs_have() -> None:
    graph = scaled(data_parallel(2))[0]
    graph.metadata |= {f"ranks_of_group_{number}": f"{number}-{number + (1 << 18) - 1}" for number in range(2, 6)}
    with pytest.raises(
        DataError, match="ranks_of_group_5 of the graph is no list of ranks such as 0-3,8, or one of more"
    ):
        recorded_groups(graph)


# lengths and sizes

REDUCED, GATHERED = CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER
STEP, BYTE = 1_000, 2
"""ns of a step, and of a byte."""
STEPS_OF = {REDUCED: 2, GATHERED: 1}
"""Of two members."""


Row = tuple[int, int, int, int, int]
"""Group, type, members, bytes and ns of a collective."""


def measured(size: int, group: int = 0, kind: CollectiveType = REDUCED, off: int = 0) -> Row:
    """A collective of two, `off` ns longer than steps and bytes take."""
    return group, kind, 2, size, STEPS_OF[kind] * STEP + size * BYTE + off


def fits(*rows: Row, given: tuple[float | None, float | None] = (None, None)) -> Fits:
    return Fits(Measured(np.arange(len(rows)), *np.array(rows, np.int64).reshape(-1, 5).T), *given)


def fit_of(*rows: Row, given: tuple[float | None, float | None] = (None, None)) -> Fit:
    """The fit of an all-reduce of the first group."""
    fit = fits(*rows, given=given).of(REDUCED, 0)
    assert fit is not None
    return fit


def test_two_sizes_tell_both() -> None:
    fit = fit_of(measured(1_000), measured(50_000))
    assert fit.line == pytest.approx((STEP, BYTE))
    assert (fit.source, fit.transfers, fit.fit_error_pct, fit.identifiable) == (SOURCES[0], 2, 0.0, True)


@pytest.mark.parametrize(
    ("other", "source", "transfers"),
    [
        (measured(50_000, 1), SOURCES[1], 2),
        (measured(50_000, 0, GATHERED), SOURCES[2], 2),
        (measured(50_000, 1, GATHERED), SOURCES[3], 2),
    ],
    ids=["of the type", "of the group", "of the job"],
)
def test_what_collectives_of_a_type_and_group_do_not_tell_others_do(other: Row, source: str, transfers: int) -> None:
    fit = fit_of(measured(1_000), other)
    assert (fit.source, fit.transfers) == (source, transfers)
    assert fit.line == pytest.approx((STEP, BYTE))


def test_a_type_that_was_not_measured_in_a_group_has_the_line_of_others() -> None:
    fit = fits(measured(1_000), measured(50_000)).of(GATHERED, 7)
    assert fit is not None
    assert fit.source == SOURCES[3]


def test_what_nothing_tells_has_no_line_unless_both_factors_are_given() -> None:
    for factors in ((None, None), (STEP, None), (None, BYTE)):
        assert fits(given=factors).of(REDUCED, 0) is None
    given = fits(given=(STEP, BYTE)).of(REDUCED, 0)
    assert given is not None
    assert (given.line, given.source, given.transfers, given.fit_error_pct) == (Line(STEP, BYTE), "given", 0, 0.0)
    assert given.identifiable


@pytest.mark.parametrize(
    "row",
    [(0, REDUCED, 2, 1_000, 0), (0, REDUCED, 1, 1_000, 5), (0, CollectiveType.ALL_TO_ALL, 2, 1_000, 5)],
    ids=["no time", "one member", "not by ring"],
)
def test_what_takes_no_time_alone_or_not_by_ring_tells_nothing(row: Row) -> None:
    assert fits(row).of(row[1], 0) is None


@pytest.mark.parametrize(("step_ns", "byte_ns"), [(STEP, None), (None, BYTE), (STEP, BYTE)])
def test_a_given_factor_leaves_the_other_one_to_be_fitted(step_ns: float | None, byte_ns: float | None) -> None:
    fit = fit_of(measured(1_000), given=(step_ns, byte_ns))
    assert fits(given=(step_ns, byte_ns)).is_given and not fits().is_given
    assert fit.line == pytest.approx((STEP, BYTE))
    assert (fit.source, fit.transfers, fit.fit_error_pct) == (f"as given; {SOURCES[0]}", 1, 0.0)


def test_a_fitted_factor_is_never_below_zero() -> None:
    for factors, fitted in (((10 * STEP, None), (10 * STEP, 0)), ((None, 10 * BYTE), (0, 10 * BYTE))):
        assert fit_of(measured(1_000), given=factors).line == fitted


def test_of_one_size_the_line_has_the_least_latency_and_others_would_do() -> None:
    fit = fit_of(measured(1_000), measured(1_000))
    assert (fit.identifiable, fit.source, fit.transfers) == (False, SOURCES[0], 2)
    assert fit.line.ns(costs(*np.array([[REDUCED], [2], [1_000]]))) == pytest.approx(2 * STEP + 1_000 * BYTE)


def test_a_latency_within_the_scatter_of_the_times_is_not_known() -> None:
    """It is measured with 1,000 ns, but so are the differences between alike collectives."""
    scattered = [measured(size, off=off) for size in (20_000, 40_000) for off in (-900, 900)]
    assert not fit_of(*scattered).identifiable
    steady = [measured(size, off=off) for size in (20_000, 40_000) for off in (-9, 9)]
    assert fit_of(*steady).identifiable


def test_the_error_is_that_of_the_median() -> None:
    transfers = measured(1_000), measured(1_000), measured(1_000, off=3_000)
    assert fit_of(*transfers, given=(STEP, BYTE)).fit_error_pct == 0.0


@pytest.mark.parametrize("copies", [2, 4, 16])
def test_lengths_follow_the_line_that_was_measured(copies: int) -> None:
    assert lengths(scaled(data_parallel(2), copies)[0]) == pytest.approx(
        [line(ALL_REDUCE, 2 * copies, size) for size in (1_000_000, 4_000_000)], rel=1e-3
    )


def test_the_time_that_members_wait_for_each_other_does_not_grow() -> None:
    late = 3_000 * KB
    graphs, alone = scaled(data_parallel(2, late=late), 8), scaled(data_parallel(2), 8)
    assert lengths(graphs[1]) == lengths(alone[1])
    assert lengths(graphs[0]) == [length + late for length in lengths(alone[0])]


def test_collectives_of_groups_that_do_not_grow_stay_as_they_are() -> None:
    before, after = tensor_by_data()[0], scaled(tensor_by_data(), 4)[0]
    assert lengths(after)[:2] == lengths(before)[:2]
    assert all(then > now for then, now in zip(lengths(after)[2:], lengths(before)[2:], strict=True))


def test_whole_microseconds_stay_right_in_sum() -> None:
    graphs = data_parallel(2, sizes=(100_333, 200_777, 300_111))
    before, after = graphs[0], scaled(graphs, 3)[0]
    longer_ns = int((after.duration_ns - before.duration_ns).sum())
    assert int((after.duration_micros - before.duration_micros).sum()) == pytest.approx(longer_ns / 1000, abs=1)
    unchanged = after.duration_ns == before.duration_ns
    assert unchanged[0]
    assert (after.duration_micros[unchanged] == before.duration_micros[unchanged]).all()


def test_whole_microseconds_of_long_collectives_are_those_of_their_nanoseconds() -> None:
    before = data_parallel(2, sizes=(100_000_000, 400_000_000))
    for short, long in zip(before, scaled(before, 3), strict=False):
        added = long.duration_ns - short.duration_ns
        assert (long.duration_micros - short.duration_micros).tolist() == pytest.approx((added / 1000).tolist(), abs=1)


def test_a_given_network_stands_instead_of_the_measured_one() -> None:
    gib = 1 << 30
    graphs = scaled(data_parallel(2), 2, bandwidth_gib_s=10 * 1e9 / gib, latency_ns=250.0)
    assert lengths(graphs[0]) == pytest.approx([6 * 500 + 1.5 * size / 10 for size in (1_000_000, 4_000_000)], abs=1)


def test_a_scaled_job_takes_as_long_as_its_collectives_say() -> None:
    graphs = data_parallel(2, late=0)
    grown = sum(line(ALL_REDUCE, 8, size) - line(ALL_REDUCE, 2, size) for size in (1_000_000, 4_000_000))
    longer = replay_ranks(scaled(graphs, 4)).makespan_ns - replay_ranks(graphs).makespan_ns
    assert longer == pytest.approx(grown, rel=1e-3)


def test_shards_get_smaller_where_the_whole_stays() -> None:
    gathered, scattered = (ALL_GATHER, 500_001, 100 * KB, {"backward": False}), (REDUCE_SCATTER, 1_000_002, 100 * KB)
    job = meeting(2, gathered, scattered, (ALL_REDUCE, 7, 10 * KB))
    assert sizes(scaled(job, 4)[5]) == [125_001, 1_000_002, 7]


@pytest.mark.parametrize(
    ("target", "expected"), [("generic", [1, 75, 500]), ("astra-sim", [2, 128, 500])], ids=["generic", "astra-sim"]
)
def test_shards_for_astra_sim_keep_the_bytes_without_which_it_never_ends(target: str, expected: list[int]) -> None:
    """What was smaller before stays as it is."""
    gathered = [(ALL_GATHER, size, 10 * KB, {"backward": False}) for size in (2, 150, 1000)]
    job = meeting(2, (REDUCE_SCATTER, 4, 10 * KB), *gathered)
    for one in job:
        one.metadata["target"] = target
    assert sizes(scaled(job)[0])[1:] == expected


def test_what_is_gathered_without_being_scattered_grows_with_the_group() -> None:
    job = meeting(2, (ALL_REDUCE, 1_000_000, 100 * KB), (ALL_GATHER, 64, 10 * KB, {"backward": False}))
    assert sizes(scaled(job)[0]) == [1_000_000, 64]
    assert plan_of(job).undivided == 2


def test_the_root_of_a_joined_group_is_one_for_all() -> None:
    job = meeting(2, (ALL_REDUCE, 1_000_000, 100 * KB), (BROADCAST, 1000, 10 * KB, {"comm_src": 1}))
    graphs = scaled(job, 3)
    assert {int(graph.integers("comm_src").max()) for graph in graphs} == {1}


def test_groups_that_stay_as_they_are_keep_what_they_gather() -> None:
    job = [Rank(rank, 4) for rank in range(4)]
    for one in job:
        one.meet(ALL_REDUCE, range(4), 1_000_000, 100 * KB, pg_name="0", pg_desc="dp")
        one.meet(ALL_GATHER, [one.rank // 2 * 2, one.rank // 2 * 2 + 1], 64, 10 * KB, backward=False, pg_name="tp")
    assert sizes(scaled(job)[0]) == [1_000_000, 64]
    assert plan_of(job).undivided == 0
