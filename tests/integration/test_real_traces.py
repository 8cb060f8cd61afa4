"""Real runs, not made for these tests: everything is linked, everything is in the graph, and its replay is the run."""

from pathlib import Path

import numpy as np
import pytest
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.columns import ABSENT
from execgraph.schema.linked import LinkedTrace, are_step_marks, on_host_clock
from execgraph.schema.reasons import Reason
from execgraph.tools.replay import gather, replay
from support.folders import DATA
from support.runs import Nodes, broken_rules, convert_linked

CAPTURES = {"attention": [0], "ddp": [0, 1], "threads": [0], "compiled": [0]}
OURS = [pytest.param(run, rank, id=f"{run}-{rank}") for run, ranks in CAPTURES.items() for rank in ranks]
CPU_ONLY = [f"torch_{version}/mlp_attn" for version in ("2.1.2", "2.3.1", "2.4.1", "2.5.1", "2.15.0")] + ["mlp_attn"]
WITHOUT_A_CALL = {0: 0, 1: 64, 2: 0, 3: 64}


def link_files(host: Path | None, device: Path) -> LinkedTrace:
    return link(read_host_trace(str(host)) if host else None, read_device_trace(str(device)))


def check(linked: LinkedTrace) -> Nodes:
    nodes = convert_linked(linked)
    names = linked.activities.name
    assert sorted(nodes.graph.name[row] for row in np.flatnonzero(nodes.graph.is_activity).tolist()) == sorted(
        names[row] for row in range(len(names))
    )
    assert broken_rules(nodes) == []
    assert nodes.replay_error() <= 0.005
    check_replay(linked, nodes)
    return nodes


def check_replay(linked: LinkedTrace, nodes: Nodes) -> None:
    """The replay takes as long as the trace itself, and nothing follows what ended after it had begun."""
    activities = on_host_clock(linked.activities, linked.info.machine)
    timed = (linked.ops.start != ABSENT) & ~are_step_marks(linked.ops.name)
    starts = (linked.ops.start[timed], linked.calls.start, activities.start)
    ends = (linked.ops.end[timed], linked.calls.end, activities.end)
    span = max(int(end.max()) for end in ends if len(end)) - min(int(start.min()) for start in starts if len(start))
    assert replay(nodes.graph).makespan_ns == pytest.approx(span, rel=0.005)
    work = gather([nodes.graph])
    on_device = work.is_activity[work.source] & work.is_activity[work.target]
    trimmed = work.measured_end_ns - nodes.graph.integers("overlap_ns", 0)
    late = (trimmed[work.source] - work.measured_start_ns[work.target])[on_device]
    machine = linked.info.machine
    assert late.max(initial=0) <= max(2 * machine.resolution_ns, 2) + abs(machine.clock_drift_ns)


# The project's own captures


@pytest.mark.parametrize(("run", "rank"), OURS)
def test_our_captures(data: Path, run: str, rank: int) -> None:
    linked = link_files(*(data / run / f"{side}_rank{rank}.json.gz" for side in ("host", "device")))
    assert linked.report.matched == linked.report.host_ops
    check(linked)


# Captures of one GPU

PAIRS = sorted((path.parent.name, int(path.name[-9])) for path in (DATA / "gpu").glob("*/host_rank*.json.gz"))
WAIT, QUERY = Reason.STREAM_WAIT_WITHOUT_EVENT, Reason.QUERY_WITHOUT_EVENT
IDLE_STREAM = Reason.NO_WORK_FOLLOWED
"""NCCL in a group of one runs nothing on the streams that it lets wait."""
MOST_DROPPED = {
    # recorded before the trace: the batch copied ahead, and tensors freed in the step before
    ("streams", 0): {WAIT: 1, QUERY: 3},
    # the queries are for what was recorded before the trace, the waits for the stream's own work or what it waited for
    ("gloo", 0): {WAIT: 3, QUERY: 2},
    ("gloo", 1): {WAIT: 3, QUERY: 2},
    ("nccl", 0): {IDLE_STREAM: 6},
    # the waits are for what the stream already waits for
    ("sharded", 0): {IDLE_STREAM: 20, WAIT: 4},
}
"""The records of each folder and rank that may stay unresolved, and why; others have none."""


@pytest.mark.parametrize(("run", "rank"), PAIRS)
def test_captures_of_a_gpu(run: str, rank: int) -> None:
    linked = link_files(*(DATA / "gpu" / run / f"{side}_rank{rank}.json.gz" for side in ("host", "device")))
    report, allowed = linked.report, MOST_DROPPED.get((run, rank), {})
    assert (report.matched, report.matched_by) == (report.host_ops, "record function id")
    assert (linked.activities.call_row >= 0).all()
    assert {what: count for what, count in report.dropped.items() if count > allowed.get(what, 0)} == {}
    nodes = check(linked)
    assert nodes.replay_error() <= 0.0005
    busy_ns = (nodes.graph.duration_ns + nodes.graph.integers("overlap_ns", 0))[nodes.graph.is_activity]
    assert busy_ns.sum() == (linked.activities.end - linked.activities.start).sum()


# Captures of other versions of PyTorch


@pytest.mark.parametrize("folder", CPU_ONLY)
def test_captures_of_every_version(real_traces: Path, folder: str) -> None:
    pair = real_traces / "captures" / folder
    linked = link_files(pair / "et.json.gz", pair / "kineto.json.gz")
    assert linked.report.agreement_pct >= 99
    check(linked)


# Training on eight GPUs


@pytest.mark.parametrize("rank", WITHOUT_A_CALL)
def test_dlrm_on_eight_gpus(real_traces: Path, rank: int) -> None:
    folder = real_traces / "dlrm_8gpu"
    linked = link_files(folder / f"host_rank{rank}.json.gz", folder / f"device_rank{rank}.json.gz")
    report = linked.report
    assert (report.matched, report.host_ops, report.matched_by) == (1672, 1672, "order of names")
    assert report.oddities.get(Reason.ACTIVITIES_WITHOUT_CALL, 0) == WITHOUT_A_CALL[rank]
    check(linked)


def test_a_small_benchmark(real_traces: Path) -> None:
    folder = real_traces / "simple_add"
    linked = link_files(folder / "benchmark_simple_add_et.json.gz", folder / "benchmark_simple_add_trace.json.gz")
    assert linked.report.matched == linked.report.host_ops == linked.report.device_ops == 36
    check(linked)


# Device traces alone


DEVICE_ONLY = [
    "critical_path/event_sync",
    "critical_path/event_sync_multi_stream",
    "device_only/a100_nccl_rank0_of_2",
    "device_only/h100_bert",
    "device_only/mi210_gpu_only",
    "device_only/mi300_bert",
    "device_only/mi300_vllm_decode_hipgraph",
    "device_only/mtia_inference",
]


@pytest.mark.parametrize("name", DEVICE_ONLY)
def test_device_traces_of_many_machines(real_traces: Path, name: str) -> None:
    check(link_files(None, real_traces / f"{name}.json.gz"))
