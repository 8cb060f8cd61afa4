"""What was tried with traces of which version and vendor: a cell of the matrix is a test, named `row-feature-source`.

PYTHONPATH=tests python -m support.matrix writes it into tests/compat/README.md. Turns the device trace of a CUDA run
into what other vendors' profilers would have written of the same run.
"""

import json
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.columns import ABSENT, Int64, Ragged
from execgraph.schema.graph import CollectiveType, NodeType
from execgraph.schema.linked import LinkedTrace, Provenance

from support.builder.records import LAYOUTS
from support.builder.timeline import TraceBuilder
from support.capturing import Recorded, Tensors
from support.folders import DATA, with_rows
from support.runs import broken_rules, convert_linked, launchers

Row = dict[str, Any]

CALLS = {
    "cudaLaunchKernel": ("hipLaunchKernel", "urEnqueueKernelLaunch", "runFunction - job_prep_and_submit_for_execution"),
    "cudaLaunchKernelExC": ("hipExtLaunchKernel", "urEnqueueKernelLaunch", "runFunction - job_prep_and_submit_for_execution"),
    "cudaGraphLaunch": ("hipGraphLaunch", "cudaGraphLaunch", "cudaGraphLaunch"),
    "cudaMemcpyAsync": ("hipMemcpyWithStream", "urEnqueueUSMMemcpy", "enqueueCommand memcpyHtoDAsync"),
    "cudaMemsetAsync": ("hipMemsetAsync", "urEnqueueUSMFill", "enqueueCommand memsetAsync"),
    "cudaEventRecord": ("hipEventRecord", "urEnqueueEventsWaitWithBarrier", "recordEvent"),
    "cudaStreamWaitEvent": ("hipStreamWaitEvent", "urEnqueueEventsWait", "enqueueCommand waitOnEvent"),
    "cudaStreamSynchronize": ("hipStreamSynchronize", "urQueueFinish", "synchronizeStream"),
    "cudaDeviceSynchronize": ("hipDeviceSynchronize", "urQueueFinish", "synchronizeDevice"),
}  # fmt: skip
"""CUDA's calls as ROCm, SYCL on an XPU, and MTIA name them."""
HIP_CALLS, XPU_CALLS, MTIA_CALLS = (dict(zip(CALLS, names, strict=True)) for names in zip(*CALLS.values(), strict=True))
CALL_CATEGORIES = ("cuda_runtime", "cuda_driver")
ACTIVITY_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")


class Vendor(NamedTuple):
    """The category and names of calls, the categories of activities, and what becomes of an activity's row."""

    call_category: str
    calls: dict[str, str]
    activity_categories: dict[str, str]
    activity: Callable[[Row], Row]


def _hip(row: Row) -> Row:
    args = {key: value for key, value in row["args"].items() if key != "context"}
    return {**row, "args": args | {"kind": "Dispatch Kernel", "grid": [1, 1, 1]}}


def _hip_of_2023(row: Row) -> Row:
    """`queue` in place of stream, ids as text, sizes as text."""
    args = {**_hip(row)["args"], "queue": row["args"]["stream"], "correlation": str(row["args"]["correlation"])}
    del args["stream"]
    return {**row, "args": args | ({"bytes": str(args["bytes"])} if "bytes" in args else {})}


def _xpu(row: Row) -> Row:
    kept = {key: row["args"][key] for key in ("correlation", "External id", "device", "bytes") if key in row["args"]}
    return {**row, "args": kept | {"sycl queue": "0x55d0c8", "l0 queue": "0x7f21", "kernel_id": 5}}


def _mtia(row: Row) -> Row:
    """Rows stand in lanes that are not the streams."""
    args = {key: value for key, value in row["args"].items() if key != "context"}
    return {**row, "tid": 1000 + row["tid"], "args": args}


def _same(row: Row) -> Row:
    return row


VENDORS = {
    "ROCm": Vendor("cuda_runtime", HIP_CALLS, {}, _hip),
    "ROCm 2023": Vendor("cuda_runtime", HIP_CALLS, {}, _hip_of_2023),
    "XPU": Vendor("xpu_runtime", XPU_CALLS, {}, _xpu),
    "MTIA": Vendor("mtia_runtime", MTIA_CALLS, dict.fromkeys(ACTIVITY_CATEGORIES, "mtia_ccp_events"), _mtia),
    "PrivateUse1": Vendor("privateuse1_runtime", {}, {}, _same),
    "HPU": Vendor("privateuse1_driver", {}, {"gpu_memcpy": "gpu_memcpy", "kernel": "kernel"}, _same),
}


def as_written_by(vendor: str, trace: dict[str, Any]) -> dict[str, Any]:
    """The trace with the vendor's rows in place of CUDA's; only MTIA's queues have records of synchronisation."""
    rows = list(_rows(VENDORS[vendor], vendor, trace["traceEvents"]))
    return {**trace, "traceEvents": [*rows, *(_queue_rows(trace["traceEvents"]) if vendor == "MTIA" else ())]}


def _rows(vendor: Vendor, name: str, rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        category = row["cat"]
        if category in CALL_CATEGORIES:
            call = {**row, "cat": vendor.call_category, "name": vendor.calls.get(row["name"], row["name"])}
            yield call
            if name == "XPU":
                # the Level Zero call inside a SYCL one, under the same correlation
                inside = {"ts": call["ts"] + 1, "dur": max(call["dur"] - 2, 0)}
                yield {**call, "cat": "xpu_driver", "name": "zeCommandListAppend", **inside}
        elif category in ACTIVITY_CATEGORIES:
            yield vendor.activity({**row, "cat": vendor.activity_categories.get(category, category)})
        elif category == "cpu_op" and name == "HPU" and row["name"].startswith("aten::"):
            yield {**row, "cat": "hpu_op"}
        elif category not in ("cuda_sync", "cuda_event"):
            yield row


def _queue_rows(rows: Sequence[Row]) -> Iterator[Row]:
    """That one queue came to a numbered recording, and that another one stood still until then."""
    recorded = {row["args"]["event_id"]: row for row in rows if row["cat"] == "cuda_event"}
    for event, row in recorded.items():
        yield _queue_row("event_record", row, row["ts"], 1, {"stream": row["args"]["stream"], "seq_num": event})
    for row in rows:
        if row["cat"] == "cuda_sync" and row["name"] == "Stream Wait Event":
            event = row["args"]["wait_on_cuda_event_id"]
            awaited = recorded[event]
            args = {"stream": row["args"]["stream"], "wait_on_stream": awaited["args"]["stream"], "seq_num": event}
            yield _queue_row("event_wait", row, row["ts"], max(awaited["ts"] - row["ts"], 1), args)


def _queue_row(name: str, row: Row, start: float, duration: float, args: Row) -> Row:
    place = {"pid": row["pid"], "tid": 1000 + args["stream"], "ts": start, "dur": duration}
    args = {"device": row["args"]["device"], **args}
    return {"ph": "X", "cat": "mtia_ccp_events", "name": name, **place, "args": args}


PAGE = Path(__file__).parents[1] / "compat" / "README.md"
OUTSIDE = Path(os.environ.get("EXECGRAPH_TRACES", "/nowhere"))
"""Larger real traces, where there are any."""
CLOCK = 1_000
"""ns by which clocks of host and device may differ."""
REDUCTION = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
LAUNCHED = {
    "Memcpy HtoD (Pageable -> Device)": ("cudaMemcpyAsync", "aten::copy_"), "sgemm": ("cudaLaunchKernel", "aten::mm"),
    "sgemm of backward": ("cudaLaunchKernel", "aten::mm"), REDUCTION: ("cudaLaunchKernelExC", "nccl:allreduce"),
    "Memset (Device)": ("cudaMemsetAsync", "aten::zero_"), "replayed 1": ("cudaGraphLaunch", ""),
    "replayed 2": ("cudaGraphLaunch", ""),
}  # fmt: skip
"""The activities of the played run, the call that launched each on CUDA, and the op around that."""


VERSIONS = tuple(f"2.{minor}" for minor in range(1, 16))


def layout_of(version: str) -> str:
    """The layout in which a version writes: that of the last one that changed something."""
    known = [int(layout.split(".")[1]) for layout in LAYOUTS]
    minor = int(version.split(".")[1])
    return f"2.{max(one for one in known if one <= minor)}"


class Run(NamedTuple):
    """A linked trace, what its files say, and in whose format a played run was written (None for a real one)."""

    linked: LinkedTrace
    recorded: Recorded
    played_as: str | None


# Features: what must be right in a linked trace. Of played runs all is known, of real ones what each row says.


def ops_matched(run: Run) -> None:
    """All ops that both files hold are matched, each to a row of its name."""
    ops = run.linked.ops
    rows = np.flatnonzero(ops.recorded_by_host & (ops.start != ABSENT)).tolist()
    timed = Counter((ops.name[row], int(ops.start[row])) for row in rows)
    assert run.linked.report.matched == run.recorded.ops_of_both > 0
    assert len(rows) == run.recorded.ops_of_both
    assert timed <= run.recorded.device_ops


def tensors(run: Run) -> None:
    """The nodes of every op that lists tensors, and is long enough to have nodes, hold what it lists."""
    graph = convert_linked(run.linked).graph
    assert graph.tensors is not None
    op, texts = graph.integers("op_id", -1), graph.tensors
    held = zip(op[texts.rows].tolist(), texts.input_values, texts.output_values, strict=True)
    listed = {number: Tensors(json.loads(inputs), json.loads(outputs)) for number, inputs, outputs in held}
    wanted = run.recorded.tensors.keys() & set(op.tolist())
    assert {number: listed[number] for number in wanted} == {number: run.recorded.tensors[number] for number in wanted}
    assert wanted


def launches(run: Run) -> None:
    """Every activity has the call of its correlation, and in a played run the op around that."""
    activities, calls = run.linked.activities, run.linked.calls
    rows = zip(activities.start.tolist(), activities.call_row.tolist(), strict=True)
    found = ((activities.name[row], start, call) for row, (start, call) in enumerate(rows))
    joined = Counter((name, start, calls.name[call] if call >= 0 else "") for name, start, call in found)
    if run.played_as is None:
        assert joined == run.recorded.launches
    else:
        assert launchers(run.linked) == {name: (_call(run, call), op) for name, (call, op) in LAUNCHED.items()}


def graph_launches(run: Run) -> None:
    """As many calls as launched several activities, and as many of these."""
    calls = run.linked.activities.call_row
    sizes = np.unique(calls[calls >= 0], return_counts=True)[1]
    assert sorted(sizes[sizes > 1].tolist()) == run.recorded.sizes_of_graphs != []


def host_waits(run: Run) -> None:
    """Every synchronising call is a wait, for earlier launches that had ended; in a played run the right work."""
    linked, waits = run.linked, run.linked.host_waits
    real = waits.source_row >= 0
    source, call = waits.source_row[real], waits.call_row[real]
    # without measured returns, only the shortest launch says how far the device's clock may be ahead
    latency = (linked.activities.start - launched(linked))[linked.activities.call_row >= 0]
    doubt = np.where(
        waits.known_by.equal(Provenance.TIMING.value)[real],
        max(CLOCK, int(latency.min()) if len(latency) else 0),
        CLOCK,
    )
    assert (linked.activities.end[source] <= linked.calls.end[call] + doubt).all()
    assert (launched(linked)[source] <= linked.calls.start[call]).all()
    if run.played_as is not None:
        assert {(linked.activities.name[s], linked.calls.name[c]) for s, c in zip(source, call, strict=True)} == (
            {("replayed 2", "urQueueFinish")}  # the queue that was used last
            if run.played_as == "XPU"
            else {(name, _call(run, "cudaDeviceSynchronize")) for name in ("replayed 2", REDUCTION)}
        )
        return
    waiting = Counter(linked.calls.name[row] for row in np.unique(waits.call_row).tolist())
    assert waiting >= run.recorded.synchronising_calls and len(source)


def stream_waits(run: Run) -> None:
    """Work waited for earlier launches on another stream that had ended; as many waits as queues recorded, if any."""
    activities, waits = run.linked.activities, run.linked.device_waits
    source, target = waits.source_row, waits.target_row
    places = np.stack((activities.device, activities.stream))
    assert (places[:, source] != places[:, target]).any(axis=0).all()
    assert (activities.end[source] <= activities.start[target] + CLOCK).all()
    assert (launched(run.linked)[source] <= launched(run.linked)[target]).all()
    if run.played_as is not None:
        found = {(activities.name[s], activities.name[t]) for s, t in zip(source, target, strict=True)}
        assert found == {("sgemm of backward", REDUCTION), (REDUCTION, "Memset (Device)")}
    elif run.recorded.queue_waits:
        assert len(source) == run.recorded.queue_waits
    assert len(source)


def launched(linked: LinkedTrace) -> Int64:
    """When each activity was launched, where that is known; else when it started."""
    start, call = linked.activities.start.copy(), linked.activities.call_row
    start[call >= 0] = linked.calls.start[call[call >= 0]]
    return start


def collectives(run: Run) -> None:
    """As many of each type as were given to the library, on the device or, as with gloo, on the host."""
    graph = convert_linked(run.linked).graph
    rows = np.flatnonzero(np.isin(graph.type, (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV))).tolist()
    types = graph.integers("comm_type", -1).tolist()
    names = [
        (CollectiveType(types[row]) if types[row] >= 0 else NodeType(int(graph.type[row]))).name.removeprefix("COMM_")
        for row in rows
    ]
    assert Counter(name.replace("_", "").lower() for name in names) == run.recorded.communications != Counter()
    if run.played_as is not None:
        ranks = graph.attributes["pg_ranks"]
        assert isinstance(ranks, Ragged)
        assert [(graph.name[row], ranks[row].tolist(), int(graph.integers("comm_size")[row])) for row in rows] == [
            (REDUCTION, [0, 1], 64)
        ]


def threads(run: Run) -> None:
    """The caller waits while backward runs on a thread of its own, or a batch is made, and does nothing meanwhile."""
    ops, over = run.linked.ops, run.linked.handoffs
    first, last = (
        ("autograd::engine::evaluate_function: MmBackward0",) * 2 if run.played_as else ("aten::randn", "aten::clamp")
    )
    begun, ended = (np.flatnonzero(ops.name.codes == ops.name.table.index(name)).tolist() for name in (first, last))
    step = next(row for row in range(len(ops)) if ops.name[row].startswith("ProfilerStep#"))
    caller, worker = int(ops.thread[step]), int(ops.thread[begun[0]])
    own = np.flatnonzero(ops.thread == caller).tolist()
    works = [(ops.start[row], ops.end[row]) for row in own if ops.name[row].startswith("aten::")]
    bursts = [(int(ops.start[a]), int(ops.end[b])) for a, b in zip(begun, ended, strict=True)]
    waits = [(a, b) for a, b in bursts if not any(start < b and a < end for start, end in works)]
    assert over.target_time.tolist() == over.source_time.tolist() == [time for wait in waits for time in wait] != []
    assert over.source_thread.tolist() == [caller, worker] * len(waits)
    assert over.target_thread.tolist() == [worker, caller] * len(waits)


def replay(run: Run) -> None:
    """The replay of its graph takes as long as the run, within 0.5 %, and the graph is sound."""
    nodes = convert_linked(run.linked)
    assert broken_rules(nodes) == []
    assert nodes.replay_error() <= 0.005


def device_trace_alone(run: Run) -> None:
    """Without the host trace all that ran is there, and its graph replays as well."""
    assert not run.linked.ops.recorded_by_host.any()
    assert len(run.linked.ops) == run.recorded.device_ops.total()
    assert len(run.linked.activities) == run.recorded.launches.total()
    replay(run)


FEATURES: dict[str, Callable[[Run], None]] = {
    "ops matched": ops_matched, "tensors": tensors, "launches": launches, "graph launches": graph_launches,
    "host waits": host_waits, "stream waits": stream_waits, "collectives": collectives, "threads": threads,
    "replay": replay, "device trace alone": device_trace_alone,
}  # fmt: skip
OF_DEVICE = ("launches", "host waits", "replay", "device trace alone")
OF_PAIR = ("ops matched", "tensors", "replay", "device trace alone")
OF_GPU_PAIR = ("ops matched", "tensors", "stream waits", *OF_DEVICE)


# Sources: where a pair of traces comes from


class Source(NamedTuple):
    """A row of the matrix, where its traces come from, and their features. `host` is None if there is no host trace."""

    row: str
    name: str
    host: Path | None
    device: Path | None
    features: tuple[str, ...]


def captures() -> Iterator[Source]:
    """CPU captures, of the project and from outside."""
    for folder in DATA.glob("torch_*"):
        yield _pair(_version(folder.name), "capture", folder, "{}_rank0", OF_PAIR)
    for name, more in (("attention", ()), ("compiled", ()), ("threads", ("threads",)), ("ddp", ("collectives",))):
        yield _pair("2.13", name, DATA / name, "{}_rank0", (*OF_PAIR, *more))
    for version in ("2.1.2", "2.3.1", "2.4.1", "2.5.1", "2.15.0"):
        folder = OUTSIDE / "captures" / f"torch_{version}"
        yield _pair(_version(folder.name), "mlp", folder / "mlp_attn", "{}", OF_PAIR, "et", "kineto")
        # ops of gloo begin on one thread and end on another, and not all of them are in both files
        seen = ("collectives", "replay", "device trace alone")
        yield _pair(_version(folder.name), "gloo", folder / "ddp_gloo", "{}_rank0", seen, "et", "kineto")


def machines() -> Iterator[Source]:
    """Runs on GPUs and other devices, all from outside."""
    dlrm, alone = OUTSIDE / "dlrm_8gpu", OUTSIDE / "device_only"
    yield _pair("2.1", "8 V100", dlrm, "{}_rank0", (*OF_GPU_PAIR, "collectives"))
    yield _pair("CUDA", "8 V100", dlrm, "{}_rank0", (*OF_GPU_PAIR, "collectives"))
    yield _alone("CUDA", "A100, NCCL", alone / "a100_nccl_rank0_of_2", (*OF_DEVICE, "stream waits", "collectives"))
    yield _alone("CUDA", "H100", alone / "h100_bert", OF_DEVICE)
    records = OUTSIDE / "critical_path"
    yield _alone("CUDA", "sync records", records / "event_sync", OF_DEVICE)
    yield _alone("CUDA", "several streams", records / "event_sync_multi_stream", (*OF_DEVICE, "stream waits"))
    yield _alone("ROCm", "MI210", alone / "mi210_gpu_only", OF_DEVICE)
    yield _alone("ROCm", "MI300", alone / "mi300_bert", OF_DEVICE)
    yield _alone(
        "ROCm",
        "MI300, HIP graph",
        alone / "mi300_vllm_decode_hipgraph",
        ("launches", "graph launches", "replay", "device trace alone"),
    )
    yield _alone("MTIA", "inference", alone / "mtia_inference", (*OF_DEVICE, "stream waits", "graph launches"))


def generated() -> Iterator[Source]:
    """A played run as each version and each vendor would have written it."""
    every = (*OF_GPU_PAIR, "graph launches", "collectives", "threads")
    for version in VERSIONS:
        yield Source(version, "played", None, None, every)
    yield Source("CUDA", "played", None, None, every)
    for vendor in VENDORS:
        # of a call on an XPU nothing tells whether it records or awaits an event
        unknown = ("stream waits",) if vendor == "XPU" else ()
        yield Source(vendor, "played", None, None, tuple(feature for feature in every if feature not in unknown))


def _version(folder: str) -> str:
    major, minor, _ = folder.removeprefix("torch_").split(".")
    return f"{major}.{minor}"


def _pair(row: str, name: str, folder: Path, pattern: str, features: tuple[str, ...], *sides: str) -> Source:
    files = (folder / f"{pattern.format(side)}.json.gz" for side in sides or ("host", "device"))
    return Source(row, name, *files, features)


def _alone(row: str, name: str, path: Path, features: tuple[str, ...]) -> Source:
    return Source(row, name, None, path.with_name(f"{path.name}.json.gz"), features)


SOURCES = (*captures(), *machines(), *generated())


class Cell(NamedTuple):
    source: Source
    feature: str

    @property
    def name(self) -> str:
        return f"{self.source.row}-{self.feature}-{self.source.name}"


CELLS = [Cell(source, feature) for source in SOURCES for feature in FEATURES if feature in source.features]


@cache
def run_of(source: Source, with_host: bool) -> Run:
    """A source, linked; without its host trace if asked to, and where there is none."""
    if source.device is None:
        return _played(source.row, with_host)
    return _linked(source.host if with_host else None, source.device, None)


def _linked(host: Path | None, device: Path, played_as: str | None) -> Run:
    linked = link(read_host_trace(str(host)) if host else None, read_device_trace(str(device)))
    return Run(linked, Recorded(host, device), played_as)


def _played(row: str, with_host: bool) -> Run:
    # MTIA's queues record waits with the number of the recording
    t = played_run(layout_of(row) if row in VERSIONS else "2.13", event_rows=row == "MTIA")
    trace = as_written_by(row, t.device_trace()) if row in VENDORS else t.device_trace()
    with tempfile.TemporaryDirectory() as folder:
        host, device = Path(folder) / "host.json", Path(folder) / "device.json"
        host.write_text(json.dumps(t.host_trace()))
        device.write_text(json.dumps(trace))
        return _linked(host if with_host else None, device, row)


def _call(run: Run, name: str) -> str:
    """What a call of CUDA is named in a played run."""
    vendor = VENDORS.get(run.played_as or "")
    return vendor.calls.get(name, name) if vendor else name


def played_run(torch: str, event_rows: bool = False) -> TraceBuilder:
    """Forward, backward on its own thread with an all-reduce, a graph launch, copies and waits."""
    t = TraceBuilder(torch=torch, rank=0, world_size=2, event_rows=event_rows)
    a, b = t.tensor(), t.tensor()
    group = t.group([0, 1])
    with t.annotation("ProfilerStep#3"):
        with t.op("aten::copy_", inputs=[b], outputs=[a]):
            t.memcpy("HtoD", duration=20)
        with t.op("aten::mm", inputs=[a, a], outputs=[b], seq_id=0):
            t.work(5)
            t.launch("sgemm", duration=120)
        with t.annotation("## backward ##"):
            with (
                t.thread(2, start=t.now + 2),
                t.op("autograd::engine::evaluate_function: MmBackward0", seq_id=0, fw_thread=1),
            ):
                t.work(3)
                with t.op("aten::mm", inputs=[b, a], outputs=[a]):
                    t.launch("sgemm of backward", duration=80)
                reduced = t.collective(group=group, tensors=[a], duration=60)
            t.join_thread(2)
        t.wait_collective(reduced)
        with t.op("aten::zero_", inputs=[b], outputs=[b]):
            t.memset()
        t.graph_launch([("replayed 1", 7, 15), ("replayed 2", 7, 25)])
        t.device_synchronize()
        t.leaf("aten::add", 8, inputs=[a])
    return t


def page() -> str:
    """The page of what was tried, with the tables of versions and vendors as they should be: of a cell the best mark.

    Rows with the same marks are one.
    """
    of_cell: dict[tuple[str, str], list[Source]] = defaultdict(list)
    for cell in CELLS:
        of_cell[cell.source.row, cell.feature].append(cell.source)
    vendors = dict.fromkeys(row for row, _ in of_cell if row not in VERSIONS)
    tables = {}
    for title, rows in (("PyTorch", VERSIONS), ("device", vendors)):
        of_marks: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for row in rows:
            of_marks[tuple(_mark(of_cell[row, feature]) for feature in FEATURES)].append(row)
        lines = [f"| {' | '.join((', '.join(alike), *marks))} |" for marks, alike in of_marks.items()]
        tables[f"| {' | '.join((title, *FEATURES))} |"] = lines
    return with_rows(PAGE, tables)


def _mark(sources: list[Source]) -> str:
    return "" if not sources else "●" if any(source.device for source in sources) else "○"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
