"""What is a device trace, by what the file holds, and a rank's rows taken out of a merged one, by rows made by hand."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import execgraph as eg
import pytest
from execgraph.linker.joining import launching_calls
from execgraph.linker.lost_records import lost_records
from execgraph.linker.readers import DeviceTrace, merging_signs, one_rank, read_device_trace
from execgraph.linker.readers.device_trace import described, ranks_of_processes
from execgraph.linker.readers.repeated_rows import in_order
from execgraph.schema.errors import DataError
from execgraph.schema.graph import STEP_START
from execgraph.schema.linked import LARGEST_ID, LONGEST_RECORDING, MergedRank, kineto
from execgraph.schema.reasons import Reason
from msgspec import Raw
from support.builder.timeline import TraceBuilder
from support.tables import ActivityRow, CallRow, EventRecordRow, OpRow, SyncRow, device_trace


def read(tmp_path: Path, content: Any, **options: bool) -> DeviceTrace:
    path = tmp_path / "device.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_device_trace(str(path), **options)


def small_run(**args: Any) -> dict[str, Any]:
    t = TraceBuilder()
    with t.op("aten::mm", args=args):
        t.launch("sgemm", **args)
    return t.device_trace()


def test_a_host_trace_in_its_place_is_named(t: TraceBuilder, tmp_path: Path) -> None:
    t.leaf("aten::mm", 5)
    with pytest.raises(DataError, match=r"device.json: a host trace \(it has nodes\); expected a Kineto device trace"):
        read(tmp_path, t.host_trace())


@pytest.mark.parametrize("block", [512, 4096])
def test_a_file_into_which_two_processes_wrote_at_once_is_named(tmp_path: Path, block: int) -> None:
    texts = []
    for pid, name in ((1000, "aten::mm"), (2000, "aten::addmm")):
        t = TraceBuilder(pid=pid)
        for _ in range(99):
            t.leaf(name, 5)
        texts.append(json.dumps(t.device_trace()))
    parts = (texts[at // block % 2][at : at + block] for at in range(0, len(texts[0]), block))
    with pytest.raises(DataError, match=r"processes 1000, 2000 wrote into it at once.* with a file for each rank"):
        read(tmp_path, "".join(parts))


def test_a_file_without_events_is_no_trace_and_its_damage_is_named_once(tmp_path: Path) -> None:
    for content in ({"traceEvents": []}, []):
        with pytest.raises(DataError, match="holds no host op and no device activity; expected a Kineto trace"):
            read(tmp_path, content)
    with pytest.raises(DataError, match="expected a Kineto device trace"):
        read(tmp_path, {"other": 1})
    with pytest.raises(DataError, match="expected a Kineto trace with traceEvents; ") as refused:
        read(tmp_path, '{"traceEvents": [')
    assert str(refused.value).count("device.json") == 1


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    assert len(read(tmp_path, small_run()["traceEvents"]).activities.start) == 1


def test_lists_that_cannot_be_read_and_arguments_that_are_no_lists_are_counted(tmp_path: Path) -> None:
    known = read(tmp_path, small_run(**{"Process Group Ranks": [0, 1], "Collective name": "allreduce"}))
    assert Reason.UNREADABLE_LISTS not in known.oddities
    torn = read(tmp_path, small_run(**{"Process Group Ranks": "[0, {}", "Collective name": "allreduce"}))
    assert torn.oddities[Reason.UNREADABLE_LISTS] > 0
    lists = small_run(**{"Input Dims": [[2]], "Input type": ["float"]})
    assert Reason.ARGUMENTS_NO_LISTS not in read(tmp_path, lists, arguments=True).oddities
    others = small_run(**{"Input Dims": [[2]], "Input type": 5, "Concrete Inputs": {}})
    assert read(tmp_path, others, arguments=True).oddities[Reason.ARGUMENTS_NO_LISTS] == 2


def test_streams_of_two_contexts_with_one_number_are_two(tmp_path: Path) -> None:
    t = TraceBuilder()
    with t.op("aten::mm"):
        for _ in range(3):
            t.launch("gemmA", stream=7, duration=500)
            t.launch("gemmB", stream=9, duration=500)
        t.stream_synchronize(9)
    apart = t.device_trace()
    changes, found = {"gemmB": 0.01}, [eg.link(None, read(tmp_path, apart)).to_graph()]
    for row in apart["traceEvents"]:
        if row.get("args", {}).get("stream") == 9:
            row["args"] |= {"stream": 7, "context": 2}
    device = read(tmp_path, apart)
    assert device.oddities[Reason.STREAMS_OF_CONTEXTS] == 3
    assert device.activities.stream.tolist() == [7, 1000] * 3
    assert device.syncs.stream.tolist() == [1000]
    found.append(eg.link(None, device).to_graph())
    separate, same_number = (graph.what_if(changes).after.makespan_us for graph in found)
    assert separate == same_number > 1_500


def test_steps_whose_numbers_repeat_on_a_thread_are_steps_of_their_own(tmp_path: Path) -> None:
    t = TraceBuilder()
    for number in (4, 5, 4, 5, 5):
        with t.annotation(f"ProfilerStep#{number}"), t.op("aten::mm"):
            t.launch("gemm", duration=100)
        t.work(20)
    device = read(tmp_path, t.device_trace())
    assert device.oddities[Reason.REPEATED_STEPS] == 3
    host, _ = t.write(tmp_path)
    for trace in (eg.link(None, device), eg.link(str(host), device)):
        graph = trace.to_graph()
        assert sorted(name for name in graph.metadata if name.startswith(STEP_START)) == [
            f"{STEP_START}{number}" for number in range(4, 9)
        ]
    assert eg.link(str(host), device).report.matched == len(device.ops.start)


@pytest.mark.parametrize(
    ("numbers", "said"), [((1, 0, 3), "step 2 is"), ((1, 0, 0, 4), "steps 2 to 3 are"), ((1, 4), "")]
)
def test_steps_that_are_not_marked_though_ops_ran_are_said(tmp_path: Path, numbers: tuple[int, ...], said: str) -> None:
    t = TraceBuilder()
    for number in numbers:
        with t.annotation(f"ProfilerStep#{number}") if number else nullcontext(), t.op("aten::mm"):
            t.work(20)
        t.work(20)
    notes = read(tmp_path, t.device_trace()).notes
    assert [note.partition(": ")[2] for note in notes] == [
        f"{said} not marked, though ops ran there, and count to step 1"
    ] * bool(said)


def place(base_time: Any = None, **distributed: Any) -> dict[str, Any]:
    return described(kineto.DeviceFile(distributed=kineto.DistributedInfo(**distributed), base_time=base_time))


def without_profiler(top: kineto.DeviceFile) -> tuple[int, int]:
    found = described(top)
    return found["step_without_profiler_ns"], found["data_wait_without_profiler_ns"]


@pytest.mark.parametrize(("rank", "found"), [(0, 0), ("5", 5), (-1, None), (None, None), ("none", None)])
def test_a_rank_is_a_number_from_zero(rank: Any, found: int | None) -> None:
    assert place(rank=rank)["rank"] == found


@pytest.mark.parametrize(("size", "found"), [(1, 1), ("8", 8), (0, None), (-1, None), (None, None)])
def test_a_world_has_at_least_one_rank(size: Any, found: int | None) -> None:
    assert place(world_size=size)["world_size"] == found


def test_groups_are_those_that_are_records_and_a_header_may_say_nothing() -> None:
    assert place(pg_config=[{"pg_name": "0"}, 7, {}])["groups"] == [{"pg_name": "0"}, {}]
    assert place(pg_config="none")["groups"] == []
    nothing = {"rank": None, "world_size": None, "base_time_ns": 0, "groups": [], "device_names": {}}
    unknown = {"step_without_profiler_ns": -1, "data_wait_without_profiler_ns": -1, "measured": {}, "window": ""}
    assert described(kineto.DeviceFile()) == nothing | unknown
    assert place(base_time="12")["base_time_ns"] == 12
    assert [described(kineto.DeviceFile(window=said))["window"] for said in ("device", 7)] == ["device", ""]


def test_what_capture_measured_has_the_names_of_graphs_and_the_median_is_the_length_of_a_step() -> None:
    steps = {"count": 19, "median": 4.5, "p10": 4, "p90": "x"}
    top = kineto.DeviceFile(
        step_without_profiler=5, steps_without_profiler=steps, recording_cost={"op": 0.44}, window="device"
    )
    found = described(top)
    assert found["step_without_profiler_ns"] == 4500
    assert found["measured"] == {"recorded_alone": 1, "steps_measured": 19, "step_p10_ns": 4000, "recorded_op_ns": 440}


def test_devices_have_numbers_from_zero_and_names() -> None:
    devices = [
        {"id": 0, "name": "A100"}, {"id": "1", "name": "H100"}, {"id": -1, "name": "x"}, {"id": 2}, {"name": "x"}, 7,
    ]  # fmt: skip
    assert described(kineto.DeviceFile(devices=devices))["device_names"] == {0: "A100", 1: "H100"}
    assert described(kineto.DeviceFile(devices="none"))["device_names"] == {}


@pytest.mark.parametrize(
    ("recorded", "found"),
    [(3662.9, 3_662_900), (5, 5000), (0.001, 1), (0, -1), (-3, -1), ("3", -1), (1e300, -1), (None, -1)],
)
def test_the_length_of_a_step_is_a_time_above_zero(recorded: Any, found: int) -> None:
    assert without_profiler(kineto.DeviceFile(step_without_profiler=recorded)) == (found, -1)


def test_a_step_is_shorter_than_the_longest_recording() -> None:
    for step_us, is_known in ((LONGEST_RECORDING // 1000 - 1, True), (LONGEST_RECORDING // 1000 + 1, False)):
        step, _ = without_profiler(kineto.DeviceFile(step_without_profiler=step_us))
        assert (step > 0) == is_known


@pytest.mark.parametrize(("recorded", "found"), [(0.5, 500), (0, 0), (5, 5000), (5.1, -1), (-1, -1), ("x", -1)])
def test_a_wait_for_data_is_a_part_of_its_step(recorded: Any, found: int) -> None:
    top = kineto.DeviceFile(step_without_profiler=5, data_wait_without_profiler=recorded)
    assert without_profiler(top) == (5000, found)
    alone = kineto.DeviceFile(data_wait_without_profiler=recorded)
    assert without_profiler(alone) == (-1, -1)


OP = OpRow(1500, 2500, rf_id=3, external_id=4, event_index=5)
CALL = CallRow(1500, 2500, correlation=3)
ACTIVITY = ActivityRow(1500, 2500, correlation=3, graph_node=4)
SYNC = SyncRow(1500, 2500)
TABLES = {"ops": OP, "calls": CALL, "activities": ACTIVITY, "syncs": SYNC}


def left(table: str, *rows: Any) -> tuple[int, int]:
    """How many of the rows are left, and how many were counted as duplicates."""
    trace = in_order(device_trace(**{table: rows}))
    return len(getattr(trace, table).start), trace.skipped[Reason.RECORDED_TWICE]


@pytest.mark.parametrize("table", TABLES)
def test_of_equal_rows_the_first_is_left_wherever_they_stand(table: str) -> None:
    row = TABLES[table]
    assert left(table, row, row) == (1, 1)
    assert left(table, row, row._replace(start=7), row, row._replace(start=9999), row) == (3, 2)
    assert left(table, row) == (1, 0)
    assert left(table) == (0, 0)


@pytest.mark.parametrize("sizes", [(1024, -1), (-1, 1024), (7, 8)])
def test_of_equal_rows_the_first_of_the_file_is_left_whatever_else_they_say(sizes):
    trace = in_order(device_trace(activities=[ACTIVITY._replace(size=size) for size in sizes]))
    assert trace.activities.size.tolist() == [sizes[0]]


def differing() -> list[tuple[str, str]]:
    told_apart = {
        "ops": ("name", "process", "thread", "rf_id"),
        "calls": ("name", "process", "thread", "correlation"),
        "activities": ("start", "end", "name", "process", "device", "stream", "correlation", "graph_node"),
        "syncs": (
            *("start", "end", "kind", "process", "device", "stream"),
            *("correlation", "wait_stream", "record_correlation", "event"),
        ),
    }
    return [(table, name) for table, names in told_apart.items() for name in names]


@pytest.mark.parametrize(("table", "name"), differing())
def test_rows_that_differ_in_anything_are_both_left(table: str, name: str) -> None:
    row = TABLES[table]
    other = row._replace(**{name: "other" if isinstance(getattr(row, name), str) else getattr(row, name) + 1})
    assert left(table, row, other) == left(table, other, row) == (2, 0)


def test_rows_without_an_id_are_no_duplicates() -> None:
    for row, count in ((OpRow(), 0), (OpRow(rf_id=1), 1), (OpRow(external_id=1), 1), (OpRow(event_index=0), 1)):
        assert left("ops", row, row) == (2 - count, count)
    for table, row in (("calls", CALL), ("activities", ACTIVITY)):
        assert left(table, *[row._replace(correlation=0)] * 2) == (2, 0)
        assert left(table, *[row._replace(correlation=-1)] * 2) == (1, 1)


def test_an_op_call_or_activity_that_was_recorded_again_at_almost_the_same_time_is_a_duplicate():
    for table, row in (("ops", OP), ("ops", OpRow(1500, 2500)), ("calls", CALL)):
        assert left(table, row, row._replace(start=1507, end=2507), row._replace(start=9999, end=10999)) == (2, 1)
        assert left(table, row, row._replace(start=2007, end=3007)) == (2, 0)
    first, copy = (ActivityRow(at, at + 1000, correlation=3, name="gemm") for at in (2000, 2007))
    for call, count in (("cudaLaunchKernel", 1), ("cudaGraphLaunch", 2)):
        trace = in_order(device_trace(calls=[CALL._replace(name=call)], activities=[first, copy]))
        assert len(trace.activities) == count
    stream = in_order(device_trace(calls=[CALL], activities=[first, copy._replace(stream=9)]))
    (said,) = lost_records(stream, launching_calls(stream.activities, stream.calls)).contradictions(stream)
    assert said.what.startswith("1 of 1 launch calls of one kernel have several")


def test_duplicates_are_found_behind_others_and_those_of_all_tables_are_counted_together() -> None:
    rows = [CALL, CALL._replace(correlation=9), CALL, CALL._replace(end=9000), CALL._replace(correlation=9)]
    assert left("calls", *rows) == (3, 2)
    trace = in_order(device_trace(**{table: [row, row] for table, row in TABLES.items()}))
    assert trace.skipped == {Reason.RECORDED_TWICE: 4}


def test_in_whole_microseconds_equal_activities_of_a_launch_of_several_are_kept() -> None:
    first, later = ActivityRow(1000, 2000, correlation=3), ActivityRow(5000, 6000, correlation=3)
    assert left("activities", first, first, later) == (3, 0)
    assert left("activities", first, first) == (1, 1)
    assert left("activities", first, first, later._replace(correlation=4)) == (2, 1)
    first, later = ActivityRow(1000, 2000, correlation=3), ActivityRow(5001, 6000, correlation=3)
    assert left("activities", first, first, later) == (2, 1)


def calls(*rows: CallRow) -> DeviceTrace:
    return device_trace(calls=rows)


def labelled(*ranks: int) -> DeviceTrace:
    return device_trace(labels=[(100 + rank, f"rank {rank}") for rank in ranks])


def test_a_label_may_tell_the_rank_of_its_process() -> None:
    for text in ("rank 3", "Rank: 3", "python rank3", "rank_=#3 (host)", "", "CPU", "GPU 3", "frank 3", "rank"):
        expected = {7: {3}} if "ank" in text and text not in ("frank 3", "rank") else {}
        assert ranks_of_processes(device_trace(labels=[(7, text)])) == expected


def test_a_trace_without_signs_is_itself_and_records_tell_more_than_labels() -> None:
    records = [MergedRank(rank=0, processes={7: 1, 8: 2}), MergedRank(rank=1, processes={8: 2})]
    assert ranks_of_processes(device_trace(labels=[(7, "rank 5")], merged=records)) == {7: {0}, 8: {0, 1}}
    trace = labelled(3)
    assert one_rank(trace, None) is trace and one_rank(trace, 9) is trace


def test_several_labels_are_a_sign_and_so_are_records_instead() -> None:
    assert merging_signs(labelled(3)) == []
    assert merging_signs(labelled(3, 4)) == ["2 rank labels"]
    trace = labelled(3, 4)
    trace.merged, trace.merge_marks = [MergedRank(rank=0)], ["a mark"]
    assert merging_signs(trace) == ["a mark", "1 ranks recorded as merged"]


def test_a_correlation_launched_by_several_processes_but_not_by_a_device_is_a_sign_and_is_not_counted_again() -> None:
    first, other = CallRow(correlation=5, process=1), CallRow(correlation=5, process=2)
    assert merging_signs(calls(first, other)) == ["1 correlations launched by several processes"]
    assert merging_signs(calls(first, other._replace(correlation=6))) == []
    assert merging_signs(calls(first._replace(correlation=0), other._replace(correlation=0))) == []
    assert merging_signs(calls(*(CallRow(100 * number, 100 * number + 10) for number in range(9)))) == []
    rows = [CallRow(0, 10, 5, process=1), CallRow(20, 30, 5, process=2), CallRow(40, 50, 5, process=2)]
    assert merging_signs(calls(*rows)) == ["1 correlations launched by several processes"]
    pair = [CallRow(correlation=5, process=1), CallRow(correlation=5, process=2)]
    on_device = device_trace(calls=pair, activities=[ActivityRow(process=2)])
    assert merging_signs(on_device) == []
    with_ops = device_trace(ops=[OpRow(process=2)], calls=pair, activities=[ActivityRow(process=2)])
    assert merging_signs(with_ops) == ["1 correlations launched by several processes"]


def test_more_than_a_tenth_of_calls_after_another_with_their_correlation_is_a_sign() -> None:
    once = [CallRow(100 * number, 100 * number + 10, number) for number in range(1, 9)]
    again = [CallRow(2000, 2010, 1), CallRow(3000, 3010, 2)]
    assert merging_signs(calls(*once, once[0]._replace(correlation=20), again[0])) == []
    assert merging_signs(calls(*once, *again)) == ["2 correlations launched more than once"]


@pytest.mark.parametrize(("start", "end", "is_sign"), [(10, 15, True), (9, 15, False), (2, 8, False), (12, 12, False)])
def test_a_call_is_after_another_if_it_begins_when_that_has_ended_and_lasts(start, end, is_sign):
    found = merging_signs(calls(CallRow(0, 10, 5), CallRow(start, end, 5)))
    assert found == (["1 correlations launched more than once"] if is_sign else [])


@pytest.mark.parametrize(("count", "ending"), [(16, r"14, 15 \("), (17, r"14, 15 … \(")])
def test_up_to_sixteen_ranks_are_listed(count: int, ending: str) -> None:
    with pytest.raises(DataError, match=ending):
        one_rank(labelled(*range(count)), None)


def test_a_rank_has_the_rows_of_its_processes_and_what_they_launched_elsewhere() -> None:
    trace = device_trace(
        ops=[OpRow(process=100), OpRow(process=101)],
        calls=[*(CallRow(correlation=number, process=100) for number in (0, 1)), CallRow(correlation=6, process=101)],
        activities=[
            *(ActivityRow(correlation=number, process=0, stream=number) for number in (0, 1, 6)),
            *(ActivityRow(correlation=number, process=102, stream=20 + number) for number in (0, 1)),
        ],
        syncs=[SyncRow(correlation=1, process=0, stream=1), SyncRow(correlation=6, process=0, stream=6)],
        event_records=[EventRecordRow(process=100, event=1), EventRecordRow(process=101, event=2)],
        labels=[(100, "rank 0"), (101, "rank 1"), (102, "rank 2")],
        merge_marks=["a mark"],
    )
    taken = one_rank(trace, 0)
    assert (taken.rank, taken.labels, taken.merged, taken.merge_marks, taken.notes) == (0, [], [], [], [])
    assert (taken.processes, taken.activities.stream.tolist()) == ([100], [1])
    assert (taken.syncs.stream.tolist(), taken.event_records.event.tolist()) == ([1], [1])
    assert one_rank(trace, 2).activities.stream.tolist() == [20, 21]
    trace.skipped["damaged"] = 1
    assert one_rank(trace, 0).notes == ["device.json: what was left out of it is counted over all its ranks"]


RECORD = MergedRank(
    rank=3,
    time_shift_ns=50,
    id_offset=100,
    processes={1000: 10, 5: 0},
    threads={77: 7},
    metadata=Raw(b'{"distributedInfo": {"rank": 3, "world_size": 8}, "baseTimeNanoseconds": 9}'),
)


def restored(**other: object) -> DeviceTrace:
    large = 100 + LARGEST_ID
    return one_rank(
        device_trace(
            ops=[OpRow(60, 70, "mine", process=1000, thread=77), OpRow(name="of another", process=2000)],
            calls=[CallRow(60, 70, number, process=1000, thread=5) for number in (101, 100, large, large + 1)],
            activities=[
                ActivityRow(80, 90, 101, process=5, device=5, stream=77),
                ActivityRow(80, 90, 101, process=5, device=9, stream=7),
            ],
            syncs=[SyncRow(60, 70, process=5, correlation=101, record_correlation=-1)],
            event_records=[EventRecordRow(process=5, correlation=102)],
            merged=[RECORD, MergedRank(rank=4, processes={2000: 0})],
            **other,
        ),
        3,
    )


def test_what_merging_did_to_a_rank_is_undone() -> None:
    own = restored(recording_start=60)
    assert (own.rank, own.world_size, own.base_time_ns, own.recording_start) == (3, 8, 9, 10)
    assert (own.ops.process.tolist(), own.ops.thread.tolist(), own.ops.name.table) == ([10], [7], ["mine"])
    assert (own.ops.start.tolist(), own.ops.end.tolist()) == ([10], [20])
    assert own.calls.correlation.tolist() == [1, 100, LARGEST_ID, 101 + LARGEST_ID]
    assert own.calls.thread.tolist() == [5] * 4
    assert (own.activities.process.tolist(), own.activities.device.tolist()) == ([0, 0], [0, 9])
    assert (own.activities.stream.tolist(), own.activities.start.tolist()) == ([-1, 7], [30, 30])
    assert (own.syncs.correlation.tolist(), own.syncs.record_correlation.tolist()) == ([1], [-1])
    assert own.event_records.correlation.tolist() == [2]


def test_where_recording_began_stays_unknown() -> None:
    assert restored().recording_start is None
