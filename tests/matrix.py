"""What was tried with traces of which version and vendor: a cell of the matrix is a test, named `row-feature-source`.

python tests/matrix.py
"""

import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from builder import TraceBuilder
from builder.layouts import LAYOUTS
from execgraph.linker.device_trace import read_device_trace
from execgraph.linker.host_trace import read_host_trace
from execgraph.linker.link import link
from execgraph.schema.graph import NodeType
from execgraph.schema.linked import LinkedTrace
from runs import broken_rules, convert_linked
from vendors import VENDORS, as_written_by

DATA = Path(__file__).parent / "data"
OUTSIDE = Path(os.environ.get("EXECGRAPH_TRACES", "/nowhere"))
"""Larger real traces, where there are any."""


VERSIONS = tuple(f"2.{minor}" for minor in range(1, 16))


def layout_of(version: str) -> str:
    """The layout in which a version writes: that of the last one that changed something."""
    known = [int(layout.split(".")[1]) for layout in LAYOUTS]
    minor = int(version.split(".")[1])
    return f"2.{max(one for one in known if one <= minor)}"


# Features: what must hold of a linked trace


def ops_matched(linked: LinkedTrace) -> None:
    """All ops, but for those of gloo that begin on one thread and end on another."""
    assert linked.report.matched >= 0.97 * linked.report.host_ops > 0


def launches(linked: LinkedTrace) -> None:
    """Activities have their call, but for those that were launched before the trace began or by calls that it leaves out."""
    assert linked.report.linked >= linked.report.activities / 2 > 0


def graph_launches(linked: LinkedTrace) -> None:
    calls = linked.activities.call_row[linked.activities.call_row >= 0]
    assert (calls[1:] == calls[:-1]).any()


def waits(linked: LinkedTrace) -> None:
    assert len(linked.host_waits.call_row) or len(linked.device_waits.source_row)


def collectives(linked: LinkedTrace) -> None:
    """Communication with its type and group, on the device or, as with gloo, on the host."""
    graph = convert_linked(linked).graph
    kinds = (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)
    found = [row for row in range(len(graph)) if graph.type[row] in kinds]
    assert found and all(graph.integers("comm_type", -1)[row] >= 0 for row in found if graph.type[row] == kinds[0])


def tensors(linked: LinkedTrace) -> None:
    graph = convert_linked(linked).graph
    assert graph.tensors is not None and len(graph.tensors.rows)


def threads(linked: LinkedTrace) -> None:
    assert len(linked.hand_overs.found)


def replay(linked: LinkedTrace) -> None:
    """The replay of its graph takes as long as the run, within 0.5 %, and the graph is sound."""
    nodes = convert_linked(linked)
    assert broken_rules(nodes) == []
    assert nodes.replay_error() <= 0.005


def device_trace_alone(linked: LinkedTrace) -> None:
    """Without the host trace the graph replays as well."""
    assert not linked.ops.recorded_by_host.any()
    replay(linked)


FEATURES: dict[str, Callable[[LinkedTrace], None]] = {
    "ops matched": ops_matched,
    "tensors": tensors,
    "launches": launches,
    "graph launches": graph_launches,
    "waits": waits,
    "collectives": collectives,
    "threads": threads,
    "replay": replay,
    "device trace alone": device_trace_alone,
}
OF_DEVICE = ("launches", "waits", "replay", "device trace alone")
OF_PAIR = ("ops matched", "tensors", "replay", "device trace alone")
OF_GPU_PAIR = ("ops matched", "tensors", *OF_DEVICE)


# Sources: where a pair of traces comes from


class Source(NamedTuple):
    """A row of the matrix, where its traces come from, and the features that are seen in them. `host` is None for device traces alone."""

    row: str
    name: str
    host: Path | None
    device: Path | None
    features: tuple[str, ...]

    @property
    def real(self) -> bool:
        return self.device is not None


def captures() -> Iterator[Source]:
    """CPU captures, of the project and from outside."""
    for folder in DATA.glob("torch_*"):
        yield _pair(_version(folder.name), "capture", folder, "{}_rank0", OF_PAIR)
    for name, more in (("attention", ()), ("compiled", ()), ("threads", ("threads",)), ("ddp", ("collectives",))):
        yield _pair("2.13", name, DATA / name, "{}_rank0", (*OF_PAIR, *more))
    for version in ("2.1.2", "2.3.1", "2.4.1", "2.5.1", "2.15.0"):
        folder = OUTSIDE / "captures" / f"torch_{version}"
        yield _pair(_version(folder.name), "mlp", folder / "mlp_attn", "{}", OF_PAIR, "et", "kineto")
        yield _pair(
            _version(folder.name), "gloo", folder / "ddp_gloo", "{}_rank0", (*OF_PAIR, "collectives"), "et", "kineto"
        )


def machines() -> Iterator[Source]:
    """Runs on GPUs and other devices, all from outside."""
    dlrm, alone = OUTSIDE / "dlrm_8gpu", OUTSIDE / "device_only"
    yield _pair("2.1", "8 V100", dlrm, "{}_rank0", (*OF_GPU_PAIR, "collectives"))
    yield _pair("CUDA", "8 V100", dlrm, "{}_rank0", (*OF_GPU_PAIR, "collectives"))
    yield _alone("CUDA", "A100, NCCL", alone / "a100_nccl_rank0_of_2", (*OF_DEVICE, "collectives"))
    yield _alone("CUDA", "H100", alone / "h100_bert", OF_DEVICE)
    yield _alone("CUDA", "sync records", OUTSIDE / "critical_path" / "event_sync", OF_DEVICE)
    yield _alone("ROCm", "MI210", alone / "mi210_gpu_only", OF_DEVICE)
    yield _alone("ROCm", "MI300", alone / "mi300_bert", OF_DEVICE)
    yield _alone(
        "ROCm",
        "MI300, HIP graph",
        alone / "mi300_vllm_decode_hipgraph",
        ("launches", "graph launches", "replay", "device trace alone"),
    )
    yield _alone("MTIA", "inference", alone / "mtia_inference", (*OF_DEVICE, "graph launches"))


def generated() -> Iterator[Source]:
    """A played run as each version and each vendor would have written it."""
    every = (*OF_GPU_PAIR, "graph launches", "collectives", "threads")
    for version in VERSIONS:
        yield Source(version, "played", None, None, every)
    yield Source("CUDA", "played", None, None, every)
    for vendor in VENDORS:
        yield Source(vendor, "played", None, None, every)


def _version(folder: str) -> str:
    major, minor, _ = folder.removeprefix("torch_").split(".")
    return f"{major}.{minor}"


def _pair(
    row: str,
    name: str,
    folder: Path,
    pattern: str,
    features: tuple[str, ...],
    host: str = "host",
    device: str = "device",
) -> Source:
    files = (folder / f"{pattern.format(side)}.json.gz" for side in (host, device))
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
def linked_of(source: Source, with_host: bool) -> LinkedTrace:
    """The linked trace of a source; without its host trace if asked to, and where there is none."""
    if source.device is None:
        return _played(source.row, with_host)
    host = read_host_trace(str(source.host)) if source.host and with_host else None
    return link(host, read_device_trace(str(source.device)))


def _played(row: str, with_host: bool) -> LinkedTrace:
    t = played_run(layout_of(row) if row in VERSIONS else "2.13")
    trace = as_written_by(row, t.device_trace()) if row in VENDORS else t.device_trace()
    with tempfile.TemporaryDirectory() as folder:
        host, device = Path(folder) / "host.json", Path(folder) / "device.json"
        host.write_text(json.dumps(t.host_trace()))
        device.write_text(json.dumps(trace))
        return link(read_host_trace(str(host)) if with_host else None, read_device_trace(str(device)))


def played_run(torch: str) -> TraceBuilder:
    """Forward, backward on its own thread with an all-reduce, a graph launch, copies and waits."""
    t = TraceBuilder(torch=torch, rank=0, world_size=2)
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
                    t.launch("sgemm", duration=80)
                reduced = t.collective(group=group, tensors=[a], duration=60)
            t.join_thread(2)
        t.wait_collective(reduced)
        with t.op("aten::zero_", inputs=[b], outputs=[b]):
            t.memset()
        t.graph_launch([("replayed 1", 7, 15), ("replayed 2", 7, 25)])
        t.device_synchronize()
        t.leaf("aten::add", 8, inputs=[a])
    return t


# The table


def table() -> str:
    """Markdown; of every cell the best evidence there is."""
    of_cell: dict[tuple[str, str], list[Source]] = defaultdict(list)
    for cell in CELLS:
        of_cell[cell.source.row, cell.feature].append(cell.source)
    vendors = list(dict.fromkeys(row for row, _ in of_cell if row not in VERSIONS))
    lines = [
        "Printed by `python tests/matrix.py`; a test compares. Every cell is tests of its name in `tests/test_matrix.py`:",
        "● on real traces, ○ on a run that the tests play and write in that format. Empty: no trace of the kind was at hand.",
        "A version's played run is in the layout of the last version that changed something.",
        "Real traces of versions are CPU captures, but for 2.1, of which there is one of eight V100 as well.",
        "Captures of 2.1 to 2.14 are part of the project; the other real ones are read where EXECGRAPH_TRACES names a folder with them.",
    ]
    for title, rows in (("PyTorch", VERSIONS), ("device", vendors)):
        lines += ["", f"| {title} | {' | '.join(FEATURES)} |", "|---|" + ":-:|" * len(FEATURES)]
        for row in rows:
            marks = (_mark(of_cell[row, feature]) for feature in FEATURES)
            lines.append(f"| {row} | {' | '.join(marks)} |")
    return "\n".join(lines) + "\n"


def _mark(sources: list[Source]) -> str:
    return "" if not sources else "●" if any(source.real for source in sources) else "○"


if __name__ == "__main__":
    sys.stdout.write(table())
