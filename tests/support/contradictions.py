"""Well-formed traces and graphs that contradict themselves, made of the sample job, and what commands say of them."""

import contextlib
import gzip
import io
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from execgraph.schema.graph import read_frames, varint
from execgraph.schema.graph.execution_graph_pb2 import AttributeProto, Node
from execgraph.tools.commands import (
    trace_build,
    trace_diagnose,
    trace_jsonize,
    trace_link,
    trace_replay,
    trace_report,
    trace_scale,
    trace_view,
)
from execgraph.tools.sync_records_advice import UNRECORDED_WAITS

from support.damages import inside
from support.folders import DATA

SAMPLE = DATA / "training"
Trace = dict[str, Any]
Files = dict[str, Trace]
Change = Callable[[Files], object]
HOST, DEVICE = "host_rank0.json", "device_rank0.json"
OTHER_HOST, OTHER_DEVICE = "host_rank1.json", "device_rank1.json"
ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "gpu_user_annotation")
PAIRS = ((HOST, DEVICE), (OTHER_HOST, OTHER_DEVICE))
HOUR_US = 3_600_000_000


@cache
def _text(name: str) -> bytes:
    return gzip.decompress((SAMPLE / f"{name}.gz").read_bytes())


def sample() -> Files:
    """The host and device traces of both ranks, to be changed at will."""
    return {name: orjson.loads(_text(name)) for name in (HOST, DEVICE, OTHER_HOST, OTHER_DEVICE)}


class Lie(NamedTuple):
    """What is wrong, in words and as a change of the sample; why nobody can notice it, if so; and whether the other
    ranks alone show it, so that trace-link says nothing.
    """

    what: str
    change: Change
    why: str = ""
    by_others: bool = False


def on_device(files: Files, name: str = DEVICE) -> list[Trace]:
    """The rows of what the device did."""
    return [row for row in files[name]["traceEvents"] if row.get("cat") in ON_DEVICE]


def kernels(files: Files, name: str = DEVICE) -> list[Trace]:
    return [row for row in files[name]["traceEvents"] if row.get("cat") == "kernel"]


def clock_apart(by_us: float) -> Change:
    def change(files: Files) -> None:
        for row in on_device(files):
            row["ts"] += by_us

    return change


def clock_steps(by_us: float) -> Change:
    """From the middle kernel on."""

    def change(files: Files) -> None:
        rows = on_device(files)
        middle = sorted(row["ts"] for row in rows)[len(rows) // 2]
        for row in rows:
            row["ts"] += by_us * (row["ts"] >= middle)

    return change


def without_device(files: Files) -> None:
    """As the profiler records without ProfilerActivity.CUDA."""
    rows = files[DEVICE]["traceEvents"]
    files[DEVICE]["traceEvents"] = [row for row in rows if row.get("cat") not in (*ON_DEVICE, "cuda_runtime")]


def untimed(starts: bool) -> Change:
    """Every seventh row has no length, and with `starts` begins at 0."""

    def change(files: Files) -> None:
        for row in timed(files)[::7]:
            row["dur"] = 0
            row["ts"] *= not starts

    return change


def timed(files: Files) -> list[Trace]:
    """Every row of the device trace that has a time."""
    return [row for row in files[DEVICE]["traceEvents"] if "ts" in row]


def times_scaled(
    factor: float, rows_of: Callable[[Files], list[Trace]] = on_device, *, since_zero: bool = False, starts: bool = True
) -> Change:
    """Of the device, from its first start or from 0; without `starts` only how long each took."""

    def change(files: Files) -> None:
        rows = rows_of(files)
        zero = 0 if since_zero else min(row["ts"] for row in rows)
        for row in rows:
            if "dur" in row:
                row["dur"] *= factor
            if starts:
                row["ts"] = zero + (row["ts"] - zero) * factor

    return change


def of_category(category: str) -> Callable[[Files], list[Trace]]:
    return lambda files: [row for row in files[DEVICE]["traceEvents"] if row.get("cat") == category]


def one_kernel_longer(by_us: float) -> Change:
    return lambda files: kernels(files)[20].update(dur=kernels(files)[20]["dur"] + by_us)


def without(change: Change, key: str) -> Change:
    """The change, in a trace that records no such arguments."""

    def changed(files: Files) -> None:
        for row in files[DEVICE]["traceEvents"]:
            row.get("args", {}).pop(key, None)
        change(files)

    return changed


def rotated_correlations(by: int) -> Change:
    """Each kernel has the correlation of one before or after it."""

    def change(files: Files) -> None:
        rows = kernels(files)
        correlations = [row["args"]["correlation"] for row in rows]
        for place, row in enumerate(rows):
            row["args"]["correlation"] = correlations[(place + by) % len(rows)]

    return change


def copies_of_kernel_launches(files: Files) -> None:
    """The copy and a kernel have each other's correlations."""
    [copy] = [row for row in on_device(files) if row["cat"] == "gpu_memcpy"]
    kernel = kernels(files)[0]["args"]
    kernel["correlation"], copy["args"]["correlation"] = copy["args"]["correlation"], kernel["correlation"]


def reversed_times(rows: list[Trace]) -> None:
    """The first row has the times of the last one, and so on."""
    times = [(row["ts"], row["dur"]) for row in rows]
    for row, (start, length) in zip(rows, reversed(times), strict=True):
        row["ts"], row["dur"] = start, length


def collectives_reversed_on_device(files: Files) -> None:
    reversed_times([row for row in kernels(files, OTHER_DEVICE) if "Seq" in row["args"]])


def collectives_reversed(files: Files) -> None:
    """Their sequence numbers go down, wherever they are recorded."""
    rows = [row for row in files[OTHER_DEVICE]["traceEvents"] if row.get("args", {}).get("Process Group Name")]
    numbers = sorted({row["args"]["Seq"] for row in rows})
    other = dict(zip(numbers, reversed(numbers), strict=True))
    for row in rows:
        row["args"]["Seq"] = other[row["args"]["Seq"]]
    for node in files[OTHER_HOST]["nodes"]:
        values = node["inputs"]["values"]
        if node["name"] == "record_param_comms" and "allreduce" in values:
            values[1][0] = other[values[1][0]]


def lost(is_lost: Callable[[int, Trace], bool], categories: tuple[str, ...] = ACTIVITIES) -> Change:
    """Those rows, by their number in time and themselves, were not recorded."""

    def change(files: Files) -> None:
        rows = files[DEVICE]["traceEvents"]
        of_these = sorted((row for row in rows if row.get("cat") in categories), key=lambda row: float(row["ts"]))
        gone = {id(row) for number, row in enumerate(of_these) if is_lost(number, row)}
        files[DEVICE]["traceEvents"] = [row for row in rows if id(row) not in gone]

    return change


def starts_rounded(files: Files) -> None:
    """To 10 µs, as a script does that writes them with 12 digits."""
    for row in timed(files):
        row["ts"] = round(row["ts"], -1)


def calls_elsewhere(files: Files) -> None:
    """On threads whose number is that of a pthread."""
    for row in of_category("cuda_runtime")(files):
        row["tid"] += 1_234_567


def stale_kernel(files: Files) -> None:
    """Of a window before, a second ago."""
    kernel = kernels(files)[0]
    args = {name: value for name, value in kernel["args"].items() if name != EXTERNAL_ID} | {"correlation": 1}
    files[DEVICE]["traceEvents"].insert(0, kernel | {"ts": kernel["ts"] - 1_000_000, "args": args})


def rank_beyond_world(files: Files) -> None:
    files[DEVICE]["distributedInfo"]["rank"] = 5


def groups_without_own_rank(files: Files) -> None:
    for name in (HOST, DEVICE):
        text = json.dumps(files[name])
        for spelled in ('ranks": [0, 1]', 'ranks\\": [0, 1]', 'Ranks": "[0, 1]'):
            text = text.replace(spelled, spelled.replace("0, 1", "2, 3"))
        files[name] = json.loads(text)


def other_host(files: Files) -> None:
    """Rank 0's host trace says that it is of rank 1's process; rank 1's is gone."""
    files[OTHER_HOST] = files.pop(HOST) | {"pid": files[OTHER_HOST]["pid"]}
    del files[DEVICE]


def other_host_without_collectives(files: Files) -> None:
    other_host(files)
    nodes = files[OTHER_HOST]["nodes"]
    files[OTHER_HOST]["nodes"] = [node for node in nodes if node["name"] != "record_param_comms"]


def other_host_without_devices(files: Files) -> None:
    """Nor does it name devices."""
    other_host_without_collectives(files)
    text = json.dumps(files[OTHER_HOST])
    files[OTHER_HOST] = json.loads(text.replace("cuda:0", "cuda"))


def without_waits(change: Change) -> Change:
    """The change, in a trace without records, calls and copies that wait for the device."""

    def changed(files: Files) -> None:
        change(files)
        rows = files[DEVICE]["traceEvents"]
        waiting = ("cuda_sync", "gpu_memcpy")
        files[DEVICE]["traceEvents"] = [
            row for row in rows if row.get("cat") not in waiting and "Synchronize" not in row.get("name", "")
        ]

    return changed


BANDWIDTH, EXTERNAL_ID = "memory bandwidth (GB/s)", "External id"
TRACES = (
    Lie("every second activity is lost", lost(lambda number, _: number % 2 > 0)),
    Lie("the first ten activities are lost", lost(lambda number, _: number < 10)),
    Lie("the activities of a stream are lost", lost(lambda _, row: row["args"]["stream"] == 24)),
    Lie("all activities are lost", lost(lambda *_: True)),
    Lie("calls and activities end in the middle", lost(lambda number, _: number > 70, (*ACTIVITIES, "cuda_runtime"))),
    Lie("the device's clock is an hour ahead", clock_apart(HOUR_US)),
    Lie("the device's clock is an hour behind", clock_apart(-HOUR_US)),
    Lie("the device's clock is an hour ahead, and nothing waits for the device", without_waits(clock_apart(HOUR_US)),
        "launches alone do not bound how late an activity may start: the device may have been busy with earlier work for so long"),
    Lie("the device's clock goes on by 5 ms in the middle", clock_steps(5_000)),
    Lie("the device's clock goes back by 5 ms in the middle", clock_steps(-5_000)),
    Lie("the device's clock goes on by 50 µs in the middle", clock_steps(50)),
    Lie("every seventh row begins at 0 and has no length", untimed(starts=True)),
    Lie("every seventh row has no length", untimed(starts=False)),
    Lie("the profiler recorded no device, which the host trace's tensors are on", without_device),
    Lie("device times × 1000", times_scaled(1000)),
    Lie("device times × 1000, no copy with its bandwidth", without(times_scaled(1000), BANDWIDTH)),
    Lie("device times × 1000, counted from 0", times_scaled(1000, since_zero=True)),
    Lie("device times ÷ 1000", times_scaled(0.001)),
    Lie("device times ÷ 1000, no copy with its bandwidth", without(times_scaled(0.001), BANDWIDTH)),
    Lie("device times ÷ 1000, counted from 0", times_scaled(0.001, since_zero=True)),
    Lie("durations of activities × 1000", times_scaled(1000, starts=False)),
    Lie("durations of activities × 1000, no copy with its bandwidth", without(times_scaled(1000, starts=False), BANDWIDTH)),
    Lie("durations of activities ÷ 1000", times_scaled(0.001, starts=False)),
    Lie("durations of activities ÷ 1000, no copy with its bandwidth", without(times_scaled(0.001, starts=False), BANDWIDTH)),
    Lie("one kernel lasts 4 ms longer", one_kernel_longer(4_000)),
    Lie("durations of ops × 1000", times_scaled(1000, of_category("cpu_op"), starts=False)),
    Lie("durations of calls × 1000", times_scaled(1000, of_category("cuda_runtime"), starts=False)),
    Lie("no call lasts any time", times_scaled(0, of_category("cuda_runtime"), starts=False)),
    Lie("all times of the device trace × 1000", times_scaled(1000, timed)),
    Lie("all times of the device trace × 1000, no copy with its bandwidth", without(times_scaled(1000, timed), BANDWIDTH), by_others=True),
    Lie("all starts are rounded to 10 µs", starts_rounded),
    Lie("all calls are on other threads than their ops", calls_elsewhere),
    Lie("a kernel ran a second before all calls", stale_kernel),
    Lie("the mark of the first step is lost", lost(lambda number, _: number == 0, ("user_annotation",))),
    Lie("each kernel has the correlation of the next one", rotated_correlations(1)),
    Lie("each kernel has the correlation of the one before", rotated_correlations(-1)),
    Lie("each kernel has the correlation of the next one, without External ids", without(rotated_correlations(1), EXTERNAL_ID)),
    Lie("a copy and a kernel have each other's correlations", copies_of_kernel_launches),
    Lie("the kernels of one rank's collectives ran in reversed order", collectives_reversed_on_device),
    Lie("the collectives of one rank are numbered in reversed order", collectives_reversed),
    Lie("rank 5 of 2", rank_beyond_world),
    Lie("the process groups do not hold the own rank", groups_without_own_rank),
    Lie("the traces of two ranks under one pid", other_host),
    Lie("traces of two ranks under one pid, without collectives", other_host_without_collectives),
    Lie("traces of two ranks under one pid, without collectives and numbers of devices", other_host_without_devices,
        "the ranks of a job run the same ops, with the same names, ids and shapes"),
)  # fmt: skip


# graphs

CHANGED = (10, 11, 40)
"""The nodes that are changed, by their places."""
READ_BY = ("trace-replay", "trace-view", "trace-report", "trace-scale")


def attribute(node: Node, name: str) -> AttributeProto:
    [found] = [one for one in node.attr if one.name == name]
    return found


def dangling_caller(node: Node) -> None:
    node.ctrl_deps[:] = [999_999]


class GraphLie(NamedTuple):
    """What is wrong with three nodes of a graph, in words and as a change of a node."""

    what: str
    change: Callable[[Node], object]


GRAPHS = (
    GraphLie("durations below 0", lambda node: setattr(attribute(node, "duration_ns"), "int64_val", -5_000)),
    GraphLie("longer in whole µs than in ns", lambda node: setattr(node, "duration_micros", node.duration_micros + 9)),
    GraphLie("durations that are texts", lambda node: setattr(attribute(node, "duration_ns"), "string_val", "5000")),
    GraphLie("attributes that are given twice", lambda node: node.attr.append(attribute(node, "duration_ns"))),
    GraphLie("a `comm_type` that is none", lambda node: node.attr.add(name="comm_type", int64_val=99)),
    GraphLie("`ctrl_deps` on nodes that are not there", dangling_caller),
)


@cache
def sound_graphs() -> dict[str, bytes]:
    """What trace-build makes of the sample."""
    with tempfile.TemporaryDirectory() as folder, inside(folder):
        lines_of(trace_build.main, str(SAMPLE), "-o", "out", "--jobs", "1")
        return {path.name: path.read_bytes() for path in Path("out").iterdir() if path.is_file()}


def changed_graph(graph: bytes, change: Callable[[Node], object]) -> bytes:
    """The graph with three nodes changed."""
    changed = []
    for block in read_frames(io.BytesIO(graph), "graph.0.et"):
        for start, end in zip(block.starts.tolist(), block.ends.tolist(), strict=True):
            message = bytes(block.data[start:end])
            if len(changed) in CHANGED:
                node = Node.FromString(message)
                change(node)
                message = node.SerializeToString(deterministic=True)
            changed.append(message)
    return b"".join(varint(len(message)) + message for message in changed)


@cache
def notes_on(lie: GraphLie) -> dict[str, list[str]]:
    """What each command that reads graphs notes of this one; trace-jsonize must give the same bytes back."""
    graph = changed_graph(sound_graphs()["graph.0.et"], lie.change)
    with tempfile.TemporaryDirectory() as folder, inside(folder):
        Path("graphs").mkdir()
        for name, content in sound_graphs().items():
            Path("graphs", name).write_bytes(content)
        path = "graphs/graph.0.et"
        Path(path).write_bytes(graph)
        said = (
            lines_of(trace_replay.main, path),
            lines_of(trace_view.main, path, "-o", "graph.svg"),
            lines_of(trace_report.main, path),
            lines_of(trace_scale.main, "graphs", "-o", "scaled", "--data-parallel", "2", "--jobs", "1"),
        )
        lines_of(trace_jsonize.main, path, "-o", "graph.json")
        lines_of(trace_jsonize.main, "graph.json", "-o", "back.et")
        assert Path("back.et").read_bytes() == graph
    return {
        command: [line for line in lines if "note: " in line and "graph.0.et: " in line]
        for command, lines in zip(READ_BY, said, strict=True)
    }


class Said(NamedTuple):
    """What commands say of the traces, a line each, and those lines that only a lie brings."""

    link: list[str]
    diagnose: list[str]


@cache
def said_of(lie: Lie) -> Said:
    """What the commands say of the lie that they do not say of the sample."""
    said = zip(_said(lie.change), _said(unchanged), strict=True)
    return Said(*([line for line in new if line not in usual] for new, usual in said))


@cache
def said_by_build(lie: Lie) -> list[str]:
    """The same of trace-build, which takes half of the time of all."""
    return [line for line in _built(lie.change) if line not in _built(unchanged)]


def unchanged(_: Files) -> None: ...


def _write(change: Change) -> dict[str, bytes]:
    files = sample()
    change(files)
    texts = {name: orjson.dumps(trace) for name, trace in files.items()}
    for name, text in texts.items():
        Path(name).write_bytes(text)
    return texts


@cache
def _said(change: Change) -> Said:
    with tempfile.TemporaryDirectory() as folder, inside(folder):
        texts = _write(change)
        said = {pair: _linked(*((name, texts[name]) for name in pair)) for pair in PAIRS if pair[1] in texts}
        # of a rank that contradicts itself the others have nothing to say
        told = next((pair for pair, lines in said.items() if lines), (".",))
        wrong = [line for line in lines_of(trace_diagnose.main, *told) if line.startswith("wrong")]
        return Said([line for lines in said.values() for line in lines], wrong)


@cache
def _built(change: Change) -> list[str]:
    with tempfile.TemporaryDirectory() as folder, inside(folder):
        build = lines_of(trace_build.main, *_write(change), "-o", "out", "--jobs", "1")
    notes = [line for line in build if line.startswith(("trace-build: note", "trace-build: ranks disagree"))]
    return [line for line in notes if str(UNRECORDED_WAITS[0]) not in line]


@cache
def _linked(*pair: tuple[str, bytes]) -> list[str]:
    """What trace-link notes of files that are here, which most lies leave as they are of one rank."""
    lines = lines_of(trace_link.main, *(name for name, _ in pair), "-o", "linked.json")
    # what was not recorded contradicts nothing
    return [line for line in lines if line.startswith("note ") and str(UNRECORDED_WAITS[0]) not in line]


def lines_of(main: Callable[[list[str]], object], *arguments: str) -> list[str]:
    """What a command prints, on either stream; it must not fail."""
    told = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(told):
        try:
            main([*arguments])
        except SystemExit as end:
            code = end.code
    told.seek(0)
    text = told.read()
    assert not code, text
    return [" ".join(line.split()) for line in text.splitlines()]
