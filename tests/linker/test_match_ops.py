"""Which ops of the two traces belong together, and which pairs of files do not: by rows made by hand."""

from collections.abc import Callable

import pytest
from execgraph.linker.match_ops import Match, match_ops
from execgraph.schema.errors import DataError
from support.device_rows import CallRow, NodeRow, OpRow, device_trace, host_trace
from support.effort import growth


def by_id(host: dict[int, str], device: dict[int, str], **options: bool) -> Match:
    """Ops of record function ids with names."""
    nodes = host_trace(*(NodeRow(number, name, rf_id=rf_id) for number, (rf_id, name) in enumerate(host.items(), 1)))
    ops = [
        OpRow(10 * number, 10 * number + 5, name, rf_id=rf_id) for number, (rf_id, name) in enumerate(device.items())
    ]
    return match_ops(nodes, device_trace(ops), **options)


def pairs(found: Match) -> list[tuple[int, int]]:
    return list(zip(found.host_row.tolist(), found.device_row.tolist(), strict=True))


def test_ops_of_one_id_and_name_belong_together_in_any_order() -> None:
    found = by_id({5: "a", 3: "b", 9: "c"}, {9: "c", 7: "x", 3: "b", 5: "a"})
    assert (pairs(found), found.agreement, found.misnamed, found.alignment_count) == ([(0, 3), (1, 2), (2, 0)], 1, 0, 1)


def test_ids_outside_the_range_of_both_files_say_nothing_against_the_pair() -> None:
    assert by_id({1: "a", 2: "b", 3: "c"}, {3: "c", 4: "d", 5: "e"}).agreement == 1
    assert by_id({1: "a", 2: "b", 4: "c"}, {2: "b", 3: "x", 4: "c", 5: "y"}).agreement == 1
    assert by_id({2: "a", 3: "b", 6: "c"}, {2: "a", 4: "x", 6: "c"}).agreement == 2 / 3


def test_half_of_the_names_must_agree() -> None:
    assert by_id({1: "a", 2: "b"}, {1: "a", 2: "x"}).misnamed == 1
    with pytest.raises(DataError, match=r"1 of 3 host ops .* 3 ops of device.json \(by record .* 2 with another name"):
        by_id({1: "a", 2: "b", 3: "c"}, {1: "a", 2: "x", 3: "x"})
    assert by_id({1: "a", 2: "b", 3: "c"}, {1: "a", 2: "x", 3: "x"}, allow_mismatch=True).agreement == 1 / 3


def test_ids_that_have_nothing_in_common_match_nothing() -> None:
    found = by_id({1: "a"}, {2: "a"}, allow_mismatch=True)
    assert (pairs(found), found.agreement) == ([], 0)


@pytest.mark.parametrize(
    ("processes", "listed"),
    [([5], "process 5 in"), ([6, 5], "processes 5, 6 in"), ([5, 6, 7, 8, 9], "processes 5, 6, 7, 8 in")],
)
def test_another_process_is_refused_and_up_to_four_are_named(processes: list[int], listed: str) -> None:
    device = device_trace([OpRow(process=number) for number in processes])
    with pytest.raises(DataError, match=f"process 4 in the host trace, {listed} device.json"):
        match_ops(host_trace(NodeRow(1), pid=4), device)
    assert match_ops(host_trace(NodeRow(1), pid=5), device).agreement == 1
    assert match_ops(host_trace(NodeRow(1), pid=4), device, allow_mismatch=True).agreement == 1


def test_a_file_without_ops_is_named() -> None:
    root = NodeRow(1, "[pytorch|profiler|execution_trace|process]")
    with pytest.raises(DataError, match=r"host.json: holds no op"):
        match_ops(host_trace(root), device_trace([OpRow()]))
    with pytest.raises(DataError, match=r"device.json: holds no op"):
        match_ops(host_trace(NodeRow(1)), device_trace(calls=[CallRow()]))


def test_an_id_of_0_is_none() -> None:
    assert pairs(by_id({0: "x", 5: "a"}, {0: "x", 5: "a"})) == [(1, 1)]
    assert by_id({0: "a"}, {5: "a"}).by == "order of names"


# by the order of names


def by_order(host: str, device: str) -> Match:
    nodes = host_trace(*(NodeRow(number, name, tid=1) for number, name in enumerate(host, 1)))
    ops = [OpRow(10 * number, 10 * number + 5, name) for number, name in enumerate(device)]
    return match_ops(nodes, device_trace(ops), allow_mismatch=True)


def test_without_ids_names_are_matched_in_order() -> None:
    found = by_order("abcd", "abxd")
    assert (found.by, pairs(found), found.agreement) == ("order of names", [(0, 0), (1, 1), (3, 3)], 0.75)
    assert not found.host_is_longer


def test_the_longer_file_and_the_places_that_fit_are_told() -> None:
    found = by_order("abababab", "ab")
    assert (pairs(found), found.alignment_count, found.host_is_longer, found.agreement) == (
        [(0, 0), (1, 1)],
        4,
        True,
        1,
    )
    found = by_order("ab", "ababab")
    assert (pairs(found), found.alignment_count, found.host_is_longer, found.agreement) == (
        [(0, 0), (1, 1)],
        3,
        False,
        1,
    )


def test_names_are_compared_as_kineto_writes_them() -> None:
    nodes = host_trace(
        NodeRow(1, 'say "hi"'), NodeRow(2, "a\\b"), NodeRow(3, "tab\t"), NodeRow(4, "ä"), NodeRow(5, " ~")
    )
    names = ["say 'hi'", "a/b", "unknown", "unknown", " ~"]
    device = device_trace([OpRow(10 * number, 10 * number + 5, name) for number, name in enumerate(names)])
    assert match_ops(nodes, device).agreement == 1


def test_threads_are_paired_by_the_names_that_they_have_in_common() -> None:
    nodes = host_trace(*(NodeRow(n, name, tid=1 + (name in "xy")) for n, name in enumerate("abxcy", 1)))
    ops = [OpRow(n, n + 1, name, thread=8 - (name in "xy")) for n, name in enumerate("abxcy")]
    found = match_ops(nodes, device_trace(ops))
    assert sorted(pairs(found)) == [(n, n) for n in range(5)]


def test_of_other_threads_a_longer_device_trace_counts_from_the_first_to_the_last_op_of_the_largest() -> None:
    host = host_trace(
        *(NodeRow(n, name, tid=1) for n, name in enumerate("bcdef", 1)),
        *(NodeRow(n, name, tid=2) for n, name in enumerate("wxyz", 20)),
    )
    largest = [OpRow(10 * n, 10 * n + 10, name) for n, name in enumerate("abcdefg")]
    other = [OpRow(start, start + 1, name, thread=5) for start, name in zip((9, 10, 59, 60), "wxyz", strict=True)]
    found = match_ops(host, device_trace([*largest, *other]))
    assert sorted(pairs(found)) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (6, 8), (7, 9)]


def test_of_other_threads_a_longer_host_trace_counts_from_the_first_to_the_last_op_of_the_largest() -> None:
    host = host_trace(
        *(NodeRow(10 * n, name, tid=1) for n, name in enumerate("abcdefg", 1)),
        *(NodeRow(number, name, tid=2) for number, name in zip((19, 21, 69, 71), "wxyz", strict=True)),
    )
    largest = [OpRow(10 * n, 10 * n + 10, name) for n, name in enumerate("bcdef")]
    other = [OpRow(n, n + 1, name, thread=5) for n, name in enumerate("wxyz")]
    found = match_ops(host, device_trace([*largest, *other]))
    assert sorted(pairs(found)) == [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (8, 6), (9, 7)]


def test_host_ops_are_in_the_order_of_their_ids() -> None:
    nodes = host_trace(NodeRow(9, "c"), NodeRow(2, "b"), NodeRow(1, "a"))
    device = device_trace([OpRow(10 * n, 10 * n + 5, name) for n, name in enumerate("abc")])
    assert sorted(pairs(match_ops(nodes, device))) == [(0, 2), (1, 1), (2, 0)]


def pool(count: int) -> Callable[[], Match]:
    """Workers that all ran the same two ops."""
    host = host_trace(*(NodeRow(number, "ab"[number % 2], tid=1 + number // 2) for number in range(2 * count)))
    device = device_trace([OpRow(n, n + 1, "ab"[n % 2], thread=100 + n // 2) for n in range(2 * count)])
    return lambda: match_ops(host, device)


def test_workers_of_a_pool_are_paired_one_to_one_in_linear_effort() -> None:
    assert pairs(pool(3)()) == [(row, row) for row in range(6)]
    assert growth(pool, 40) < 2.5
