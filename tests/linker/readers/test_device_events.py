"""Rows of a device trace as they become tables: their roles, their times, and what stands for what they do not say.

Arrows from launches to activities: many that start twice are of several processes, few may be chance.
"""

import json
from decimal import Decimal
from typing import Any

import pytest
from execgraph.linker.readers import RecordedOps, RecordedSyncs, Role, read_device_trace
from execgraph.linker.readers.device_events import DeviceEvents, unpadded
from execgraph.linker.readers.device_trace import within_a_recording
from execgraph.schema.errors import DataError
from execgraph.schema.linked import FOREVER, LONGEST_RECORDING, Activities, Args, kineto
from execgraph.schema.linked.kineto import Event, ExactEvent
from execgraph.schema.reasons import Reason
from msgspec import Raw, json as msgspec_json
from support.tables import ActivityRow, OpRow, device_trace

YEAR = "36028797018963.968"
"""µs, the shortest that is taken for no measured duration."""
WITHOUT_TIME = Reason.UNUSABLE_TIME
WITHOUT_DURATION = Reason.NO_DURATION
PADDED = {"start": False, "duration": False}


def op(ts: Any = 1, dur: Any = 1, **other: Any) -> Event:
    return Event(**{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": ts, "dur": dur} | other)


def of(category: str, **args: Any) -> Event:
    return op(cat=category, args=Args(**args))


def exact(ts: bytes, dur: bytes = b"1", ph: str = "X") -> ExactEvent:
    return ExactEvent(ph=ph, cat="cpu_op", ts=Raw(ts), dur=Raw(dur))


def never() -> list[Event]:
    raise AssertionError("not to be read again")


def read(*pieces: list[Event], arguments: bool = False) -> DeviceEvents:
    events = DeviceEvents(arguments)
    for piece in pieces:
        events.add(piece, never)
    events.close()
    return events


def times(events: DeviceEvents, role: Role = Role.OP) -> list[tuple[int, int]]:
    table = events.rows[role].table(PADDED)
    return list(zip(table.start.tolist(), table.end.tolist(), strict=True))


def ops(*rows: Event, arguments: bool = False) -> RecordedOps:
    table: RecordedOps = read([*rows], arguments=arguments).rows[Role.OP].table(PADDED)
    return table


def activities(*rows: Event) -> Activities:
    table: Activities = read([*rows]).rows[Role.ACTIVITY].table(PADDED)
    return table


def syncs(*rows: Event) -> RecordedSyncs:
    table: RecordedSyncs = read([*rows]).rows[Role.SYNC].table(PADDED)
    return table


def test_complete_rows_are_sorted_by_category_and_others_ignored() -> None:
    categories = ["cpu_op", "cuda_runtime", "kernel", "cuda_sync", "cuda_event", "python_function", "ac2g"]
    events = read([op(cat=category) for category in categories], [op(ph="i"), op(ph="f"), op(ph="C", cat=None)])
    assert [events.rows[role].count for role in (Role.OP, Role.CALL, Role.ACTIVITY, Role.SYNC)] == [1, 1, 1, 1]
    assert events.rows[Role.EVENT_RECORD].count == 1
    assert (events.read, events.ignored, events.skipped.without_zeros()) == (10, 5, {})


def test_begins_and_ends_are_rows_in_pairs_and_counted_alone_where_they_are_of_work() -> None:
    rows = [
        op(ts=1, ph="B", name="a"), op(ts=2, ph="B", name="b"), op(ts=9, ph="E"), op(ts=7, ph="E", cat=None),
        op(ts=3, ph="B", tid=2), op(ts=4, ph="B", tid=3, cat="python_function"), op(ts=4.5, ph="E", tid=4, cat=None),
        op(ts=5, ph="B", tid=5, cat="c"), op(ts=6, ph="E", tid=5), op(ts="x", ph="E"),
    ]  # fmt: skip
    events = read(rows)
    assert times(events) == [(2000, 7000), (1000, 9000)]
    assert events.rows[Role.OP].name.column().tolist() == ["b", "a"]
    assert events.skipped == {
        Reason.BEGIN_OR_END_ALONE: 2, Reason.UNKNOWN_CATEGORY.of("c"): 1, Reason.UNUSABLE_TIME: 1
    }  # fmt: skip
    assert events.read == events.ignored + sum(events.skipped.values()) + 2


def test_unknown_categories_are_counted_by_name() -> None:
    events = read([op(cat="c" * 50), op(cat="c" * 40), op(cat="other")])
    assert events.skipped == {Reason.UNKNOWN_CATEGORY.of("c" * 40): 2, Reason.UNKNOWN_CATEGORY.of("other"): 1}


def test_labels_are_the_texts_of_processes() -> None:
    rows = [
        Event("M", name="process_name", pid=1, args=Args(name="python")),
        Event("M", name="process_labels", pid=2, args=Args(labels="rank 3")),
        Event("M", name="process_name", pid=3, args=Args()), Event("M", name="process_name", pid=4),
        Event("M", name="thread_name", pid=5, args=Args(name="main")),
        Event("i", name="process_name", pid=6, args=Args(name="python")),
    ]  # fmt: skip
    events = read(rows)
    assert events.labels == [(1, "python"), (2, "rank 3"), (3, "")]
    assert events.ignored == 6


def test_each_row_of_the_profiler_is_the_start_of_a_recording() -> None:
    assert not read([op()]).recordings
    assert not read([op(cat="Trace", ts=None)]).recordings
    recordings = read([op(cat="Trace", ts=7), op(cat="overhead", ts=1)], [op(cat="Trace", ts=9)]).recordings
    assert recordings == {7_000, 9_000}


@pytest.mark.parametrize("duration", [None, -1, -0.001])
def test_a_row_without_a_duration_or_with_a_negative_one_lasts_no_time(duration: Any) -> None:
    events = read([op(5, duration), op(6, 0)])
    assert times(events) == [(5_000, 5_000), (6_000, 6_000)]
    assert events.oddities[WITHOUT_DURATION] == 1
    assert not events.skipped.without_zeros()


@pytest.mark.parametrize(("start", "duration"), [(None, 1), ("soon", 1), (1, "long"), (1, YEAR)])
def test_a_row_without_a_start_or_with_a_duration_that_is_none_is_counted(start: Any, duration: Any) -> None:
    events = read([op(5, 1, name="before"), op(start, duration, name="lost"), op(7, 2, name="behind")])
    assert times(events) == [(5_000, 6_000), (7_000, 9_000)]
    assert [events.rows[Role.OP].name.column()[row] for row in (0, 1)] == ["before", "behind"]
    assert events.skipped == {WITHOUT_TIME: 1}


def test_a_row_may_last_just_less_than_a_year_and_longer_than_a_double_can_hold() -> None:
    assert times(read([op(0, "36028797018963.967")])) == [(0, (1 << 55) - 1)]
    assert times(read([op(1, float((1 << 44) + 0.25))])) == [(1_000, 1_000 + (1 << 44) * 1000 + 250)]
    assert read([op(5), op(float((1 << 44) + 0.25), ph="C")]).ignored == 1


@pytest.mark.parametrize("sign", [1, -1])
def test_a_row_begins_so_that_the_longest_duration_ends_within_64_bits(sign: int) -> None:
    too_far = sign * (FOREVER - LONGEST_RECORDING)
    nearest = too_far - sign
    events = read([op(str(Decimal(ns) / 1000)) for ns in (too_far, nearest)])
    assert times(events) == [(nearest, nearest + 1_000)]
    assert events.skipped == {WITHOUT_TIME: 1}


def test_once_a_start_has_lost_nanoseconds_all_that_follow_are_read_as_text() -> None:
    events = DeviceEvents(False)
    events.add([op(5)], never)
    events.add([op(float((1 << 44) + 0.25))], lambda: [exact(b"17592186044416.251"), exact(b"2", b"null")])
    events.add([op(7)], lambda: [exact(b"7.001", b""), exact(b"8", b'"long"'), exact(b"null")])
    assert times(events) == [
        (5_000, 6_000), (17592186044416251, 17592186044417251), (2_000, 2_000), (7_001, 7_001)
    ]  # fmt: skip
    assert events.skipped == {WITHOUT_TIME: 2}
    assert events.oddities[WITHOUT_DURATION] == 2


@pytest.mark.parametrize("lacking", ["start", "duration"])
def test_padding_is_told_of_starts_and_durations_apart(lacking: str) -> None:
    stamps = [f"{number}.{number}" for number in range(1, 100)]
    name = {"start": "ts", "duration": "dur"}[lacking]
    events = DeviceEvents(False)
    rows = [op(float((1 << 44) + 0.25))]
    full = {"ts": b"1.100", "dur": b"1.100"}
    text = [ExactEvent("X", cat="cpu_op", **{key: Raw(value) for key, value in (full | {name: stamp.encode()}).items()})
            for stamp in stamps]  # fmt: skip
    events.add(rows, lambda: text)
    pad = unpadded(events.rows.values())
    assert pad == {"start": False, "duration": False} | {lacking: True}
    table = events.rows[Role.OP].table(pad)
    found = table.start if lacking == "start" else table.end - table.start
    assert found[[0, 8, 9, 98]].tolist() == [1_001, 9_009, 10_010, 99_099]


def test_an_op_has_the_ids_that_it_says() -> None:
    for bare in (ops(Event("X", cat="cpu_op", name=None, ts=1, dur=1)), ops(of("cpu_op"))):
        assert (bare.process.tolist(), bare.thread.tolist()) == ([-1], [-1])
        assert (bare.rf_id.tolist(), bare.external_id.tolist(), bare.event_index.tolist()) == ([0], [0], [-1])
        assert (bare.sequence.tolist(), bare.forward_thread.tolist(), bare.arguments[0]) == ([-1], [0], "")
    ids = Args(external_id=1, record_function_id=2, ev_idx=3, sequence=4, forward_thread=5)
    row = ops(op(args=ids, pid=6, tid=7))
    columns = (row.external_id, row.rf_id, row.event_index, row.sequence, row.forward_thread, row.process, row.thread)
    assert [column.tolist() for column in columns] == [[number] for number in range(1, 8)]


def test_annotations_are_known_by_their_category_and_ops_that_still_ran_are_noted() -> None:
    rows = ops(op(), op(cat="user_annotation"), op(cat="User_Annotation"), op(cat="User"))
    assert rows.annotation.tolist() == [False, True, True, True]
    events = read([of("cpu_op", finished=False), of("cpu_op", finished=True), of("cpu_op"), op()])
    assert events.oddities.without_zeros() == {Reason.STILL_RUNNING: 1}


def test_arguments_are_lists_where_they_were_recorded_and_asked_for() -> None:
    recorded = Args(input_dims=Raw(b"[[2]]"), input_types=Raw(b'["float"]'), concrete_inputs=Raw(b'[""]'))
    bare = Args(input_dims=Raw(b"[[2]]"), input_types=Raw(b'"none"'))
    rows = ops(op(args=recorded), op(args=bare), op(), arguments=True).arguments
    assert msgspec_json.decode(rows[0]) == {"values": [""], "shapes": [[2]], "types": ["float"]}
    assert msgspec_json.decode(rows[1]) == {"values": [], "shapes": [[2]], "types": []}
    assert rows[2] == ops(op(args=recorded)).arguments[0] == ""


def test_communication_is_told_by_name_collective_or_group_and_outlives_its_piece() -> None:
    rows = [op(), op(name="nccl:all_reduce"), of("cpu_op", collective=""), of("cpu_op", group_name=""), op(name=None)]
    events = read([op()], rows)
    assert sorted(events.rows[Role.OP].communication.records()) == [2, 3, 4]
    args = Args(input_dims=Raw(b"[[2]]"), input_types=Raw(b"[1]"), concrete_inputs=Raw(b"[3]"))
    (kept,) = read([op(name="nccl:send", args=args)]).rows[Role.OP].communication.records().values()
    assert [bytes(text) for text in (kept.input_dims, kept.input_types, kept.concrete_inputs)] == [
        b"[[2]]", b"[1]", b"[3]"
    ]  # fmt: skip
    (none,) = read([op(name="nccl:send")]).rows[Role.OP].communication.records().values()
    assert none == kineto.Args()


def test_an_activity_is_on_the_device_and_stream_that_it_tells_else_on_those_of_its_row() -> None:
    rows = activities(op(cat="Kernel", pid=3, tid=5), op(cat="kernel", pid=3, tid="stream 5", args=Args()))
    assert (rows.device.tolist(), rows.stream.tolist(), rows.process.tolist()) == ([3, 3], [5, 5], [3, 3])
    assert (rows.correlation.tolist(), rows.external_id.tolist()) == ([0, 0], [0, 0])
    assert (rows.graph_node.tolist(), rows.size.tolist(), rows.category[0]) == ([-1, -1], [-1, -1], "kernel")
    rows = activities(op(cat="kernel", pid=3, tid=5, args=Args(device=0, stream=0, graph_node=0)))
    assert (rows.device.tolist(), rows.stream.tolist(), rows.graph_node.tolist()) == ([0], [0], [0])


@pytest.mark.parametrize(
    ("args", "size"), [({"bytes": 0, "size": 9}, 0), ({"bytes": 8}, 8), ({"size": 9}, 9), ({"size": 0}, 0)]
)
def test_the_size_of_a_copy_is_in_bytes_or_else_in_size(args: dict[str, int], size: int) -> None:
    assert activities(of("gpu_memcpy", **args)).size.tolist() == [size]


def test_calls_event_records_and_synchronisations_have_the_ids_that_they_say() -> None:
    events = read([of("cuda_runtime"), of("cuda_runtime", correlation=3, external_id=4), of("cuda_event")])
    found = events.rows[Role.CALL].table(PADDED)
    assert (found.correlation.tolist(), found.external_id.tolist()) == ([0, 3], [0, 4])
    records = events.rows[Role.EVENT_RECORD].table(PADDED)
    assert [records.correlation.tolist(), records.stream.tolist(), records.event.tolist()] == [[0], [-1], [-1]]
    row = syncs(of("cuda_sync"))
    columns = (row.device, row.stream, row.wait_stream, row.record_correlation, row.event)
    assert [column.tolist() for column in columns] == [[-1]] * 5
    assert (row.correlation.tolist(), row.kind[0]) == ([0], "aten::mm")


def test_the_largest_number_of_32_bits_stands_for_all_streams() -> None:
    largest = (1 << 32) - 1
    every = syncs(
        *(of("cuda_sync", sync_kind="Sync", stream=n, wait_stream=n, wait_event=n, wait_record=n)
          for n in (largest - 1, largest, largest + 1))
    )  # fmt: skip
    for streams in (every.stream, every.wait_stream, every.event):
        assert streams.tolist() == [largest - 1, -1, largest + 1]
    assert every.record_correlation.tolist() == [largest - 1, largest, largest + 1]
    assert every.kind[0] == "Sync"


def test_device_queues_tell_of_waiting() -> None:
    row = of("kernel", device=None, stream=1, wait_stream=2, queue_sequence=3)
    row.name, row.pid = "event_wait", 4
    events = read([row, op(cat="kernel", name="event_record", pid=4, args=Args(device=0))])
    found = events.rows[Role.DEVICE_WAIT].table(PADDED)
    columns = (found.device, found.stream, found.awaited, found.sequence)
    assert [column.tolist() for column in columns] == [[4, 0], [1, -1], [2, -1], [3, -1]]
    assert events.rows[Role.ACTIVITY].count == 0


@pytest.mark.parametrize("far_us", [4e13, -4e13, 2e15])
def test_rows_of_another_year_than_the_others_are_left_out_and_counted(t, tmp_path, far_us):
    for _ in range(3):
        with t.op("aten::mm"):
            t.launch("kernel")
    rows = t.device_trace()
    far = [row for row in rows["traceEvents"] if row["ph"] == "X"][-1]
    far["ts"] += far_us
    device = tmp_path / "device.json"
    device.write_text(json.dumps(rows))
    trace = read_device_trace(str(device))
    assert len(trace.activities.start) == 2
    assert trace.skipped[WITHOUT_TIME] == 1


@pytest.mark.parametrize(
    ("at_0", "others", "is_lost"),
    [
        ((0,), (9, 9, 9), True),
        ((0,), (9, 9, 20), False),
        ((1,), (9, 9, 9), False),
        ((0, 1), (9, 9, 9), True),
        ((), (9,), False),
    ],
)
def test_rows_at_0_are_not_timed_if_one_lasts_no_time_and_all_others_are_further_away_than_they_last(
    at_0: tuple[int, ...], others: tuple[int, ...], is_lost: bool
) -> None:
    ops = [OpRow(0, end) for end in at_0] + [OpRow(start, start + 2) for start in others]
    trace = within_a_recording(device_trace(ops))
    assert len(trace.ops.start) == len(ops) - is_lost * len(at_0)
    assert (trace.skipped[WITHOUT_TIME], len(trace.notes)) == (is_lost * len(at_0), is_lost)


def test_a_trace_most_of_whose_ops_or_activities_have_no_time_is_refused() -> None:
    ops, ran = [OpRow(9, 10)] * 3, [ActivityRow(0, 0)] * 2 + [ActivityRow(9, 10)]
    with pytest.raises(DataError, match="2 of 3 activities have no time"):
        within_a_recording(device_trace(ops, activities=ran))


@pytest.mark.parametrize("sign", [1, -1])
def test_rows_begin_at_most_a_year_from_the_middle_one(sign: int) -> None:
    middle = LONGEST_RECORDING
    farthest = middle + sign * LONGEST_RECORDING
    ops = [OpRow(start, start + 5) for start in (farthest, farthest + sign, middle, middle, middle)]
    trace = within_a_recording(device_trace(ops, recording_start=farthest))
    assert trace.ops.start.tolist() == [farthest, middle, middle, middle]
    assert trace.recording_start == farthest
    assert within_a_recording(device_trace(ops, recording_start=farthest + sign)).recording_start is None


@pytest.mark.parametrize(
    ("recorded", "bytes_per_second"),
    [
        (1.5, 1_500_000_000), (3, 3_000_000_000), (1e-9, 1), (0, -1), (-1, -1), (1e9, -1), ("fast", -1), (True, -1),
        (None, -1),
    ],
)  # fmt: skip
def test_a_copy_has_a_speed_above_zero_that_memory_can_reach(recorded: Any, bytes_per_second: int) -> None:
    """The trace records it in GB/s."""
    assert activities(of("gpu_memcpy", bandwidth=recorded)).bandwidth.tolist() == [bytes_per_second]


def arrow(number: int, thread: int = 1, process: int = 1, *, phase: str = "s", category: str = "ac2g") -> kineto.Event:
    return kineto.Event(ph=phase, cat=category, id=number, pid=process, tid=thread)


def repeated(*pieces: list[kineto.Event]) -> int:
    return read(*pieces).flows.repeated()


def test_arrows_that_start_again_on_another_thread_or_process_are_counted() -> None:
    once = [arrow(number) for number in range(5)]
    assert repeated(once, [arrow(number, thread=2) for number in range(3)]) == 3
    assert repeated(once, [arrow(number, process=2) for number in range(4)]) == 4
    assert repeated([arrow(1), arrow(2)], [arrow(1), arrow(2)]) == repeated() == repeated([]) == 0


@pytest.mark.parametrize(("again", "counted"), [(1, 0), (2, 2)])
def test_a_tenth_of_the_arrows_may_start_again_by_chance(again: int, counted: int) -> None:
    starts = [arrow(number) for number in range(9 if again == 1 else 10)]
    assert repeated([*starts, *(arrow(number, thread=2) for number in range(again))]) == counted


@pytest.mark.parametrize("other", [{"phase": "f"}, {"category": "fwdbwd"}])
def test_ends_and_arrows_of_other_kinds_are_not_counted(other: dict[str, str]) -> None:
    assert repeated([arrow(1), arrow(1, thread=2, **other)]) == 0
