"""Which ops of both traces are the same, and what a joined op takes from each."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.converter.convert import convert
from execgraph.linker import joining, match
from execgraph.linker.joining import launching_ops
from execgraph.linker.link import link, read_traces
from execgraph.linker.match import ANCHOR, Match, align, align_steps, match_ops, occurrences
from execgraph.linker.readers import DeviceTrace, read_device_trace
from execgraph.linker.windows import Window
from execgraph.schema.columns import ABSENT, BytesColumn, Int64, ThreadIntervals, nest
from execgraph.schema.errors import DataError
from execgraph.schema.linked import NO_TENSORS, LinkedTrace
from execgraph.schema.reasons import Reason
from execgraph.tools.replay import replay as replayed
from hypothesis import given, strategies as st
from support import tables
from support.runs import read_pair, small_run
from support.tables import (
    ActivityRow,
    CallRow,
    NodeRow,
    OpRow,
    SyncRow,
    activity_rows,
    call_rows,
    column,
    device_trace,
    host_trace,
    op_rows,
)

HOST = host_trace(
    NodeRow(1, "[pytorch|profiler|execution_trace|process]"),
    NodeRow(4, "aten::mm", parent=1, schema_text="mm()", rf_id=7, fw_parent=2, scope=3, tid=1, fw_tid=9),
    NodeRow(5, "aten::lost", parent=4, rf_id=9),
    NodeRow(6, "aten::add", parent=4, rf_id=8, seq_id=0),
)
DEVICE = device_trace(
    ops=[
        OpRow(0, 100, "outer", annotation=1),
        OpRow(10, 60, "aten::mm", rf_id=7, sequence=21, forward_thread=31),
        OpRow(20, 40, "aten::add", rf_id=8, sequence=22, forward_thread=32),
        OpRow(25, 30, "inner", sequence=23, forward_thread=33),
    ]
)


def linked_pair() -> LinkedTrace:
    return link(HOST, DEVICE)


# ops


def test_ops_are_the_host_nodes_and_those_of_the_device_trace_alone_with_its_times_and_parents() -> None:
    ops = linked_pair().ops
    assert ops.id.tolist() == [1, 4, 5, 6, 7, 8]
    assert [ops.name[row] for row in range(2, 6)] == ["aten::lost", "aten::add", "outer", "inner"]
    assert ops.recorded_by_host.tolist() == [True] * 4 + [False] * 2
    assert ops.start.tolist() == [ABSENT, 10, ABSENT, 20, 0, 25]
    assert ops.end.tolist() == [ABSENT, 60, ABSENT, 40, 100, 30]
    assert ops.exclusive.tolist() == [ABSENT, 30, ABSENT, 15, 50, 5]
    assert ops.thread.tolist() == [ABSENT, 1, ABSENT, 1, 1, 1]
    assert ops.parent_id.tolist() == [-1, 7, 4, 4, -1, 6]


def test_an_op_that_the_device_trace_nests_in_none_is_outermost_if_the_host_trace_has_it_inside_its_own_child() -> None:
    host = host_trace(
        NodeRow(1, "[pytorch|profiler|execution_trace|process]"),
        NodeRow(4, "aten::mm", parent=5, rf_id=7),
        NodeRow(5, "aten::add", parent=1, rf_id=8),
    )
    device = device_trace(ops=[OpRow(10, 60, "aten::mm", rf_id=7), OpRow(20, 40, "aten::add", rf_id=8)])
    assert link(host, device).ops.parent_id.tolist() == [-1, -1, 4]


def test_what_the_host_trace_says_of_an_op_counts_and_what_it_does_not_is_filled_up() -> None:
    ops = linked_pair().ops
    assert ops.rf_id.tolist() == [0, 7, 9, 8, 0, 0]
    assert ops.fw_parent.tolist() == [0, 2, 0, 0, 0, 0]
    assert ops.seq_id.tolist() == [-1, 21, -1, 0, -1, 23]
    assert ops.fw_tid.tolist() == [0, 9, 0, 32, 0, 33]
    assert ops.tid.tolist() == [0, 1, 0, 0, -1, -1]
    assert ops.scope.tolist() == [0, 3, 0, 0, 7, 0]
    assert [ops.op_schema[row] for row in range(6)] == ["", "mm()", "", "", "", ""]
    assert ops.communication_row.tolist() == [-1] * 6


def test_without_a_host_trace_all_ops_are_the_devices_with_their_arguments() -> None:
    device = device_trace([OpRow(0, 9, arguments='{"values": [1]}'), OpRow(10, 19)])
    linked = link(None, device)
    assert linked.ops.id.tolist() == [1, 2]
    assert linked.ops.inputs == [b'{"values":[1]}', NO_TENSORS]
    assert linked.ops.outputs == [NO_TENSORS, NO_TENSORS]
    assert linked.report.notes == [
        "no host trace: 1 of 2 ops have shapes and types; tensor ids were not recorded, so data dependencies cannot be derived"
    ]
    assert (linked.report.matched_by, linked.report.agreement_pct, linked.report.host_ops) == ("", 0, 0)


# calls and activities


def with_work() -> DeviceTrace:
    return device_trace(
        ops=[OpRow(0, 100, "outer"), OpRow(10, 60, "inner")],
        calls=[CallRow(20, 25, 5), CallRow(70, 75, 6), CallRow(200, 205, 7)],
        activities=[
            *(
                ActivityRow(start, start + 5, number, stream=number)
                for number, start in ((50, 500), (5, 50), (6, 80), (7, 210))
            ),
            ActivityRow(900, 910),
        ],
        syncs=[SyncRow(correlation=6), SyncRow(correlation=0), SyncRow(correlation=99)],
    )


def test_activities_belong_to_their_call_and_the_op_around_it() -> None:
    linked = link(None, with_work())
    assert linked.calls.op_row.tolist() == [1, 0, -1]
    assert linked.activities.call_row.tolist() == [-1, 0, 1, 2, -1]
    assert linked.activities.op_row.tolist() == [-1, 1, 0, -1, -1]
    assert linked.activities.id.tolist() == [3, 4, 5, 6, 7]
    report = linked.report
    assert (report.calls, report.activities, report.linked, report.device_ops) == (3, 5, 3, 2)
    assert report.oddities[Reason.ACTIVITIES_WITHOUT_CALL] == 2
    assert report.oddities[Reason.ACTIVITIES_OUTSIDE_OPS] == 1
    assert report.dropped[Reason.SYNC_RECORDS_WITHOUT_CALL] == 2
    assert linked.info.sync_records == 3


# what the trace says of itself


def test_process_rank_and_world_size_are_those_recorded_and_process_files_and_times_the_hosts_first() -> None:
    info = linked_pair().info
    assert (info.source_host, info.source_device, info.schema) == ("host.json", "device.json", "1.1.1")
    assert (info.time, info.start_ts, info.finish_ts) == ("today", 1, 2)
    ops = [OpRow(process=8, rf_id=7), OpRow(process=6)]
    assert link(None, device_trace(ops)).info.pid == 6
    assert link(None, device_trace(activities=[ActivityRow(0, 5)])).info.pid == -1
    assert link(host_trace(NodeRow(1, rf_id=7), pid=8), device_trace(ops)).info.pid == 8
    assert link(host_trace(NodeRow(1, rf_id=7)), device_trace(ops)).info.pid == 6
    unknown = link(None, device_trace([OpRow()]))
    assert (unknown.info.rank, unknown.info.world_size, unknown.report.world_size) == (-1, -1, -1)
    known = link(None, device_trace([OpRow()], rank=0, world_size=1))
    assert (known.info.rank, known.info.world_size, known.report.world_size) == (0, 1, 1)
    assert link(None, device_trace([OpRow()]), rank=0).info.rank == 0


def test_another_rank_is_refused_unless_that_is_allowed() -> None:
    trace = device_trace([OpRow()], rank=0)
    with pytest.raises(DataError, match=r"device.json: is of rank 0, not 1; leave the rank out"):
        link(None, trace, rank=1)
    assert link(None, trace, rank=0).info.rank == link(None, trace, rank=1, allow_mismatch=True).info.rank == 0


# the report


def test_what_was_matched_and_what_was_not_is_counted_and_agreement_is_in_percent() -> None:
    report = linked_pair().report
    assert (report.host_ops, report.device_ops, report.matched) == (3, 4, 2)
    assert (report.matched_by, report.agreement_pct) == ("record function id", 100)
    assert report.oddities == {Reason.DEVICE_ONLY_OPS: 2}
    assert report.dropped == {Reason.HOST_OPS_WITHOUT_TIMES: 1}
    host = host_trace(*(NodeRow(number, name, rf_id=number) for number, name in enumerate("abc", 1)))
    device = device_trace([OpRow(10 * n, 10 * n + 5, name, rf_id=n) for n, name in enumerate("abx", 1)])
    report = link(host, device).report
    assert report.agreement_pct == 66.67
    assert report.oddities[Reason.MISNAMED_OPS] == 1


def test_what_lies_outside_the_window_is_counted_by_table() -> None:
    linked = link(None, with_work(), window=Window(clock=(0, 0.06)))
    assert (len(linked.ops), len(linked.calls), len(linked.activities)) == (2, 1, 1)
    assert linked.report.dropped == {
        Reason.CALLS_OUTSIDE: 2,
        Reason.ACTIVITIES_OUTSIDE: 4,
        Reason.SYNC_RECORDS_OUTSIDE: 1,
        Reason.SYNC_RECORDS_WITHOUT_CALL: 2,
    }
    assert linked.report.oddities[Reason.SHORTENED_OPS] == 1
    assert "the window is from 0.000 to 0.060 µs of the trace" in linked.report.notes


def test_a_window_of_ops_alone_is_not_empty_and_one_of_nothing_is() -> None:
    trace = device_trace([OpRow(0, 100), OpRow(5_000, 5_100)])
    assert len(link(None, trace, window=Window(clock=(0, 1))).ops) == 1
    with pytest.raises(DataError, match=r"nothing was recorded in the window, 1.000 to 2.000 µs of the trace"):
        link(None, trace, window=Window(clock=(1, 2)))


# traces, or their files


def test_without_a_host_trace_the_arguments_of_ops_come_from_the_device_trace(data: Path) -> None:
    path = str(data / "training" / "device_rank0.json.gz")
    read = list[int]()
    host, device = read_traces(None, path, on_progress=read.append)
    assert sum(read) > 0
    expected = read_device_trace(path, arguments=True).ops.arguments
    assert host is None and len(expected.table) > 1 and device.ops.arguments.table == expected.table


FILES = [Path("tests/data/training") / f"{kind}_rank0.json.gz" for kind in ("host", "device")]
PAIR = read_pair(small_run())


def test_files_link_as_the_traces_in_them_and_a_device_trace_alone_keeps_its_arguments() -> None:
    linked = link(FILES[0], str(FILES[1]))
    assert linked.report.matched == linked.report.host_ops == 200
    assert "0 of 200 ops have shapes" not in link(None, FILES[1]).report.notes[-1]


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("a",), r"lacks the device trace; without a host trace write link\(None, device\)"),
        ((PAIR[1], PAIR[0]), "these two are swapped"),
        ((["a"],), r"takes a HostTrace, the path of a host trace, or None first, not list"),
        ((3, PAIR[1]), "takes a HostTrace, the path of a host trace, or None first, not int"),
        ((PAIR[0], [PAIR[1]]), "takes a DeviceTrace or the path of a device trace second, not list"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[Any, ...], answer: str) -> None:
    with pytest.raises(TypeError, match=answer):
        link(*arguments)


MARKS = np.arange(200) >= 100
"""Numbers from 100 on mark steps."""


def aligned(left: list[int], right: list[int]) -> list[tuple[int, int]]:
    found = align(column(*left), column(*right))
    return list(zip(found.left.tolist(), found.right.tolist(), strict=True))


def steps(left: list[int], right: list[int]) -> list[tuple[int, int]]:
    found = align_steps(column(*left), column(*right), marks_step=MARKS)
    return list(zip(found.left.tolist(), found.right.tolist(), strict=True))


def names(text: str) -> Int64:
    return np.array([ord(letter) for letter in text], np.int64)


def longest_common_subsequence(left: str, right: str) -> int:
    """The textbook table, O(n m)."""
    above = [0] * (len(right) + 1)
    for letter in left:
        row = [0]
        for at, other in enumerate(right):
            row.append(above[at] + 1 if letter == other else max(above[at + 1], row[-1]))
        above = row
    return above[-1]


@given(st.text("abc", min_size=1, max_size=14), st.text("abc", max_size=14))
def test_alignment_is_as_long_as_the_longest_common_subsequence(left: str, right: str) -> None:
    # one that is much longer is searched for a window instead
    left, right = left[: max(1, 2 * len(right) - 1)], right[: 2 * len(left) - 1]
    found, other_way = align(names(left), names(right)), align(names(right), names(left))
    assert len(other_way.left) == len(found.left)
    assert "".join(left[at] for at in found.left) == "".join(right[at] for at in found.right)
    assert all(np.diff(found.left) > 0) and all(np.diff(found.right) > 0)
    assert len(found.left) == longest_common_subsequence(left, right)


@given(st.text("ab", min_size=1, max_size=6), st.text("ab", max_size=20))
def test_occurrences_are_all_places_of_a_part(part: str, whole: str) -> None:
    wanted = [at for at in range(len(whole)) if whole.startswith(part, at)]
    assert occurrences(names(part), names(whole)).tolist() == wanted


def test_a_window_with_a_few_differences_is_found_in_a_much_longer_sequence_and_its_positions_counted() -> None:
    rng = np.random.default_rng(7)
    whole = rng.integers(0, 40, 2000)
    part = np.delete(whole[700:1000], [10, 280])
    found = align(part.astype(np.int64), whole.astype(np.int64))
    assert len(found.left) == len(part)
    assert found.right[149] == 850
    step = np.random.default_rng(7).integers(0, 40, 300)
    for count in (1, 2, 3):
        assert align(np.delete(step, [10, 280]), np.tile(step, count)).alignment_count == count


@pytest.mark.parametrize("lost", [slice(1, 39), slice(299, 337)], ids=["before", "behind"])
def test_a_window_may_lack_a_tenth_of_its_ops_and_some_on_one_side_of_its_middle(lost: slice) -> None:
    whole = np.concatenate((np.arange(800), step := np.arange(1000, 1338), np.arange(2000, 3000)))
    part = np.delete(step, lost)
    assert whole[align(part, whole).right].tolist() == part.tolist()


@pytest.mark.parametrize(("held", "there"), [(2, 5), (40, 90)])
def test_repeated_steps_of_a_window_are_found_together(held: int, there: int) -> None:
    step = np.random.default_rng(7).integers(0, 40, 300)
    part = np.delete(np.tile(step, held), [10, 580])
    found = align(part, np.tile(step, there))
    assert len(found.left) == len(part)
    assert found.alignment_count == there - held + 1


# a shorter one


def test_a_shorter_one_is_found_as_a_whole_at_its_first_place_and_nothing_fits_everywhere() -> None:
    part, whole = column(1, 2), column(0, 1, 2, 1, 1, 2)
    assert align(part, whole).right.tolist() == align(whole, part).left.tolist() == [1, 2]
    assert align(part, whole).alignment_count == align(whole, part).alignment_count == 2
    for left, right in ((column(), column()), (column(1), column()), (column(), column(1))):
        found = align(left, right)
        assert (len(found.left), len(found.right), found.alignment_count) == (0, 0, 1)


def window(lost: int, size: int = 100) -> list[int]:
    """A stretch of names that are all different, one of which is not in the other sequence."""
    return [99_999 if place == lost else place for place in range(size)]


@pytest.mark.parametrize("before", [0, 1, 500, 900])
@pytest.mark.parametrize("lost", [0, 3, 99])
def test_a_window_of_a_much_longer_one_is_found_by_its_middle(before: int, lost: int) -> None:
    longer = [*range(10_000, 10_000 + before), *range(100), *range(20_000, 20_900 - before)]
    expected = [(place, before + place) for place in range(100) if place != lost]
    assert aligned(window(lost), longer) == expected
    found = align(column(*longer), column(*window(lost)))
    assert list(zip(found.right.tolist(), found.left.tolist(), strict=True)) == expected
    assert found.alignment_count == 1


def test_what_is_not_much_longer_or_lacks_the_middle_is_aligned_as_a_whole() -> None:
    longer = [*range(50), *range(1_000, 1_060), *range(50, 100)]
    assert aligned([*range(100)], longer) == [(number, number + 60 * (number >= 50)) for number in range(100)]
    left, right = column(1, 9, 2), column(*[7] * 50, 1, *[7] * 50, 2, 7)
    found = align(left, right)
    assert (found.right.tolist(), found.alignment_count) == ([50, 101], 1)


def test_iterations_within_a_window_and_those_shorter_than_an_anchor_are_counted_where_all_of_it_fits() -> None:
    twice = [*range(100), *range(100)]
    found = align(column(99_999, *twice[1:]), column(*twice, *twice))
    assert found.alignment_count == 3
    assert found.right.tolist() == list(range(1, 200))
    iteration = [*range(10)]
    assert align(column(*iteration * 10, 99_999), column(*iteration * 20)).alignment_count == 11
    # where the middle stands first, the rest of it would have begun before the other sequence
    middle = [*range(50, 50 + ANCHOR)]
    longer = [*middle, *range(10_000, 10_300), *range(100), *range(20_000, 20_100)]
    assert aligned(window(0), longer) == [(place, ANCHOR + 300 + place) for place in range(1, 100)]


def test_what_differs_too_much_is_not_aligned_but_for_the_ends_of_other_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    half = 100
    monkeypatch.setattr(match, "LARGEST_DIFFERENCE", 2 * half)
    same = [*range(10)]
    for more, found in ((0, 10), (1, 0)):
        right = [*range(20_000, 20_000 + half + more), *same]
        left = [*range(10_000, 10_000 + half), *same]
        assert len(aligned(left, right)) == found
        unnumbered = align_steps(
            column(*same, *left), column(*same, *right), marks_step=np.zeros(1 << 15, bool), numbered=False
        )
        assert unnumbered.left.tolist() == [*range(10), *range(10 + half, 20 + half)]


# steps


def test_between_steps_that_both_mark_in_one_order_iterations_are_told_apart() -> None:
    # by names alone the shorter one would fit the first iteration as well
    assert steps([101, 1, 2], [100, 1, 2, 101, 1, 2]) == [(0, 3), (1, 4), (2, 5)]
    assert steps([100, 1, 2, 101, 1], [100, 1, 101, 1, 2]) == [(0, 0), (1, 1), (3, 2), (4, 3)]
    assert steps([100, 1, 2], [1, 2]) == [(1, 0), (2, 1)]
    assert steps([100, 1, 2, 101, 3], [101, 1, 100, 2, 3]) == [(1, 1), (2, 3), (4, 4)]
    assert align_steps(column(1), column(1, 1, 1), marks_step=MARKS).alignment_count == 3
    assert align_steps(column(101, 1), column(101, 2, 1, 1), marks_step=MARKS).alignment_count == 1


def test_ops_before_the_first_step_are_aligned_from_its_end_on_and_others_from_the_mark_before_on() -> None:
    assert steps([1, 2, 101, 3], [1, 2, 1, 2, 101, 3]) == [(0, 2), (1, 3), (2, 4), (3, 5)]
    assert steps([1, 2, 1, 2, 101, 3], [1, 2, 101, 3]) == [(2, 0), (3, 1), (4, 2), (5, 3)]
    assert steps([101, 1], [101, 1, 1]) == [(0, 0), (1, 1)]
    assert steps([100, 101, 1], [100, 101, 1, 1]) == [(0, 0), (1, 1), (2, 2)]
    assert steps([1], [1, 1]) == [(0, 0)]


def launched_by(activities: list[int], *calls: CallRow) -> list[int]:
    """The rows of the calls that launched activities of these correlations."""
    return joining.launching_calls(
        activity_rows(*(tables.ActivityRow(correlation=n) for n in activities)), call_rows(*calls)
    ).tolist()


def test_an_activity_finds_the_earliest_call_of_its_correlation_unless_that_is_0() -> None:
    assert launched_by([9, 5, 7, 4, 6], CallRow(correlation=5), CallRow(correlation=9)) == [1, 0, -1, -1, -1]
    assert launched_by([0, 5], CallRow(), CallRow(correlation=5)) == [-1, 1]
    assert launched_by([0, 5], CallRow()) == launched_by([0, 5]) == [-1, -1]
    assert launched_by([-5, 0], CallRow(correlation=-5), CallRow(correlation=0)) == [0, -1]
    assert launched_by([5], CallRow(3, 4, 5), CallRow(2, 6, 5)) == [1]


# ops


def op_of(external, *ops, call_row=-1, calls=1, correlations=None):
    """The ops that launched activities with these external ids and correlations, by default all 99."""
    pairs = zip(external, correlations or [99] * len(external), strict=True)
    activities = activity_rows(*(tables.ActivityRow(external_id=number, correlation=other) for number, other in pairs))
    rows = np.full(len(external), call_row, np.int64)
    return launching_ops(activities, rows, np.full(calls, 1, np.int64), op_rows(*ops)).tolist()


def test_the_op_around_the_call_launched_or_that_of_the_external_id_unless_ids_repeat_the_correlation() -> None:
    ops = OpRow(external_id=3), OpRow(external_id=4)
    assert op_of([3, 0], *ops, call_row=0) == [1, 1]
    ops = OpRow(external_id=8), OpRow(external_id=3)
    assert op_of([3, 8, 5, 9, 0], *ops) == op_of([3, 8, 5, 9, 0], *ops, calls=0) == [1, 0, -1, -1, -1]
    assert op_of([0], OpRow(external_id=0)) == op_of([3]) == [-1]
    ops = OpRow(external_id=5), OpRow(external_id=6)
    assert op_of([5, 6], *ops, correlations=[5, 7]) == [0, 1]
    assert op_of([5, 6], *ops, correlations=[5, 6]) == [-1, -1]
    assert op_of([5, 0, 6], *ops, correlations=[5, 7, 0]) == [-1, -1, -1]


def around(calls: list[CallRow], ops: list[OpRow], *steps: int) -> list[int]:
    table = op_rows(*ops)
    nesting = nest(ThreadIntervals(table.thread, table.start, table.end))
    is_step = np.isin(np.arange(len(ops)), steps)
    return joining.enclosing_ops(call_rows(*calls), table, nesting, is_step).tolist()


def test_the_innermost_op_on_the_thread_that_marks_no_step_is_around_a_call() -> None:
    ops = [OpRow(0, 100), OpRow(10, 50), OpRow(0, 100, thread=2)]
    calls = [CallRow(20, 30), CallRow(60, 70), CallRow(20, 30, thread=2), CallRow(20, 30, thread=3), CallRow(200, 210)]
    assert around(calls, ops) == [1, 0, 2, -1, -1]
    ops = [OpRow(0, 100), OpRow(10, 90), OpRow(20, 50)]
    calls = [CallRow(30, 40), CallRow(60, 70), CallRow(92, 95)]
    assert around(calls, ops) == [2, 1, 0]
    assert around(calls, ops, 0) == [2, 1, -1]
    assert around(calls, ops, 0, 1, 2) == [-1, -1, -1]
    assert around([CallRow(0, 1)], []) == [-1]
    assert column().tolist() == around([], [OpRow()])


def by_id(host: dict[int, str], device: dict[int, str], **options: bool) -> Match:
    """Ops of record function ids with names."""
    nodes = host_trace(*(NodeRow(number, name, rf_id=rf_id) for number, (rf_id, name) in enumerate(host.items(), 1)))
    ops = [
        OpRow(10 * number, 10 * number + 5, name, rf_id=rf_id) for number, (rf_id, name) in enumerate(device.items())
    ]
    return match_ops(nodes, device_trace(ops), **options)


def pairs(found: Match) -> list[tuple[int, int]]:
    return list(zip(found.host_row.tolist(), found.device_row.tolist(), strict=True))


def test_ops_of_one_id_and_name_belong_together_in_any_order_and_0_is_no_id() -> None:
    assert pairs(by_id({0: "x", 5: "a"}, {0: "x", 5: "a"})) == [(1, 1)]
    assert by_id({0: "a"}, {5: "a"}).by == "order of names"
    found = by_id({5: "a", 3: "b", 9: "c"}, {9: "c", 7: "x", 3: "b", 5: "a"})
    assert (pairs(found), found.agreement, found.misnamed, found.alignment_count) == ([(0, 3), (1, 2), (2, 0)], 1, 0, 1)


def test_ids_outside_the_range_of_both_files_say_nothing_and_others_match_nothing() -> None:
    assert by_id({1: "a", 2: "b", 3: "c"}, {3: "c", 4: "d", 5: "e"}).agreement == 1
    assert by_id({1: "a", 2: "b", 4: "c"}, {2: "b", 3: "x", 4: "c", 5: "y"}).agreement == 1
    assert by_id({2: "a", 3: "b", 6: "c"}, {2: "a", 4: "x", 6: "c"}).agreement == 2 / 3
    found = by_id({1: "a"}, {2: "b"}, allow_mismatch=True)
    assert (pairs(found), found.agreement) == ([], 0)


def test_half_of_the_names_must_agree() -> None:
    assert by_id({1: "a", 2: "b"}, {1: "a", 2: "x"}).misnamed == 1
    with pytest.raises(DataError, match=r"1 of 3 host ops .* 3 ops of device.json \(by record .* 2 with another name"):
        by_id({1: "a", 2: "b", 3: "c"}, {1: "a", 2: "x", 3: "x"})
    assert by_id({1: "a", 2: "b", 3: "c"}, {1: "a", 2: "x", 3: "x"}, allow_mismatch=True).agreement == 1 / 3


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


# by the order of names


def by_order(host: str, device: str) -> Match:
    nodes = host_trace(*(NodeRow(number, name, tid=1) for number, name in enumerate(host, 1)))
    ops = [OpRow(10 * number, 10 * number + 5, name) for number, name in enumerate(device)]
    return match_ops(nodes, device_trace(ops), allow_mismatch=True)


def test_without_ids_names_are_matched_in_order() -> None:
    found = by_order("abcd", "abxd")
    assert (found.by, pairs(found), found.agreement) == ("order of names", [(0, 0), (1, 1), (3, 3)], 0.75)
    assert not found.host_is_longer
    for host, device, count, is_longer in (("abababab", "ab", 4, True), ("ab", "ababab", 3, False)):
        found = by_order(host, device)
        assert (pairs(found), found.agreement) == ([(0, 0), (1, 1)], 1)
        assert (found.alignment_count, found.host_is_longer) == (count, is_longer)


def test_names_are_compared_as_kineto_writes_them_in_the_order_of_host_ids() -> None:
    nodes = host_trace(
        NodeRow(1, 'say "hi"'), NodeRow(2, "a\\b"), NodeRow(3, "tab\t"), NodeRow(4, "ä"), NodeRow(5, " ~")
    )
    names = ["say 'hi'", "a/b", "unknown", "unknown", " ~"]
    device = device_trace([OpRow(10 * number, 10 * number + 5, name) for number, name in enumerate(names)])
    assert match_ops(nodes, device).agreement == 1
    nodes = host_trace(NodeRow(9, "c"), NodeRow(2, "b"), NodeRow(1, "a"))
    device = device_trace([OpRow(10 * n, 10 * n + 5, name) for n, name in enumerate("abc")])
    assert sorted(pairs(match_ops(nodes, device))) == [(0, 2), (1, 1), (2, 0)]


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


def pool(count: int) -> Callable[[], Match]:
    """Workers that all ran the same two ops."""
    host = host_trace(*(NodeRow(number, "ab"[number % 2], tid=1 + number // 2) for number in range(2 * count)))
    device = device_trace([OpRow(n, n + 1, "ab"[n % 2], thread=100 + n // 2) for n in range(2 * count)])
    return lambda: match_ops(host, device)


def test_workers_of_a_pool_are_paired_one_to_one_in_linear_effort() -> None:
    assert pairs(pool(3)()) == [(row, row) for row in range(6)]
    assert tables.growth(pool, 40) < 2.5


# traces of different steps


def other_steps(host: str, device: str, **seen: Any) -> LinkedTrace:
    """Steps that letters end with "|", each op within its step's mark; the device's are numbered from 7 on."""
    nodes, ops, ids = [NodeRow(1, "thread")], list[OpRow](), iter(range(2, 99))
    for step, names in enumerate(host.split("|")):
        mark = next(ids)
        nodes += [NodeRow(mark, f"ProfilerStep#{step}", parent=1, tid=1)]
        nodes += [NodeRow(number := next(ids), name, parent=mark, tid=1, rf_id=number, seq_id=50) for name in names]
    for step, names in enumerate(device.split("|"), 7):
        start = 100 * step
        ops.append(OpRow(start, start + 99, f"ProfilerStep#{step}", annotation=1))
        ops += [
            OpRow(start + 2 * n, start + 2 * n + 1, name, rf_id=n + 1, sequence=n) for n, name in enumerate(names, 1)
        ]
    return link(host_trace(*nodes), device_trace(ops), **seen)


def test_of_other_steps_names_count_and_times_marks_and_sequence_numbers_are_the_devices() -> None:
    linked = other_steps("abc|abd", "abc|abd")
    assert (linked.report.matched_by, linked.report.matched) == ("order of names in other steps", 8)
    ops = linked.ops
    rows = [(ops.name[row], ops.start[row], ops.seq_id[row], ops.parent_id[row]) for row in (1, 2, 8)]
    assert rows == [("ProfilerStep#7", 700, -1, 1), ("a", 702, 1, 2), ("d", 806, 3, 6)]
    assert not linked.report.notes
    assert Reason.STEPS_APART not in linked.report.oddities


def test_steps_that_differ_are_counted_and_matched_as_far_as_they_go_and_further_ones_are_outside() -> None:
    report = other_steps("abcd|abcd|abcd", "abcd|axcd").report
    assert (report.matched, report.oddities[Reason.STEPS_APART], report.oddities[Reason.DEVICE_ONLY_OPS]) == (9, 1, 1)
    report = other_steps("abc|abd", "abc|abd|abd|abc").report
    assert (report.matched, report.dropped[Reason.OPS_OUTSIDE]) == (8, 8)


def test_transfers_on_threads_of_their_own_and_what_both_files_say_of_their_windows() -> None:
    nodes = host_trace(NodeRow(2, "a", tid=1, rf_id=1), NodeRow(3, "gloo:x", parent=2, tid=1, rf_id=2))
    ops = [OpRow(0, 9, "b", rf_id=1), OpRow(10, 19, "a", rf_id=2), OpRow(12, 15, "gloo:x", thread=5)]
    found = match_ops(replace(nodes, window="host"), device_trace(ops, window="device"))
    assert (found.by, pairs(found)) == ("order of names in other steps", [(0, 1), (1, 2)])
    assert by_id({1: "a", 2: "b"}, {1: "b", 2: "a", 3: "b"}).of_other_steps


def test_transfers_of_other_steps_go_by_their_requests_in_whichever_order_threads_begin_them() -> None:
    names = ("ProfilerStep#1", "c10d::x_", "gloo:x", "c10d::y_", "gloo:y")
    nodes = [NodeRow(2 + n, name, tid=1, rf_id=2 + n) for n, name in enumerate(names)]
    # the first transfer was asked for before the step
    ops = [OpRow(8, 50, names[0], annotation=1), OpRow(0, 5, "c10d::x_"), OpRow(10, 15, "c10d::x_")]
    ops += [OpRow(20, 25, "c10d::y_"), OpRow(12, 30, "gloo:x", thread=5), OpRow(26, 40, "gloo:y", thread=6)]
    device = device_trace([*ops, OpRow(31, 40, "gloo:x", thread=5)], window="device")
    found = match_ops(replace(host_trace(*nodes), window="host"), device)
    assert pairs(found) == [(0, 0), (1, 2), (3, 3), (2, 6), (4, 5)]


@pytest.mark.parametrize(("of_same_steps", "reshaped"), [(True, 1), (True, 2), (False, 7), (False, 8)])
def test_ops_of_other_shapes_are_of_another_run_and_a_few_of_another_batch(of_same_steps: bool, reshaped: int) -> None:
    nodes = [NodeRow(n, f"op{n}", tid=1, rf_id=n) for n in range(1, 11)]
    host = replace(host_trace(*nodes), inputs=BytesColumn.of([b'{"values":[],"shapes":[[2,4],[[3]]],"types":[]}'] * 10))
    host = replace(host, window="" if of_same_steps else "host")
    shapes = ["[[8,4],[]]" if n <= reshaped else "[[2,4],[]]" for n in range(1, 11)]
    ops = [OpRow(20 * n, 20 * n + 9, f"op{n}", rf_id=n, shapes=shapes[n - 1]) for n in range(1, 11)]
    device = device_trace(ops, window="" if of_same_steps else "device")
    if reshaped in (1, 7):
        assert link(host, device).report.matched == 10
        return
    what = f"host.json: {reshaped} of 10 ops .* other shapes there .the first: op1, .2, 4. and .8, 4..; shapes, and"
    with pytest.raises(DataError, match=what):
        link(host, device)
    assert re.search(what, link(host, device, allow_mismatch=True).report.notes[0])


def test_a_step_mark_in_common_makes_no_two_files_of_one_run() -> None:
    with pytest.raises(DataError, match="1 of 5 host ops have a counterpart among the 4 ops"):
        other_steps("abc", "xyz")


def test_recordings_of_one_program_on_a_gpu_match_and_replay(data: Path) -> None:
    files = (data / "gpu" / name for name in ("small/host_rank0.json.gz", "small_device_only/device_rank0.json.gz"))
    linked = link(*files, allow_mismatch=True)
    assert linked.report.matched == linked.report.host_ops == 2612
    assert replayed(convert(linked)).error_pct == 0
