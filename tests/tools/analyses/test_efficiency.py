"""What kernels reach of what their device can do: known answers on built traces, and what limits a kernel."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from execgraph.schema.columns import ABSENT, Categorical
from execgraph.schema.device_peaks import FORMATS, PEAKS, Peak, named_by_size, peak_of
from execgraph.schema.errors import RequestError
from execgraph.tools.analyses import AnalysisOptions, RankTrace, Table, analyse, graph_of, rank_of_graph
from execgraph.tools.replay import Bound, Kernels, device_peaks, parse_scale, replay, roofline
from support.builder.timeline import TraceBuilder
from support.references import picked
from support.runs import link_run

GIVEN = {"fp32": 2.0, "memory": 100.0}
"""A device of 2 TFLOP/s and 100 GB/s, on which 20 operations per byte balance."""
HIDDEN = 10**9


def product(t: TraceBuilder, size: int, duration: float) -> None:
    """A product of two square matrices of floats, by one kernel."""
    inputs, outputs = [t.tensor((size, size)), t.tensor((size, size))], [t.tensor((size, size))]
    with t.op("aten::mm", inputs=inputs, outputs=outputs):
        t.launch(f"gemm {size}", duration=duration)


def run() -> TraceBuilder:
    """Two steps, each with two large products and a small one, one of unknown work, and a device synchronisation."""
    t = TraceBuilder()
    for step in range(2):
        with t.annotation(f"ProfilerStep#{step}"):
            product(t, 400, 100)
            product(t, 400, 140)
            product(t, 100, 50)
            if step:
                t.launch("mine", duration=60)
            t.device_synchronize()
    return t


def tables_of(rank: RankTrace, **peaks: float) -> dict[str, Table]:
    return analyse([rank], ["efficiency"], AnalysisOptions(peaks=peaks))


def by_op(table: Table) -> dict[tuple[str, int], dict[str, Any]]:
    """Rows by op and number of kernels."""
    return {(row["op"], row["kernels"]): row for row in table.rows()}


def test_speed_and_bandwidth_are_work_over_time_by_op_and_shape() -> None:
    rows = by_op(tables_of(RankTrace(0, link_run(run())), **GIVEN)["efficiency"])
    large, small = rows["aten::mm", 4], rows["aten::mm", 2]
    assert large["shape"] == "[[400,400],[400,400]]"
    assert (large["time"], large["element"]) == (480, 4)
    assert large["speed"] == pytest.approx(4 * 2 * 400**3 / 480e-6 / 1e12)
    assert large["bandwidth"] == pytest.approx(4 * 3 * 4 * 400**2 / 480e-6 / 1e9)
    assert large["speed_pct"] == pytest.approx(100 * large["speed"] / 2)
    assert small["bandwidth_pct"] == pytest.approx(small["bandwidth"])
    # 2 n**3 operations on 12 n**2 bytes
    assert (large["intensity"], small["intensity"]) == pytest.approx((400 / 6, 100 / 6))
    assert (large["bound"], small["bound"]) == ("compute", "memory")


def test_what_is_faster_than_memory_came_from_a_cache_and_no_share_of_the_peak_exceeds_all() -> None:
    rows = tables_of(RankTrace(0, link_run(run())), fp32=1e6, memory=1e-3)["efficiency"].rows()
    moving = [row for row in rows if row["bandwidth"]]
    assert moving and all((row["bandwidth_pct"], row["bound"]) == (None, "cache") for row in moving)


def test_kernels_far_faster_than_the_peak_are_said_and_have_no_shares() -> None:
    tables = tables_of(RankTrace(0, link_run(run())), fp32=0.2, tf32=0.2, memory=100.0)
    assert {row["speed_pct"] for row in tables["efficiency"].rows()} == {None}
    assert "computes 6 times as fast as its peak: " in tables["efficiency"].note


def test_kernels_of_unknown_work_are_there_by_name_with_their_time_alone() -> None:
    table = tables_of(RankTrace(0, link_run(run())), **GIVEN)["efficiency"]
    row = by_op(table)["mine", 1]
    assert (row["time"], row["speed"], row["bandwidth"], row["bound"]) == (60, None, None, "")
    assert "work known of 6 of 7 kernels, 90.6 % of their time" in table.note


@pytest.mark.parametrize(
    ("name", "what"), [("ARTEMIS", "device"), (named_by_size("AMD Instinct MI210", 52), "the memory of device")]
)
def test_a_device_of_unknown_peak_is_said_and_has_no_shares(name: str, what: str) -> None:
    linked = link_run(run())
    linked.info.devices = {0: name}
    table = tables_of(RankTrace(0, linked))["efficiency"]
    assert f"no peak is known of {what} 0 ({name}): give peaks=…" in table.note
    if what == "device":
        assert {(row["speed_pct"], row["bound"]) for row in table.rows()} == {(None, "")}
    row = by_op(table)["aten::mm", 4]
    assert row["speed"] > 0 and row["bandwidth_pct"] is None and not row["bound"]


def test_utilisation_of_a_step_is_the_time_at_the_peak_over_the_time_that_it_took() -> None:
    linked = link_run(run())
    first, second = tables_of(RankTrace(0, linked), **GIVEN)["efficiency_by_step"].rows()
    assert (first["step"], second["step"]) == ("ProfilerStep#0", "ProfilerStep#1")
    done = 2 * 2 * 400**3 + 2 * 100**3
    assert first["operations"] == second["operations"] == done
    for row in (first, second):
        assert row["utilisation"] == pytest.approx(100 * done / 2e12 / (row["time"] / 1e6))
    # steps lie one after the other, the second has a kernel more
    marks = [row for row in range(len(linked.ops)) if linked.ops.name[row].startswith("ProfilerStep")]
    assert first["time"] + second["time"] == pytest.approx(
        (linked.ops.end[marks].max() - linked.ops.start[marks].min()) / 1000
    )
    assert second["time"] > first["time"] + 50


def test_utilisation_says_for_how_much_of_the_kernels_time_operations_are_known(t: TraceBuilder) -> None:
    product(t, 100, 75)
    by_step = tables_of(RankTrace(0, link_run(t)), **GIVEN)["efficiency_by_step"]
    # without steps the run is one
    told = picked(by_step.rows(), "counted", "step", "operations")
    assert (told, by_step.note) == ([(100, "whole run", 2 * 100**3)], "")
    with t.op("triton_fused"):
        t.launch("triton_fused", duration=25)
    by_step = tables_of(RankTrace(0, link_run(t)), **GIVEN)["efficiency_by_step"]
    assert [row["counted"] for row in by_step.rows()] == [75]
    assert by_step.note.startswith("at least: the operations of some kernels are unknown")


def test_a_graph_alone_gives_the_same_figures_by_kernel() -> None:
    linked = link_run(run())
    alone = tables_of(rank_of_graph(graph_of(linked)), **GIVEN)["efficiency"]
    rows = {row["op"]: row for row in alone.rows()}
    large = by_op(tables_of(RankTrace(0, linked), **GIVEN)["efficiency"])["aten::mm", 4]
    for name in ("time", "speed", "bandwidth", "bound", "speed_pct"):
        assert rows["gemm 400"][name] == pytest.approx(large[name])


def test_a_rank_without_kernels_has_no_rows_and_says_so(t: TraceBuilder) -> None:
    t.leaf("aten::add", 5)
    tables = tables_of(RankTrace(0, link_run(t)))
    assert [len(table) for table in tables.values()] == [0, 0]
    assert tables["efficiency"].note == "no kernel computes anything"


def test_what_if_reaches_what_is_bound_by_the_resource() -> None:
    graph = graph_of(link_run(run()))

    def shorter(spec: str) -> int:
        scale = replace(parse_scale(spec), peaks=GIVEN)
        return replay(graph).makespan_ns - replay(graph, [scale]).makespan_ns

    # all kernels of a step run one after the other on one stream
    assert shorter("bound:compute=0.5") == 480_000 // 2
    assert shorter("bound:memory=0.5") == 100_000 // 2


def test_a_bound_of_nothing_known_is_refused(t: TraceBuilder) -> None:
    with t.op("mine::op"):
        t.launch("mine", duration=60)
    graph = graph_of(link_run(t))
    with pytest.raises(RequestError, match="no kernel of known work is memory-bound: scale class:computation"):
        replay(graph, [parse_scale("bound:memory=0.5")])


@pytest.mark.parametrize("spec", ["bound:network=0.5", "bound:=2"])
def test_only_known_resources_bind(spec: str) -> None:
    with pytest.raises(ValueError, match=r"nothing is bound by .*, only by compute, memory"):
        parse_scale(spec)


def kernels(*rows: tuple[str, int, int, int], time: int = ABSENT) -> Kernels:
    """Kernels of device 0: name, operations, bytes, bytes of an element; all take the same time (ns)."""
    name, operations, moved, element = zip(*rows, strict=True)
    columns = map(np.array, (operations, moved, element, [time] * len(rows)))
    return Kernels(Categorical.of(name), np.zeros(len(rows), np.int64), *columns)


def test_fp32_on_matrix_engines_is_told_by_the_kernel() -> None:
    peaks = {0: peak_of("NVIDIA A100-SXM4-80GB") or PEAKS[0].peak}
    rows = ("sgemm", HIDDEN, 1, 4), ("ampere_sgemm_tf32_128", HIDDEN, 1, 4)
    plain, tf32 = roofline(kernels(*rows), peaks).compute.tolist()
    assert plain / tf32 == pytest.approx(156 / 19.5)


def test_fp32_that_is_faster_than_the_ordinary_units_ran_on_the_matrix_engines() -> None:
    peaks, millisecond = {0: peak_of("NVIDIA A100-SXM4-80GB") or PEAKS[0].peak}, 1_000_000
    possible, faster = (
        roofline(kernels(("sgemm", operations, 1, 4), time=millisecond), peaks).compute[0]
        for operations in (10**10, 10**11)
    )
    assert possible == pytest.approx(10**10 / 19.5e12) and faster == pytest.approx(10**11 / 156e12)


def test_what_is_not_known_is_bound_by_nothing() -> None:
    rows = [("copy", 0, 8, 3), ("odd element", 5, 8, 3), ("no bytes", 5, ABSENT, 4), ("nothing", 0, 0, 4)]
    found = roofline(kernels(*rows, ("set", 0, 8, 4)), {0: Peak(1, 1, 1, 1, 1, 1, 1)})
    assert found.bound_by(Bound.MEMORY).tolist() == [True, False, False, False, True]
    assert not found.bound_by(Bound.COMPUTE).any()


def test_given_peaks_replace_those_of_the_table_and_make_unknown_devices_known() -> None:
    found = device_peaks({0: "NVIDIA H100 80GB HBM3", 1: "mine"}, {"memory": 5.0})
    assert found[0] == peak_of("NVIDIA H100 80GB HBM3")._replace(memory=5.0)  # type: ignore[union-attr]
    assert (found[1].memory, found[1].fp32) == (5, 0)
    assert device_peaks({1: "mine"}) == {}


@pytest.mark.parametrize(("name", "fp16", "memory"), [
    ("Tesla V100-SXM2-32GB", 125.0, 900), ("NVIDIA A100-SXM4-40GB", 312.0, 1555),
    ("NVIDIA A100-SXM4-80GB", 312.0, 2039), ("NVIDIA H100 80GB HBM3", 989.4, 3352),
    ("NVIDIA H100 PCIe", 756.0, 2039), ("NVIDIA H200", 989.4, 4800), ("NVIDIA GH200 480GB", 989.4, 4000),
    ("NVIDIA H20", 148.0, 4000), ("NVIDIA L4", 121.0, 300), ("NVIDIA L40S", 362.0, 864),
    ("NVIDIA A100 80GB PCIe", 312.0, 1935), ("Tesla V100-PCIE-16GB", 112.0, 900),
    (named_by_size("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 54), 156.0, 0),
    (named_by_size("AMD Instinct MI300X", 38), 1307.4 / 8, 0),
    (named_by_size("AMD Instinct MI300X VF", 304), 1307.4, 5300), ("AMD Instinct MI300X", 1307.4, 5300),
    ("AMD Instinct MI210", 181.0, 1638),
])  # fmt: skip
def test_devices_are_known_by_the_names_that_traces_give_them(name: str, fp16: float, memory: float) -> None:
    peak = peak_of(name)
    assert peak is not None
    assert (peak.fp16, peak.memory) == (fp16, memory)
    others = (
        "", "ARTEMIS", "NVIDIA GeForce GTX 1080 Ti", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "GRID A100-10C",
        "NVIDIA A100-4C", "NVIDIA A100-SXM-64GB", "NVIDIA H100 64GB HBM2", "NVIDIA GH200 144G HBM3e",
        "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA L40S-12Q", "NVIDIA H20-3e", "AMD Instinct MI300X VF",
    )  # fmt: skip
    assert not any(map(peak_of, others))


def test_a_format_that_a_device_lacks_has_no_peak_but_bytes_may_be_integers() -> None:
    volta = peak_of("Tesla V100-SXM2-32GB") or PEAKS[-1].peak
    assert volta.tflops(np.array([8, 4, 2, 1, 16, 0, ABSENT])).tolist() == [7.8, 15.7, 125, 62.8, 0, 0, 0]
    assert set(FORMATS) == {1, 2, 4, 8}
