"""Activities find the call that launched them, calls the op around them, and whatever finds nothing is counted.

What the report counts of a part: findings of the calls in it, those of no call, and what gloo leaves open.
"""

import json
from contextlib import nullcontext
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.linker.contradictions import contradictions_in_traces
from execgraph.linker.link import NO_PYTHON, link, report_of
from execgraph.linker.lost_records import lost_records
from execgraph.linker.match import are_ops
from execgraph.linker.readers import DeviceTrace, HostTrace, read_device_trace, read_host_trace
from execgraph.linker.readers.device_rows import RecordedDependencies
from execgraph.linker.waits import Findings
from execgraph.linker.windows import EVERYTHING, TracePart, Window
from execgraph.schema.columns import CallRows
from execgraph.schema.errors import DataError
from execgraph.schema.graph import DependencyKind
from execgraph.schema.linked import LinkedTrace, LinkReport, ProcessGroup
from execgraph.schema.reasons import AnyReason, Reason
from execgraph.tools.replay import parse_scale, replay
from hypothesis import given, settings, strategies as st
from support.builder.records import LAYOUTS
from support.builder.timeline import TraceBuilder
from support.references import Call, Op, linked_of
from support.runs import VERSIONS, Step, convert_linked, convert_run, launchers, link_run, play, read_pair, two_threads
from support.tables import NodeRow, OpRow, column, device_trace, host_trace

LAUNCH, STREAM_ORDER = DependencyKind.LAUNCH, DependencyKind.STREAM_ORDER


# The promise of the whole project, in one small step


@pytest.mark.parametrize("torch", LAYOUTS)
def test_a_simple_training_step(torch: str) -> None:
    """sgemm 2 depends on sgemm 1 and on its launcher, a collective's kernel on the kernels that wrote its buffer."""
    t = TraceBuilder(torch=torch, rank=0, world_size=2)
    x, weight, hidden, gradient = (t.tensor() for _ in range(4))
    group = t.group([0, 1])
    with t.op("aten::mm", inputs=[x, weight], outputs=[hidden]):
        t.work(5)
        t.launch("sgemm 1", duration=20)
    with t.op("aten::addmm", inputs=[hidden, weight], outputs=[gradient]):
        t.work(5)
        t.launch("sgemm 2", duration=20)
    t.collective("allreduce", group=group, tensors=[gradient], kernel="ncclDevKernel_AllReduce")

    nodes = convert_run(t)
    assert nodes.follows("sgemm 1") == {"aten::mm": LAUNCH}
    assert nodes.follows("sgemm 2") == {"aten::addmm": LAUNCH, "sgemm 1": STREAM_ORDER}
    assert nodes.follows("ncclDevKernel_AllReduce")["sgemm 2"] & DependencyKind.EVENT_WAIT
    assert nodes.replay_error() == 0


@pytest.mark.parametrize("torch", LAYOUTS)
def test_a_collective_follows_the_writer_of_its_buffer_where_no_synchronisation_was_recorded(torch: str) -> None:
    t = TraceBuilder(torch=torch, rank=0, world_size=2)
    gradient = t.tensor()
    group = t.group([0, 1])
    with t.op("aten::mm", outputs=[gradient]):
        t.launch("sgemm", duration=20)
    t.idle(20)
    t.collective("allreduce", group=group, tensors=[gradient], kernel="ncclDevKernel_AllReduce", after=None)
    assert convert_run(t).follows("ncclDevKernel_AllReduce")["sgemm"] == DependencyKind.TENSOR_FLOW


# Calls and activities


@pytest.mark.parametrize("torch", LAYOUTS)
def test_the_launcher_is_the_innermost_op_around_the_call(torch: str) -> None:
    t = TraceBuilder(torch=torch)
    with t.op("aten::linear"):
        t.work(1)
        with t.op("aten::addmm"):
            t.work(1)
            t.launch("sgemm")
        t.work(1)
        t.launch("bias")
    found = launchers(link_run(t))
    assert found == {"sgemm": ("cudaLaunchKernel", "aten::addmm"), "bias": ("cudaLaunchKernel", "aten::linear")}


@pytest.mark.parametrize("call", ["cuLaunchKernelEx", "hipExtModuleLaunchKernel", "someVendorSubmitV7"])
def test_any_call_launches_whatever_its_name(t: TraceBuilder, call: str) -> None:
    with t.op("aten::mm"):
        t.launch("k", call=call)
    assert launchers(link_run(t)) == {"k": (call, "aten::mm")}


def test_a_call_that_starts_at_the_end_of_an_op_is_not_inside_it(t: TraceBuilder) -> None:
    t.leaf("aten::add", 17)
    t.call("cudaStreamIsCapturing", 1)
    assert link_run(t).calls.op_row.tolist() == [-1]


LOST = {
    "sgemm lone sgemm": (1, 0), "sgemm begin lone end sgemm": (0, 0), "lone end sgemm": (0, 0), "sgemm begin lone": (0, 0),
    "lone": (1, 0), "begin end lone sgemm": (1, 0), "sgemm lone": (0, 0), "sgemm lone wait": (1, 0), "sgemm set sgemm": (0, 0),
    "sgemm graph sgemm lone wait": (2, 0), "sgemm sgemm mm mm mm": (0, 3), "sgemm sgemm mm mm": (0, 0),
    "sgemm sgemm mm mm mm wait": (0, 0), "sgemm sgemm on_cpu on_cpu on_cpu": (0, 0),
}  # fmt: skip
"""How many launches lost their work, of kernels of 99 µs, and how many ops run after the device was silent."""
CALLS = {
    "begin": "cudaStreamBeginCapture", "end": "cudaStreamEndCapture_v2", "wait": "cudaDeviceSynchronize",
    "lone": "cudaLaunchKernelExC", "set": "cudaMemsetAsync", "graph": "hipGraphLaunch",
}  # fmt: skip


@pytest.mark.parametrize("story", LOST)
def test_launches_whose_work_was_lost_and_a_silent_device_are_counted(t: TraceBuilder, story: str) -> None:
    for word in story.split():
        with t.op("aten::on_cpu" if word == "on_cpu" else "aten::mm", duration=9):
            _ = t.launch(word, duration=99) if word == "sgemm" else t.call(CALLS[word]) if word in CALLS else None
    report = link_run(t).report
    counts = report.oddities[Reason.LAUNCHES_WITHOUT_ACTIVITY], report.oddities[Reason.OPS_WITHOUT_CALLS]
    assert counts == LOST[story] and any("idle times" in note for note in report.notes) == any(counts)


def silent(t: TraceBuilder, case: str) -> None:
    """Runs, between launches, what ought to call something and does not, or rightly calls nothing."""
    place, shape = "cpu" if "cpu" in case else None, (0, 4) if "empty" in case else (4, 4)
    with t.annotation("inner (dynamo_timed)") if "traced" in case else nullcontext():
        if case.startswith("copy"):
            t.leaf("aten::copy_", 3, inputs=[t.tensor(shape, device=place), t.tensor(shape, device="cpu")])
        elif case.startswith("item"):
            with t.op("aten::_local_scalar_dense", inputs=[t.tensor(())]):
                t.memcpy("DtoH")
                _ = t.stream_synchronize() if "waits" in case else None
        elif case.startswith("relu"):
            for number in range(int(case[-1])):
                with t.op("aten::relu", duration=4, inputs=[t.tensor(shape, device=place)]):
                    _ = t.launch("relu", duration=1) if number % 4 != 2 else None
        elif case.startswith("allreduce"):
            t.collective(group=t.group([0, 1] if "two" in case else [0]))
            t.activities.remove(lost := t.activities[-1])
            t.calls = [call for call in t.calls if call.correlation != lost.correlation]


SILENT = {
    "copy": 1, "copy on cpu": 0, "copy empty": 0, "copy traced": 0, "item": 1, "item waits": 0,
    "relu 8": 2, "relu on cpu 3": 0, "allreduce two": 1, "allreduce one": 0,
}  # fmt: skip
"""How many ops lost their calls."""


@pytest.mark.parametrize("case", SILENT)
def test_ops_that_lost_their_calls_are_counted_and_said(case: str) -> None:
    t = TraceBuilder(rank=0, world_size=2)
    for silence in (False, True, False):
        with t.op("aten::mm", duration=9):
            t.launch("sgemm")
        _ = silent(t, case) if silence else None
    report = link_run(t).report
    assert report.oddities[Reason.OPS_WITHOUT_CALLS] == SILENT[case]
    assert any("lack calls" in note for note in report.notes) == bool(SILENT[case])
    assert convert_run(t).graph.metadata.get("ops_without_calls", 0) == SILENT[case]


GRAPHS = {
    "aaaabbbb aaaabbbb": 0, "aaaabbbb aaaabb": 2, "aaaab aaaa": 0, "aaaabb aaabb": 1, "aaaabbb aaabbbb": 2,
    "aaaacccc aaaabbbbb": 0, "aaaa,aa aaaa,aa": 0, "aaaa,aa aaa,aa": 1, "aaaa aaaa,aa": 0,
}  # fmt: skip
"""How many activities the launches of CUDA graphs, in the two steps of a run, lack."""


@pytest.mark.parametrize("steps", GRAPHS)
def test_replays_of_a_graph_that_lack_activities_of_others_are_counted_and_said(t: TraceBuilder, steps: str) -> None:
    for number, graphs in enumerate(steps.split()):
        with t.annotation(f"ProfilerStep#{number}"):
            for kernels in graphs.split(","):
                t.graph_launch([(kernel, 7, 2) for kernel in kernels])
    report = link_run(t).report
    assert report.oddities[Reason.SHORT_GRAPHS] == GRAPHS[steps]
    assert any("launches of CUDA graphs lack" in note for note in report.notes) == bool(GRAPHS[steps])


# Activities without a call


def test_activities_without_a_call_are_released_as_measured(t: TraceBuilder) -> None:
    with t.op("aten::add", duration=40):
        t.launch("called")
    t.activity("orphan 1", 24, start=20, duration=4)
    t.activity("orphan 2", 24, start=36, duration=4)
    t.activity("from before", 7, start=1, duration=1).correlation = 0
    report = link_run(t).report
    assert (report.oddities[Reason.ACTIVITIES_WITHOUT_CALL], report.oddities[Reason.LAUNCHES_NOT_RECORDED]) == (3, 2)
    assert [note for note in report.notes if "2 of 4 activities have no launch call (from 20.000 to 36.000 µs" in note]
    t.activities.pop()
    nodes = convert_run(t)
    assert nodes.graph.metadata["lost_launches"] == 2
    assert nodes.time("unrecorded host#0") == (0, 20)
    assert nodes.time("unrecorded host#1") == (20, 36)
    assert nodes.follows("orphan 1") == {"unrecorded host#0": LAUNCH}
    assert nodes.follows("orphan 2") == {"unrecorded host#1": LAUNCH, "orphan 1": STREAM_ORDER}
    assert nodes.follows("unrecorded host#1") == {"unrecorded host#0": DependencyKind.PROGRAM_ORDER}


def test_an_activity_without_a_call_that_waited_for_its_turn_was_released_before(t: TraceBuilder) -> None:
    """The backlog when recording began was all there: faster kernels would have followed each other faster."""
    for number in range(10):
        t.activity(f"orphan {number}", 24, start=20 + 52 * number, duration=50)
    t.leaf("aten::add", 40)
    nodes = convert_run(t)
    assert {nodes.time(f"unrecorded host#{number}") for number in range(1, 10)} == {(20, 20)}
    assert nodes.replay_error() == 0
    assert replay(nodes.graph, [parse_scale("orphan=0.1")]).makespan_ns == (20 + 10 * 5 + 9 * 2) * 1000


def test_a_trace_of_activities_without_any_call_converts(t: TraceBuilder) -> None:
    t.leaf("aten::add", 40)
    t.activity("orphan", 24, start=20, duration=4)
    assert convert_run(t).follows("orphan") == {"unrecorded host": LAUNCH}


# Times


def test_whole_microseconds_of_the_epoch_are_exact_nanoseconds() -> None:
    t = TraceBuilder(torch="2.1")
    t.leaf("aten::add", 3)
    linked = link_run(t)
    row = linked.ops.name.table.index("aten::add")
    assert int(linked.ops.end[row]) == 1_700_000_000_000_003 * 1000


def test_an_op_that_outlasts_its_caller_by_more_than_a_microsecond_is_cut_and_counted(t: TraceBuilder) -> None:
    with t.op("outer"):
        inner = t.leaf("inner", 10)
    t.leaf("next", 1)
    inner.end += 5_000
    report = link_run(t).report
    assert report.oddities[Reason.CLIPPED_OPS] == 1
    t = TraceBuilder()
    with t.op("outer"):
        inner = t.leaf("inner", 10)
    inner.end += 1_000
    assert Reason.CLIPPED_OPS not in link_run(t).report.oddities


# What is counted


@pytest.mark.parametrize(("duration", "call"), [(5, "cudaLaunchKernel"), (4.999, "")])
def test_a_call_that_began_after_an_activity_had_ended_did_not_launch_it(t, duration, call):
    t.leaf("aten::empty", 20)
    t.activity("kernel", 7, 15, duration, t.call("cudaLaunchKernel"))
    assert launchers(link_run(t))["kernel"][0] == call


@pytest.mark.parametrize(
    ("host", "device", "note"),
    [
        ("ab", "abab", "the host trace fits the device trace at 2 positions; linked to the first"),
        ("abab", "ab", "the device trace fits the host trace at 2 positions; linked to the first"),
        ("ab", "ab", ""),
    ],
)
def test_a_trace_that_fits_the_other_at_several_positions_is_noted(host: str, device: str, note: str) -> None:
    nodes = host_trace(*(NodeRow(number, name, tid=1) for number, name in enumerate(host, 1)))
    report = link(nodes, device_trace([OpRow(10 * n, 10 * n + 5, name) for n, name in enumerate(device)])).report
    assert report is not None
    assert [text for text in report.notes if " positions; " in text] == ([note] if note else [])


@pytest.mark.parametrize(("mark", "noted"), [(20, True), (0, False)])
def test_a_host_trace_of_which_nothing_is_in_the_recorded_step_is_noted(mark: int, noted: bool) -> None:
    nodes = host_trace(*(NodeRow(number, name, tid=1) for number, name in enumerate("ab", 1)))
    ops = [OpRow(10 * n, 10 * n + 5, name) for n, name in enumerate("abab")]
    step = OpRow(mark, mark + 20, "ProfilerStep#1", annotation=True)
    linked = link(nodes, device_trace([step, *ops], window="device"))
    assert linked.report is not None and (linked.report.matched == 0) == noted
    assert any("no op of the host trace" in note for note in linked.report.notes) == noted


@pytest.mark.parametrize(("asked", "recorded"), [(True, False), (True, True), (False, False)])
def test_modules_that_were_asked_for_and_not_recorded_are_noted(t: TraceBuilder, asked: bool, recorded: bool) -> None:
    with t.module("Net_0") if recorded else nullcontext():
        t.leaf("aten::add", 5)
    linked = link_run(t, modules=asked)
    assert linked.report is not None
    assert any(note.endswith(NO_PYTHON) for note in linked.report.notes) == (asked and not recorded)
    assert (linked.ops.module is not None) == (asked and recorded)


def rows_in_tables(device: DeviceTrace) -> int:
    tables = [table for column in fields(device) if is_dataclass(table := getattr(device, column.name))]
    tables = [table for table in tables if not isinstance(table, RecordedDependencies)]
    return sum(len(getattr(table, "stream" if hasattr(table, "stream") else "start")) for table in tables)


def lost_rows(host: HostTrace | None, device: DeviceTrace, **options: Any) -> dict[str, int]:
    """Rows of both traces that the linked trace does not hold and the report does not count, by table."""
    linked = link(host, device, **options)
    report = linked.report
    kept_without_times = report.dropped.get(Reason.HOST_OPS_WITHOUT_TIMES, 0)
    outside = {
        "host ops": report.dropped[Reason.HOST_OPS_OUTSIDE], "ops": report.dropped[Reason.OPS_OUTSIDE],
        "calls": report.dropped[Reason.CALLS_OUTSIDE], "activities": report.dropped[Reason.ACTIVITIES_OUTSIDE],
        "records": report.dropped[Reason.SYNC_RECORDS_OUTSIDE],
    }  # fmt: skip
    recorded = np.isin(device.syncs.correlation, linked.calls.correlation) & (device.syncs.correlation != 0)
    without_call = report.dropped.get(Reason.SYNC_RECORDS_WITHOUT_CALL, 0)
    only_device = report.oddities.get(Reason.DEVICE_ONLY_OPS, 0)
    host_ops = int(are_ops(host.name).sum()) if host else 0
    lost = {
        "host ops": host_ops - report.matched - kept_without_times - outside["host ops"],
        "ops": len(device.ops.start) - report.matched - only_device - outside["ops"],
        "calls": len(device.calls.start) - len(linked.calls) - outside["calls"],
        "activities": len(device.activities.start) - len(linked.activities) - outside["activities"],
        "records": len(device.syncs.start) - int(recorded.sum()) - without_call - outside["records"],
        "rows of the file": device.read - device.ignored - sum(device.skipped.values()) - rows_in_tables(device),
        "in the graph": len(linked.activities) - int(convert_linked(linked).graph.is_activity.sum()),
    }
    return {table: count for table, count in lost.items() if count}


@given(two_threads, VERSIONS, st.booleans(), st.integers(1, 99))
def test_no_row_of_a_run_is_lost_uncounted(steps: list[Step], torch: str, sync_records: bool, share: int) -> None:
    t = play(steps, threads=2, torch=torch, sync_records=sync_records)
    t.activity("orphan", 20, start=5, duration=1)
    t.leaf("only the host saw this", 2, only="host")
    t.leaf("aten::add", 2)
    host, device = read_pair(t)
    assert lost_rows(host, device) == {}
    assert lost_rows(host, device, window=Window(clock=(0, t.makespan_us * share / 100))) == {}


def pairs_of(folder: Path) -> list[tuple[Path | None, Path]]:
    """The device traces in a folder, each with its host trace if there is one; no copies of files under other names."""
    found: list[tuple[Path | None, Path]] = []
    for device in sorted(folder.rglob("*.json.gz")):
        names = [("kineto", "et"), ("device", "host"), ("simple_add_trace", "simple_add_et")]
        hosts = [device.with_name(device.name.replace(*pair)) for pair in names if pair[0] in device.name]
        if hosts or device.parent.name in ("critical_path", "device_only"):
            found.append((hosts[0] if hosts and hosts[0].exists() else None, device))
    return found


def check_pairs(folder: Path) -> None:
    """Of all pairs where tests are thorough, else of every sixteenth one."""
    for number, (host, device) in enumerate(pairs_of(folder)[:: 1 if settings.default.max_examples > 100 else 16]):
        traces = read_host_trace(str(host)) if host else None, read_device_trace(str(device))
        assert contradictions_in_traces(*traces) == [], device
        assert lost_rows(*traces) == {}, device
        report = link(*traces).report
        assert not traces[0] or (report.agreement_pct >= 98 and report.matched >= 0.97 * report.host_ops), device
        assert not traces[1].skipped.of(Reason.UNREADABLE_ROWS, Reason.UNKNOWN_CATEGORY), device
        step = next((number for number in range(12) if f"ProfilerStep#{number}" in traces[1].ops.name.table), None)
        if step is not None:
            # every other one without its host trace
            parts = (traces[0] if number % 2 else None, traces[1])
            assert lost_rows(*parts, window=Window(steps=(step, step + 1))) == {}, device


def test_no_row_of_our_captures_is_lost_uncounted_and_nothing_in_them_contradicts_itself(data: Path) -> None:
    check_pairs(data)


def test_no_row_of_real_traces_is_lost_uncounted_and_nothing_in_them_contradicts_itself(real_traces: Path) -> None:
    check_pairs(real_traces)


def test_every_synchronisation_record_has_an_outcome(t: TraceBuilder) -> None:
    with t.op("aten::mm"):
        t.launch("k", 7, 20)
        event = t.record_event(stream=7)
        t.wait_event(event, stream=20)
        t.launch("waits", 20, 5)
        t.wait_event(event, stream=20)  # for what is done by then
        t.wait_event(event, stream=24)  # and nothing follows
        t.event_query(event)
        t.event_synchronize(event)
        t.stream_synchronize(20)
        t.device_synchronize()
        t.device_synchronize()
    t.syncs.append(replace(t.syncs[-1], correlation=9_999))
    report = link_run(t).report
    assert report.dropped[Reason.SYNC_RECORDS_WITHOUT_CALL] == 1
    assert report.oddities[Reason.BLOCKS_NOTHING] == 2
    assert sum(report.waits.values()) == len(t.syncs) - 3


# Several ranks merged into one trace


def merged_ranks(folder: Path, *, labelled: bool) -> DeviceTrace:
    """Two ranks' rows in one file, as a merging tool writes them: both launched with the same correlations."""
    rows: list[dict[str, Any]] = []
    for rank, collective in enumerate(("allreduce", "broadcast")):
        t = TraceBuilder(world_size=2, pid=1000 * (rank + 1), device=rank)
        with t.op(f"aten::mm of {rank}"):
            t.launch(f"k of {rank}")
        for _ in range(rank + 1):
            t.collective(collective, group=t.group([0, 1]), kernel="ncclDevKernel_Generic")
        rows += t.device_trace()["traceEvents"]
        label = {"ph": "M", "name": "process_labels", "args": {"labels": f"rank {rank}"}}
        rows += [label | {"pid": pid} for pid in (t.pid, t.device) if labelled]
    path = folder / "merged.json"
    path.write_text(json.dumps({"traceEvents": rows}))
    return read_device_trace(str(path))


def test_several_ranks_in_one_trace_are_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"several ranks.*5 correlations launched by several processes.*own file$"):
        link(None, merged_ranks(tmp_path, labelled=False))
    merged = merged_ranks(tmp_path, labelled=True)
    for window in (EVERYTHING, Window(clock=(0, 2))):
        with pytest.raises(DataError, match=r"ranks 0, 1 .*take one out with rank=N of execgraph.link"):
            link(None, merged, window=window)
    with pytest.raises(DataError, match="rank 5 is not in this merged trace, which holds ranks 0, 1"):
        link(None, merged, rank=5)


@pytest.mark.parametrize("window", [EVERYTHING, Window(clock=(0, 2))], ids=["all", "a window"])
@pytest.mark.parametrize(("rank", "name"), [(0, "allreduce"), (1, "broadcast")])
def test_one_rank_is_taken_out_of_a_merged_trace_with_its_own_communication(tmp_path, rank, name, window):
    linked = link(None, merged_ranks(tmp_path, labelled=True), rank=rank, window=window)
    expected = {f"k of {rank}": ("cudaLaunchKernel", f"aten::mm of {rank}")}
    assert {kernel: found for kernel, found in launchers(linked).items() if kernel in expected} == expected
    assert linked.info.rank == rank
    if window == EVERYTHING:
        assert [found.name for found in linked.communications] == [name] * (rank + 1)


ON_HOST = Reason.DEFAULT_GROUP


def report(linked: LinkedTrace, *calls: bool, **findings: dict[str, Any]) -> LinkReport:
    """The report of a part with these of the calls."""
    part = TracePart(linked, np.array(calls, np.bool_), {Reason.CROSSING_HANDOFFS: 3, Reason.CROSSING_HOST_WAITS: 0})  # type: ignore[arg-type]
    device = device_trace([OpRow()])
    lost, found = lost_records(device, CallRows(column())), Findings(**findings)
    return report_of(None, device, None, findings=found, lost=lost, whole=linked, part=part, clipped=0)


def test_findings_are_counted_where_their_calls_are_in_the_part_and_those_of_no_call_always() -> None:
    found: dict[AnyReason, list[int]] = {
        Reason.STREAM_IN_USE: [0, 1, 2],
        Reason.OPS_IN_CIRCLES: [-1, -1],
        Reason.BLOCKING_COPIES: [1],
    }
    kinds = ("resolved", "guessed", "oddities", "dropped")
    made = report(linked_of([], [Call(0, 1)] * 3), True, False, True, **dict.fromkeys(kinds, found))
    counted: dict[AnyReason, int] = {Reason.STREAM_IN_USE: 2, Reason.OPS_IN_CIRCLES: 2}
    assert made.waits == made.guessed == counted
    assert made.dropped == counted | {Reason.CROSSING_HANDOFFS: 3}
    assert made.oddities == counted


@pytest.mark.parametrize(
    ("groups", "guessed"), [([], {}), ([[0, 1]], {}), ([[0, 1], [0, 1]], {}), ([[0, 1], [0, 2]], {ON_HOST: 2})]
)
def test_of_several_groups_communication_of_the_host_is_a_guess(groups: list[list[int]], guessed: Any) -> None:
    linked = linked_of([], [], [Op(0, 1), Op(1, 2), Op(2, 3)])
    linked.ops.communication_row = column(-1, 0, 1)
    made = replace(linked, groups=[ProcessGroup(str(number), "", ranks) for number, ranks in enumerate(groups)])
    assert report(made).guessed == guessed
