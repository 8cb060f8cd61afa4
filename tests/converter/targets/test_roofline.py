"""What a graph for ASTRA-sim's roofline mode lasts there: known work by the peaks, all else as measured."""

from typing import Any

import numpy as np
import pytest
from execgraph.converter.convert import build_generic_graph
from execgraph.converter.options import Options
from execgraph.converter.targets import Roofline, lower_for_target, roofline_of
from execgraph.schema.graph import ExecutionGraph, NodeType
from support.builder.timeline import TraceBuilder
from support.graphs import STREAM_ORDER, GraphBuilder
from support.runs import link_run

V100 = Roofline(15.7, 900.0)


def lasts_ns(graph: ExecutionGraph, peaks: Roofline) -> dict[str, int]:
    """By name: operations over what the device does at most at so many operations per byte, in whole ns, as the
    simulator reckons.
    """
    operations, moved = (graph.integers(name).astype(float) for name in ("num_ops", "tensor_size"))
    most = np.minimum(peaks.memory_gb_s * 1e9 * (operations / moved), peaks.tflops * 1e12)
    times = (operations / most * 1e9).astype(np.int64).tolist()
    return {graph.name[row]: times[row] for row in range(len(graph)) if graph.type[row] == NodeType.COMP}


def chain(**work: int) -> ExecutionGraph:
    """On one stream a first kernel, one of unknown work, and after a host delay and a gap one of this work, if any."""
    g = GraphBuilder(rank=0)
    first = g.activity("first", 0, 5_000)
    unknown = g.activity("unknown", 5_000, 40_000, after=[(first, STREAM_ORDER)])
    g.activity("known", 75_000, 6_000, gap=10_000, host_delay_ns=20_000, after=[(unknown, STREAM_ORDER)], **work)
    return g.build()


def played(graph: ExecutionGraph, peaks: Roofline | None) -> ExecutionGraph:
    return lower_for_target(graph, "astra-sim", roofline=peaks)


def test_known_work_takes_its_time_at_the_peak_and_all_else_its_measured_time() -> None:
    compute = played(chain(num_ops=31_400_000_000, tensor_size=900), V100)
    assert lasts_ns(compute, V100) == {"first": 5_000, "unknown": 40_000, "host delay": 30_000, "known": 2_000_000}
    memory = played(chain(num_ops=1, tensor_size=1_800_000), V100)
    assert lasts_ns(memory, V100)["known"] == 2_000


def test_waiting_stands_between_a_kernel_and_all_that_it_follows() -> None:
    graph = played(chain(num_ops=1, tensor_size=1), V100)
    order = [graph.name[row] for row in range(len(graph))]
    assert order == ["first", "unknown", "host delay", "known"]
    assert [graph.data_deps[row].tolist() for row in range(4)] == [[], [1], [2], [3]]
    assert graph.integers("gap_ns", 0).tolist() == [0] * 4
    assert graph.duration_micros.tolist() == [5, 40, 30, 6]


@pytest.mark.parametrize("faster", [V100._replace(tflops=1e3), V100._replace(memory_gb_s=1e4)])
def test_what_is_not_known_gets_faster_with_neither_peak_alone(faster: Roofline) -> None:
    assert lasts_ns(played(chain(), V100), faster) == {"first": 5_000, "unknown": 40_000, "known": 36_000}


def test_without_peaks_what_is_not_known_has_no_work() -> None:
    graph = played(chain(num_ops=1, tensor_size=1), None)
    assert (graph.integers("num_ops", -1).tolist(), len(graph)) == ([-1, -1, 1], 3)


@pytest.mark.parametrize(("peaks", "said"), [(V100, "take their measured time"), (None, "only with AstraSimOptions")])
def test_what_is_not_known_is_counted(peaks: Roofline | None, said: str) -> None:
    changes = played(chain(num_ops=1, tensor_size=1), peaks).changes
    assert changes is not None and changes.counts["without work"] == 2
    assert any("2 computations" in note and said in note for note in changes.notes)


def test_nothing_that_begins_a_rank_lasts_0_ns() -> None:
    g = GraphBuilder(rank=0)
    g.activity("of unknown work", 0, 0)
    g.activity("of little work", 0, 0, num_ops=1, tensor_size=1)
    graph = played(g.build(), V100)
    assert min(lasts_ns(graph, V100).values()) > 0


def test_delays_keep_their_time() -> None:
    t = TraceBuilder()
    with t.op("mine::op"):
        t.launch("kernel", duration=20)
        t.work(3_000)
        t.launch("late", duration=20)
    graph = lower_for_target(
        build_generic_graph(link_run(t), Options(target="astra-sim", host=False)), "astra-sim", roofline=V100
    )
    assert sum(lasts_ns(graph, V100).values()) == graph.duration_micros.sum() * 1000
    assert graph.duration_micros.sum() > 3_000


@pytest.mark.parametrize(
    ("text", "peaks"),
    [("V100:fp32", (15.7, 900)), ("NVIDIA A100-SXM4-80GB:tf32", (156, 2039)), ("1.5:20", (1.5, 20))],
)
def test_peaks_by_device_and_format_or_as_numbers(text: str, peaks: Any) -> None:
    assert roofline_of(text) == peaks


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("V100", "is not DEVICE:FORMAT"),
        ("toaster:fp32", "is not DEVICE:FORMAT of a device whose peaks are known; TFLOPS:GB/S says them"),
        ("V100:fp8", "the peaks of V100 that are known are of fp64, fp32, fp16, int8"),
        ("V100:memory", "are of fp64"),
        ("0:900", "is not DEVICE:FORMAT"),
        ("1:-900", "is not DEVICE:FORMAT"),
    ],
)
def test_other_peaks_are_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        roofline_of(text)
