"""Which period of a trace steps, annotations and the clock give, and which one both files cover: to the nanosecond.

A part of a linked trace: what belongs to it, what is cut at its borders, what is lost there. On each thread the borders
lie where no call is cut, and a part that is linked by itself is what is cut out of the whole.
"""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from execgraph.linker.link import link
from execgraph.linker.match import Match
from execgraph.linker.readers import DeviceTrace, HostTrace, read_device_trace, read_host_trace
from execgraph.linker.steps import uneven_steps
from execgraph.linker.windows import (
    EVERYTHING,
    Period,
    ThreadParts,
    Window,
    annotation_period,
    clock_span,
    common,
    cut,
    host_period,
    of_both,
    period_of,
    step_span,
    trace_start,
    whole,
)
from execgraph.schema.columns import ABSENT, Categorical, Lookup, intervals as nesting
from execgraph.schema.errors import DataError
from execgraph.schema.linked import Communication, LinkedTrace, ThreadHandoffs, write_linked
from execgraph.schema.reasons import Reason
from hypothesis import given, strategies as st
from support.builder.timeline import TraceBuilder
from support.references import Act, Call, Op, linked_of
from support.runs import VERSIONS, Step, backward, launch_in_op, play, read_pair, two_threads
from support.tables import ActivityRow, Called, CallRow, OpRow, calls, column, device_trace


def marked(*spans: tuple[int, int, int]) -> DeviceTrace:
    """A trace with steps of (number, start, end)."""
    return device_trace([OpRow(start, end, f"ProfilerStep#{number}") for number, start, end in spans])


STEPS = marked((3, 1_000, 2_000), (4, 2_500, 3_000), (5, 3_000, 4_000))


# the whole


def test_a_trace_lasts_from_its_first_start_to_its_last_end_and_zero_is_where_recording_began() -> None:
    rows = {"ops": OpRow(5, 20), "calls": CallRow(3, 9), "activities": ActivityRow(30, 40)}
    assert whole(device_trace(**{name: [row] for name, row in rows.items()})) == (3, 41)
    assert whole(device_trace(ops=[rows["ops"]], calls=[rows["calls"]])) == (3, 21)
    assert whole(device_trace(activities=[rows["activities"]])) == (30, 41)
    assert [trace_start(device_trace([OpRow(5, 9)], recording_start=time)) for time in (None, 3, 7)] == [5, 3, 5]


def test_periods_are_told_from_zero_have_a_part_in_common_and_are_given_by_the_clock() -> None:
    assert Period(1_500, 2_001).in_words(500) == "1.000 to 1.501 µs"
    assert common(Period(1, 5), Period(3, 9)) == common(Period(3, 9), Period(1, 5)) == (3, 5)
    assert clock_span(STEPS, 0.5, 2.0006) == (1_500, 3_001)


# the clock


@pytest.mark.parametrize(
    ("begin", "end", "holds"), [(3, 9, True), (3.001, 9, False), (-5, 0, False), (-5, 0.001, True)]
)
def test_a_period_that_holds_no_nanosecond_of_the_trace_is_refused(begin: float, end: float, holds: bool) -> None:
    if holds:
        assert clock_span(STEPS, begin, end).start == 1_000 + round(begin * 1_000)
    else:
        complaint = f"nothing lies between {begin:g} and {end:g} µs; the trace's events are from 0 to 3 µs"
        with pytest.raises(DataError, match=complaint):
            clock_span(STEPS, begin, end)


# steps


def test_a_step_lasts_from_its_first_mark_until_the_next_one_begins_and_the_last_until_its_end() -> None:
    assert step_span(STEPS, 3, 4) == (1_000, 2_500)
    assert step_span(STEPS, 3, 5) == (1_000, 3_000)
    assert step_span(STEPS, 4, 6) == (2_500, 4_000)
    assert step_span(marked((3, 900, 950), (3, 100, 200), (3, 500, 800)), 3, 4) == (100, 200)
    assert step_span(marked((3, 100, 200), (7, 300, 400)), 3, 4) == (100, 300)
    assert step_span(marked((3, 100, 200), (4, 100, 300)), 3, 4) == (100, 200)


@pytest.mark.parametrize(
    ("first", "end", "complaint"),
    [
        (2, 4, "no step 2 to link; the trace holds steps 3 to 5$"), (3, 8, "no step 6 to link"),
        (3, 10**15, "no step 6 to link"), (4, 4, "no step 4 to link"), (5, 4, "no step 5 to link"),
    ],
)  # fmt: skip
def test_steps_that_are_not_there_are_refused(first: int, end: int, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        step_span(STEPS, first, end)


def iterations(*stretches: str, idle: int = 0) -> DeviceTrace:
    """Ops of 10 ns, named by letters, in steps, or in none where a stretch begins with a dot; the last mark goes on."""
    rows, time = list[OpRow](), 1_000
    for number, ops in enumerate(stretches):
        rows += [OpRow(time + 10 * at, time + 10 * at + 9, f"aten::{name}") for at, name in enumerate(ops.strip("."))]
        end = time + 10 * len(ops) + idle * (number == len(stretches) - 1)
        rows += [OpRow(time, end, f"ProfilerStep#{number}", annotation=True)] * (not ops.startswith("."))
        time = end
    return device_trace(rows, step_without_profiler_ns=500)


CUT = "the recording {} inside a step"
UNEVEN = {
    "whole": (iterations("aaaabbbb", "aaaabbbb", ""), -1, ""),
    "accumulated": (iterations("aaaabb", "aaaabbcc", "aaaabb", "aaaabbcc"), -1, ""),
    "tail": (iterations("aaaabbbb", "aaaabbbb", ".aaa"), 2, CUT.format("ends")),
    "cut last": (iterations("aaaabbbb", "aaaabbbb", "aaaab"), 2, CUT.format("ends")),
    "shorter first": (iterations("aaaabb", "aaaabbbb", "aaaabbbb"), -1, ""),
    "cut first": (iterations("abbbb", "aaaabbbb", "aaaabbbb"), 2, CUT.format("begins")),
    "half of two": (iterations("aaaabbbb", "aaa"), 1, CUT.format("ends")),
    "fewer of two, then nothing": (iterations("aaaabbbb", "aaaab", idle=30), 1, CUT.format("ends")),
    "both ends of one": (iterations(".aaabbbb", "aaaab", idle=30), 0, CUT.format("begins and ends")),
    "lost mark": (iterations("aaaabbbb", ".aaabbbb", "aaaabbbb"), 0, "marks of steps were lost"),
    "marked twice": (iterations("aaaa", "bbbb", "aaaa"), 0, "steps alternate between 2 kinds, of 4 and 4 ops"),
    "marked thrice": (iterations("aa", "bbb", "c", "aa", "bbb"), 0, "3 kinds, of 2 and 3 and 1 ops"),
}


@pytest.mark.parametrize("case", UNEVEN)
def test_only_whole_iterations_are_linked_and_count_as_steps(case: str) -> None:
    device, whole_steps, said = UNEVEN[case]
    uneven, trace = uneven_steps(device, are_ops_odd=False), link(None, device)
    assert uneven.whole == whole_steps and said in uneven.said and bool(said) == bool(uneven.said)
    assert (uneven.said in trace.report.notes) == bool(said)
    assert (trace.info.step_without_profiler_ns == 500) == (whole_steps != 0)
    ops = int((~trace.ops.name.where(lambda name: name.startswith("Prof"))).sum())
    assert ops == (8 * whole_steps if whole_steps > 0 else int((~device.ops.annotation).sum()))


def test_single_steps_and_ranges_are_listed_up_to_eight() -> None:
    for count, listed in ((8, "1, 3, 5, 7, 9, 11, 13, 15"), (9, "1, 3, 5, 7, 9, 11, 13, 15, …")):
        numbers = range(1, 2 * count, 2)
        with pytest.raises(DataError, match=f"the trace holds steps {listed}$"):
            step_span(marked(*((number, 10 * number, 10 * number + 5) for number in numbers)), 0, 1)
    with pytest.raises(DataError, match=r"the trace holds steps 3, 5 to 6$"):
        step_span(marked((5, 1, 2), (6, 3, 4), (3, 5, 6)), 0, 1)


@pytest.mark.parametrize("name", ["ProfilerStep#", "ProfilerStep#x", "My ProfilerStep#1", f"ProfilerStep#{'1' * 19}"])
def test_other_names_mark_no_step(name: str) -> None:
    with pytest.raises(DataError, match="the trace holds no ProfilerStep#N annotation"):
        step_span(device_trace([OpRow(name=name)]), 1, 2)


# annotations


def noted(*spans: tuple[int, int], annotation: int = 1) -> DeviceTrace:
    return device_trace([OpRow(start, end, "forward", annotation=annotation) for start, end in spans])


def test_the_first_annotation_of_a_name_that_begins_in_a_period_is_taken() -> None:
    trace = noted((300, 400), (100, 200), (50, 90))
    assert annotation_period(trace, "forward", Period(0, 1_000)) == (50, 90)
    assert annotation_period(trace, "forward", Period(100, 1_000)) == (100, 200)
    assert annotation_period(trace, "forward", Period(101, 350)) == (300, 350)


@pytest.mark.parametrize(
    ("trace", "name", "period"),
    [
        (noted((50, 90)), "forward", Period(51, 100)), (noted((50, 90)), "forward", Period(0, 50)),
        (noted((50, 90)), "backward", Period(0, 100)), (noted((50, 90), annotation=0), "forward", Period(0, 100)),
    ],
)  # fmt: skip
def test_an_annotation_that_is_not_in_the_period_is_refused(trace: DeviceTrace, name: str, period: Period) -> None:
    with pytest.raises(DataError, match=f"no annotation named '{name}' in that part of the trace"):
        annotation_period(trace, name, period)


def test_what_is_given_together_narrows_the_period() -> None:
    trace = device_trace(
        [OpRow(1_000, 5_000, "ProfilerStep#1"), OpRow(5_000, 9_000, "ProfilerStep#2")]
        + [OpRow(start, start + 2_000, "forward", annotation=1) for start in (1_500, 6_000)]
    )
    within = Period(0, 8_500)
    assert period_of(trace, Window(), within) == within
    assert period_of(trace, Window(steps=(2, 3)), within) == (5_000, 8_500)
    assert period_of(trace, Window(clock=(1, 2)), within) == (2_000, 3_000)
    assert period_of(trace, Window(steps=(2, 3), annotation="forward", clock=(0, 6.5)), within) == (6_000, 7_500)


# what the host trace covers


def covered(matched: slice, count: int = 60) -> Period | None:
    """Ops of 10 ns with 10 ns between them."""
    rows = np.arange(count)[matched]
    return host_period(
        device_trace([OpRow(20 * number, 20 * number + 10) for number in range(count)]),
        Match(rows, rows, "order of names", 1.0, 0, 1),
    )


def test_a_host_trace_covers_from_its_first_op_to_the_first_one_that_it_lacks_at_the_end() -> None:
    assert covered(slice(10, 50)) == (200, 1_000)
    assert covered(slice(0, 50)) == (0, 1_000)
    assert covered(slice(10, 60)) == (200, 1_191)
    ops = [OpRow(0, 900), OpRow(0, 100), OpRow(200, 300), OpRow(400, 500)]
    rows = np.array([1, 3])
    assert host_period(device_trace(ops), Match(rows, rows, "", 1.0, 0, 1)) is None
    ops = [OpRow(0, 100), OpRow(100, 200), OpRow(200, 300)]
    rows = np.array([1])
    assert host_period(device_trace(ops), Match(rows, rows, "", 1.0, 0, 1)) == (100, 200)
    assert covered(slice(0, 0)) is None


def test_up_to_a_twentieth_of_the_ops_may_be_missing_at_the_ends() -> None:
    assert covered(slice(3, 60)) is None
    assert covered(slice(2, 59)) is None
    assert covered(slice(4, 60)) == (80, 1_191)
    assert covered(slice(2, 58)) == (40, 1_160)


HOST_WAITS = Reason.CROSSING_HOST_WAITS
DEVICE_WAITS = Reason.CROSSING_DEVICE_WAITS


def second_step(t: TraceBuilder) -> LinkedTrace:
    return link(*read_pair(t), window=Window(steps=(2, 3)))


def test_the_first_activity_may_be_awaited_from_the_other_side(t: TraceBuilder) -> None:
    with t.annotation("ProfilerStep#1"):
        t.launch("first", 7, 200)
        done = t.record_event(stream=7)
    with t.annotation("ProfilerStep#2"):
        t.wait_event(done, stream=20)
        t.launch("waits", 20, 5)
        t.event_synchronize(done)
    dropped = second_step(t).report.dropped
    assert (dropped[HOST_WAITS], dropped[DEVICE_WAITS]) == (1, 1)


def test_a_synchronisation_that_nothing_was_pending_for_waits_across_no_border(t: TraceBuilder) -> None:
    with t.annotation("ProfilerStep#1"):
        t.stream_synchronize(7)
    with t.annotation("ProfilerStep#2"):
        t.launch("kernel", 7, 5)
        t.stream_synchronize(20)
    linked = second_step(t)
    assert HOST_WAITS not in linked.report.dropped
    assert linked.host_waits.source_row.tolist() == [-1]


def parts(*rows: tuple[int, int, int]) -> ThreadParts:
    """Of the period from 100 to 200 with calls of (thread, start, end)."""
    made = calls(*(Called(start, end) for _, start, end in rows))
    return ThreadParts(replace(made, thread=column(*(thread for thread, *_ in rows))), Period(100, 200))


def borders(found: ThreadParts, thread: int) -> tuple[int, int]:
    first, last = found.of(column(thread))
    return int(first[0]), int(last[0])


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ((90, 120), (120, 200)), ((190, 215), (100, 215)), ((50, 300), (300, 300)), ((100, 120), (100, 200)),
        ((80, 100), (100, 200)), ((99, 101), (101, 200)), ((200, 220), (100, 200)), ((180, 200), (100, 200)),
    ],
)  # fmt: skip
def test_a_thread_that_is_in_a_call_has_its_border_when_that_returns(call, found):
    assert borders(parts((1, *call)), 1) == found


def test_each_thread_has_borders_by_its_longest_call_and_those_without_calls_the_periods() -> None:
    assert borders(parts((1, 90, 130), (1, 95, 120)), 1) == (130, 200)
    found = parts((3, 90, 120), (5, 190, 215))
    assert [borders(found, thread) for thread in (1, 3, 4, 5, 9)] == [
        (100, 200), (120, 200), (100, 200), (100, 215), (100, 200)
    ]  # fmt: skip
    assert borders(parts(), 0) == (100, 200)


ROWS = 7
BYTES_A_ROW = 256
"""Three dozen numbers, as tables of columns hold; Python objects for each row would take several times as much."""
HALVES = (EVERYTHING, Window(clock=(0, 60)), Window(clock=(45, 200)))
Read = Callable[[], tuple[HostTrace | None, DeviceTrace]]


@contextmanager
def nested_at_once(rows: int) -> Iterator[None]:
    """Intervals are nested so many rows at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "ROWS_AT_ONCE", rows)
        yield


def written(linked: LinkedTrace, folder: Path) -> bytes:
    write_linked(linked, str(folder / "linked.json"))
    return (folder / "linked.json").read_bytes()


def reading(t: TraceBuilder, folder: Path) -> Read:
    host, device = map(str, t.write(folder))
    return lambda: (read_host_trace(host), read_device_trace(device))


def check(read: Read, windows: tuple[Window, ...], rows: int) -> int:
    """Compares every window that the trace has; how many it has."""
    pair, found = read(), 0
    entire = link(*pair)
    with TemporaryDirectory() as folder:
        for window in windows:
            try:
                part = link(*pair, window=window)
            except DataError:
                continue
            with nested_at_once(rows):
                assert written(link(*read(), window=window), Path(folder)) == written(part, Path(folder))
            if window != EVERYTHING:
                cut_out = cut(entire, period_of(pair[1], window, whole(pair[1]))).trace
                assert written(part, Path(folder)) == written(replace(cut_out, report=part.report), Path(folder))
            found += 1
    return found


def training(steps: int = 4, **options: Any) -> TraceBuilder:
    """Steps with a backward pass on its own thread, a collective, a blocking copy, and waits for the step before."""
    t = TraceBuilder(rank=0, world_size=2, **options)
    group = t.group([0, 1])
    begun = t.record_event(stream=20)
    t.leaf("untimed", 0, only="host")
    with t.annotation("training"):
        for number in range(1, steps + 1):
            with t.annotation(f"ProfilerStep#{number}"):
                before, begun = begun, t.record_event(stream=20)
                t.wait_event(before, stream=7)
                launch_in_op(t, Step("launch", 7, 0, 40), begun, f"long {number}")
                backward(t, Step("backward", 20, 1, 10), begun, f"backward {number}")
                t.collective("allreduce", group=group)
                t.leaf(f"untimed {number}", 0, only="host")
                t.event_query(before)
                if number == 3:
                    t.memcpy("DtoH", 7, 4)
                    t.stream_synchronize(20)
    return t


@pytest.mark.parametrize(("torch", "sync_records"), [("2.1", False), ("2.13", True)])
def test_steps_annotations_and_times_of_a_training_loop(torch: str, sync_records: bool, tmp_path: Path) -> None:
    steps = (EVERYTHING, *(Window(steps=(first, end)) for first, end in ((1, 2), (3, 4), (2, 5))))
    others = (Window(annotation="## backward ##:2"), Window(annotation="aten::none"), Window(clock=(33, 90)))
    read = reading(training(torch=torch, sync_records=sync_records), tmp_path)
    assert check(read, (*steps, *others), ROWS) == len(steps) + 2


def memory_and_rows(steps: int, folder: Path) -> tuple[int, int]:
    """The most memory that linking one step takes beside what was read, and the rows of the whole."""
    folder.mkdir()
    with nested_at_once(1 << 8):
        host, device = reading(training(steps, torch="2.13", sync_records=True), folder)()
        assert host
        tables = (host.id, device.ops.start, device.calls.start, device.activities.start, device.syncs.start)
        tracemalloc.start()
        link(host, device, window=Window(steps=(1, 2)))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return most, sum(map(len, tables))


def test_memory_of_a_part_grows_by_few_bytes_for_each_row_of_the_whole(tmp_path: Path) -> None:
    (few, few_rows), (many, rows) = (memory_and_rows(steps, tmp_path / str(steps)) for steps in (20, 80))
    assert many - few < BYTES_A_ROW * (rows - few_rows)


@given(two_threads, VERSIONS, st.booleans())
def test_parts_of_any_run(steps: list[Step], torch: str, sync_records: bool) -> None:
    with TemporaryDirectory() as folder:
        read = reading(play(steps, threads=2, torch=torch, sync_records=sync_records), Path(folder))
        assert check(read, HALVES, ROWS)


@pytest.mark.parametrize("run", ["dlrm_8gpu", "captures/compile_inductor", "critical_path", "device_only"])
def test_parts_of_recorded_runs(run: str, real_traces: Path) -> None:
    host, device = {
        "dlrm_8gpu": ("host_rank0.json.gz", "device_rank0.json.gz"),
        "captures/compile_inductor": ("et.json.gz", "kineto.json.gz"),
        "critical_path": (None, "event_sync_multi_stream.json.gz"),
        "device_only": (None, "mi300_vllm_decode_hipgraph.json.gz"),
    }[run]

    def read() -> tuple[HostTrace | None, DeviceTrace]:
        traces = real_traces / run
        return read_host_trace(str(traces / host)) if host else None, read_device_trace(str(traces / device))

    trace = read()[1]
    first, end = ((time - trace_start(trace)) / 1000 for time in whole(trace))
    borders = [first + (end - first) * part / 3 for part in range(4)]
    thirds = tuple(map(Window, (None,) * 3, (None,) * 3, pairwise(borders)))
    assert check(read, (EVERYTHING, *thirds), 1 << 10) > 1


PERIOD = Period(100, 200)
DEVICE, HOST = Reason.CROSSING_DEVICE_WAITS, Reason.CROSSING_HOST_WAITS
OVER = Reason.CROSSING_HANDOFFS


def ops_kept(*spans: tuple[int, int]) -> list[int]:
    """The starts of the ops that are kept, as they were."""
    ops = [Op(start, end, name=str(start)) for start, end in spans]
    part = cut(linked_of([], [], ops), PERIOD).trace.ops
    return [int(part.name[row]) for row in range(len(part))]


def test_ops_that_overlap_the_period_are_kept() -> None:
    assert ops_kept((50, 100), (60, 101), (100, 100), (199, 300), (200, 300), (10, 400), (99, 99)) == [60, 100, 199, 10]


def test_ops_are_cut_to_the_period_and_own_what_is_left_of_them() -> None:
    linked = linked_of([], [], [Op(50, 300), Op(80, 120, 0), Op(150, 160, 0), Op(110, 115, 1)])
    linked.ops.exclusive = column(200, 35, 10, 5)
    part = cut(linked, PERIOD)
    assert (part.trace.ops.start.tolist(), part.trace.ops.end.tolist()) == ([100, 100, 150, 110], [200, 120, 160, 115])
    assert (part.trace.ops.exclusive.tolist(), part.shortened) == ([70, 15, 10, 5], 2)


def test_activities_follow_their_call_and_those_without_one_their_start() -> None:
    calls = [Call(90, 95), Call(150, 155), Call(100, 101), Call(200, 201)]
    acts = [Act(150, 160, call=0), Act(500, 510, call=1), Act(100, 110), Act(199, 250), Act(200, 210), Act(99, 150)]
    part = cut(linked_of(acts, calls), PERIOD)
    assert (part.trace.activities.start.tolist(), part.calls.tolist()) == ([500, 100, 199], [False, True, True, False])


def test_a_part_in_which_only_step_marks_are_is_empty() -> None:
    def is_empty(acts: list[Act], calls: list[Call], ops: list[Op]) -> bool:
        return cut(linked_of(acts, calls, ops), PERIOD).is_empty

    assert is_empty([], [], []) and is_empty([], [], [Op(0, 500, name="ProfilerStep#1"), Op(150, 150)])
    assert not is_empty([Act(150, 160)], [], [])
    assert not is_empty([], [Call(150, 160)], [])
    assert not is_empty([], [], [Op(0, 500)])


def test_waits_with_one_end_in_the_part_are_counted() -> None:
    calls = [Call(50, 55), Call(150, 155), Call(160, 165)]
    acts = [Act(50, 60, call=0, stream=1), Act(150, 160, call=1, stream=2), Act(170, 180, call=2, stream=3)]
    linked = linked_of(acts, calls, device_waits=[(1, 0), (2, 1)], host_waits=[(1, 0), (2, 1), (2, -1), (0, 0)])
    part = cut(linked, PERIOD)
    assert part.lost == {DEVICE: 1, HOST: 1, OVER: 0, Reason.CROSSING_COMMUNICATION: 0}
    assert part.trace.info.backlog_until == {acts_id(linked, 1): 60}


def test_a_transfer_belongs_to_the_part_that_it_begins_or_is_asked_for_in_as_on_other_ranks() -> None:
    linked = linked_of([], ops=[Op(90, 130), Op(190, 230)], communications=[Communication(), Communication()])
    part = cut(replace(linked, ops=replace(linked.ops, communication_row=np.array([0, 1]))), PERIOD)
    assert part.trace.ops.communication_row.tolist() == [-1, 1]
    assert (part.trace.ops.end - part.trace.ops.start).tolist() == [30, 10]
    assert part.lost[Reason.CROSSING_COMMUNICATION] == 1
    rows = [Op(80, 90), Op(90, 130), Op(110, 120), *[Op(125, 190)] * 3]
    linked = linked_of([], ops=rows, communications=[Communication()])
    linked = replace(linked, ops=replace(linked.ops, communication_row=np.array([-1] * 3 + [0] * 3)))
    ids = linked.ops.id
    part = cut(linked, PERIOD, Lookup(ids[3:], ids[:3]))
    assert part.trace.ops.communication_row.tolist() == [-1, -1, -1, -1, 0]
    assert part.lost[Reason.CROSSING_COMMUNICATION] == 2


def acts_id(linked: LinkedTrace, row: int) -> int:
    return int(linked.activities.id[row])


def test_what_ran_before_on_the_stream_is_carried_in_unless_it_is_in_the_part() -> None:
    calls = [Call(50, 55), Call(150, 155), Call(160, 165)]
    acts = [Act(50, 130, call=0), Act(150, 160, call=1), Act(170, 180, call=2), Act(150, 160, call=2, stream=9)]
    linked = linked_of(acts, calls)
    assert cut(linked, PERIOD).trace.info.backlog_until == {acts_id(linked, 1): 130}
    assert linked.info.backlog_until is None


# hand-offs between threads


@pytest.mark.parametrize(
    ("given", "taken", "since", "kept", "lost"),
    [
        (120, 130, 110, [110], 0), (120, 130, 50, [100], 0), (120, 130, ABSENT, [ABSENT], 0),
        (100, 130, ABSENT, [], 1), (101, 199, ABSENT, [ABSENT], 0), (120, 200, ABSENT, [], 1),
        (50, 60, ABSENT, [], 0), (50, 60, 40, [], 0), (250, 260, 199, [], 1), (250, 260, 200, [], 0),
        (50, 101, ABSENT, [], 1), (50, 100, 40, [], 1), (250, 260, 50, [], 1),
    ],
)  # fmt: skip
def test_handoffs_inside_are_kept_and_those_across_a_border_counted(given, taken, since, kept, lost):
    linked = linked_of([], [], [Op(0, 500)])
    over = ThreadHandoffs(column(1), column(given), column(2), column(taken), column(since), Categorical.of(["record"]))
    part = cut(replace(linked, handoffs=over), PERIOD)
    assert (part.trace.handoffs.waiting_since.tolist(), part.lost[OVER]) == (kept, lost)


# ops of the host trace alone


def timed_by_device(first: int, last: int, count: int = 100) -> LinkedTrace:
    """Host ops of which the device trace holds those from the first up to but without the last."""
    linked = linked_of([], [], [Op(10 * number, 10 * number + 5) for number in range(count)])
    held = (np.arange(count) >= first) & (np.arange(count) < last)
    times = {name: np.where(held, getattr(linked.ops, name), ABSENT) for name in ("start", "end")}
    return replace(linked, ops=replace(linked.ops, **times))


@pytest.mark.parametrize(
    ("first", "last", "kept"), [(0, 100, 100), (5, 100, 100), (6, 100, 94), (3, 98, 100), (3, 97, 94), (0, 0, 100)]
)
def test_host_ops_before_or_after_all_of_the_device_trace_are_left_out_if_they_are_many(first, last, kept):
    assert len(of_both(timed_by_device(first, last)).trace.ops) == kept


def test_untimed_ops_belong_where_the_timed_one_before_them_does() -> None:
    linked = timed_by_device(0, 100)
    for row in (0, 9, 11, 20):
        linked.ops.start[row] = linked.ops.end[row] = ABSENT
    part = cut(linked, PERIOD).trace.ops
    assert part.id.tolist() == [*range(11, 21), 21]
