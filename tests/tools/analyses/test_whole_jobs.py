"""The analyses of whole jobs: of generated ones against plain loops over the rows of their traces, in exact decimals,
and of real ones by figures that were checked by hand, and rules that hold for every trace.

Traces that lack what an analysis looks for: an empty table that says why, never an exception; tables elsewhere.
"""

import json
import math
from collections.abc import Callable
from decimal import Decimal
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace
from execgraph.schema.linked import read_linked, write_linked
from execgraph.tools.analyses import ANALYSES, Column, RankTrace, Table, analyse, read_rank, trace_diff
from execgraph.tools.analyses.reading import read_recorded
from execgraph.tools.generate import simulate, write_traces
from execgraph.tools.report import find_sources, page, report_on, report_on_diff
from support.builder.timeline import TraceBuilder
from support.references import Act, linked_of, picked

from benchmarks.programs import build_job

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def covered(rows: list[dict[str, Any]]) -> Decimal:
    total, until = Decimal(0), Decimal(0)
    for start, end in sorted((Decimal(row["ts"]), row["ts"] + Decimal(row["dur"])) for row in rows):
        total += max(end - max(start, until), Decimal(0))
        until = max(until, end)
    return total


@pytest.mark.parametrize(("job", "ranks"), [("simple", None), ("graph", None), ("ddp", 2), ("moe", 2)])
def test_times_of_devices_are_exact_to_the_nanosecond(job: str, ranks: int | None, tmp_path: Path) -> None:
    files = write_traces(simulate(build_job(job, ranks=ranks, steps=2, layers=2, seed=4)), str(tmp_path))
    table = analyse(read_rank(str(device), str(host)) for host, device in files)["temporal_breakdown"]
    for row, (_, device) in zip(table.rows(), files, strict=True):
        events = json.loads(Path(device).read_text(), parse_float=Decimal)["traceEvents"]
        own = [event for event in events if event["ph"] == "X" and event["cat"] in ON_DEVICE]
        computing = [event for event in own if event["cat"] == "kernel" and "nccl" not in event["name"]]
        busy, compute = covered(own), covered(computing)
        span = max(event["ts"] + Decimal(event["dur"]) for event in own) - min(event["ts"] for event in own)
        expected = {"span": span, "idle": span - busy, "compute": compute, "non_compute": busy - compute}
        assert row["activities"] == len(own)
        assert {name: round(1000 * row[name]) for name in expected} == {
            name: 1000 * time for name, time in expected.items()
        }


@pytest.fixture(scope="module")
def dlrm(real_traces: Path) -> list[RankTrace]:
    folder = real_traces / "dlrm_8gpu"
    return [
        read_rank(str(folder / f"device_rank{rank}.json.gz"), str(folder / f"host_rank{rank}.json.gz"), rank)
        for rank in range(4)
    ]


def test_dlrm_is_half_idle_and_its_communication_exposed(dlrm: list[RankTrace]) -> None:
    found = analyse(dlrm)
    times = picked(found["temporal_breakdown"].rows(), "span", "idle", "compute")
    assert times == [(13009, 6419, 1034), (18749, 6428, 1246), (11350, 7046, 1068), (18853, 8145, 1240)]
    talk = picked(found["communication_computation_overlap"].rows(), "communication", "overlap")
    assert talk == [(5798, 261), (11336, 280), (3492, 275), (9774, 324)]


def test_dlrm_ranks_meet_in_all_eight_collectives(dlrm: list[RankTrace]) -> None:
    rows = analyse(dlrm, ["collectives_over_ranks"])["collectives_over_ranks"].rows()
    assert picked(rows, "sequence", "present", "members", "missing") == [
        (sequence, 4, 8, "") for sequence in range(147, 155)
    ]
    largest = max(rows, key=lambda row: row["size"])
    assert (largest["collective"], largest["size"], largest["latency"]) == ("allreduce", 1_576_964, 198)
    assert largest["bus_bandwidth"] == pytest.approx(1_576_964 / 198_000 * 14 / 8)


NAMES = [
    "device_only/h100_bert", "device_only/mi210_gpu_only", "device_only/mi300_bert",
    "device_only/mi300_vllm_decode_hipgraph", "device_only/mtia_inference", "critical_path/event_sync",
    "critical_path/event_sync_multi_stream", "captures/ddp_gloo/kineto_rank0",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_rules_hold_for_every_trace(name: str, real_traces: Path) -> None:
    rank = read_rank(str(real_traces / f"{name}.json.gz"))
    found, activities = analyse([rank]), rank.linked.activities
    for row in found["temporal_breakdown"].rows():
        assert row["idle"] + row["busy"] == pytest.approx(row["span"])
        classes = [one for one in found["kernel_breakdown"].rows() if one["device"] == row["device"]]
        assert sum(one["time"] for one in classes) == pytest.approx(row["busy"])
        computing = [one["time"] for one in classes if "computation" in one["class"]]
        assert sum(computing) == pytest.approx(row["compute"])
    assert sum(row["activities"] for row in found["temporal_breakdown"].rows()) == len(activities)
    launched = int((activities.call_row >= 0).sum())
    assert sum(row["activities"] for row in found["launch_statistics"].rows()) == launched
    assert sum(row["self"] for row in found["per_op_device_time"].rows()) == pytest.approx(
        (activities.end - activities.start)[activities.op_row >= 0].sum() / 1000
    )
    assert math.isclose(sum(row["pct"] for row in found["critical_path"].rows()), 100)


GRAPH = [("a", 7, 5), ("b", 7, 6), ("c", 9, 4)]
HIP = ("Cijk_Ailk_Bljk", 9, "hipExtModuleLaunchKernel"), ("__amd_rocclr_copyBuffer", 3, "hipMemcpyWithStream")
RUNS: dict[str, Callable[[TraceBuilder], Any]] = {
    "only host": lambda t: t.leaf("aten::add", 5), "one event": lambda t: t.activity("lonely", 7, 10, 5),
    "one moment": lambda t: t.activity("lonely", 7, 10, 0),
    "graphs alone": lambda t: (t.graph_launch(GRAPH), t.graph_launch(GRAPH), t.device_synchronize()),
    "hip alone": lambda t: [t.launch(name, stream=0, duration=us, call=call) for name, us, call in 2 * HIP],
    "no ops": lambda t: (t.launch("k"), t.memcpy("HtoD")),
}  # fmt: skip


def run_of(name: str) -> TraceBuilder:
    t = TraceBuilder()
    RUNS[name](t)
    return t


def rank_of(t: TraceBuilder | str, folder: Path) -> RankTrace:
    """From the device trace alone, as the host trace of these runs may be empty."""
    return read_rank(str((run_of(t) if isinstance(t, str) else t).write(folder)[1]))


@pytest.mark.parametrize("run", RUNS)
def test_no_trace_is_too_poor(run: str, tmp_path: Path) -> None:
    rank = rank_of(run, tmp_path)
    found = analyse([rank, rank])
    every_table = [*found.values(), *trace_diff([rank], [rank]).with_details()]
    for table in every_table:
        assert len(table) or table.note, table.name
        assert len({len(column.values) for column in table.columns}) == 1
        assert json.loads(table.to_json()) == table.rows()
    assert {analysis.name for analysis in ANALYSES} <= set(found)
    assert len({table.title for table in every_table}) == len(every_table)
    if run == "one moment":  # a span of no length has no shares
        row = found["temporal_breakdown"].rows()[0]
        assert (row["span"], row["activities"], row["idle_pct"]) == (0.0, 1, None)


@pytest.mark.skipif(find_spec("altair") is None, reason="needs the extra `report`")
@pytest.mark.parametrize("run", RUNS)
def test_no_trace_is_too_poor_for_a_page(run: str, tmp_path: Path) -> None:
    _, device = run_of(run).write(tmp_path)
    sources = find_sources([device])
    made = report_on(sources)
    text = unescape(page.render(made))
    missing = text.partition('<section id="empty">')[2].partition("</section>")[0]
    for analysis in ANALYSES:
        table = made.tables[analysis.name]
        assert (f'<section id="{analysis.name}">' in text) != (table.title in missing)
        assert table.title not in missing or not made.on_device or f"{table.note}: " in missing
    assert made.on_device or missing.count("no device activity was recorded") == 1
    assert '<section id="trace_diff">' in page.render(report_on_diff(sources, sources))


def test_nothing_at_all_is_an_empty_table_and_no_rank_is_refused() -> None:
    for table in analyse([RankTrace(0, linked_of([]))]).values():
        assert (len(table), table.rows()) == (0, [])
        assert table.note
    with pytest.raises(ValueError, match="no rank"):
        analyse([])


def test_an_empty_rank_does_not_hide_the_others_and_two_devices_of_a_process_stay_two() -> None:
    found = analyse([RankTrace(0, linked_of([])), RankTrace(1, linked_of([Act(0, 9), Act(0, 9, device=1)]))])
    assert picked(found["temporal_breakdown"].rows(), "rank", "device", "busy") == [(1, 0, 0.009), (1, 1, 0.009)]
    assert found["temporal_breakdown"].note == "rank 0: no device activity was recorded"
    assert found["communication_computation_overlap"].note == "no communication on the device was recorded"


def test_a_graph_is_one_launch_and_one_entry_of_each_queue(tmp_path: Path) -> None:
    found = analyse([rank_of("graphs alone", tmp_path)])
    launches = found["launch_statistics"].rows()
    shown = picked(launches, "api", "activities", "device")
    assert shown == [("cudaGraphLaunch", 3, 11.0), ("cudaGraphLaunch", 3, 14.0)]
    assert {row["max"] for row in found["counters_summary"].rows()} == {1.0}
    assert found["temporal_breakdown"].rows()[0]["activities"] == 6


def test_hip_launches_count_and_its_copy_kernels_are_copies(tmp_path: Path) -> None:
    found = analyse([rank_of("hip alone", tmp_path)])
    assert {row["api"] for row in found["launch_statistics"].rows()} == {call for _, _, call in HIP}
    assert {row["class"] for row in found["kernel_breakdown"].rows()} == {"computation", "memory"}


@pytest.mark.parametrize(("name", "category", "expected"), [
    ("Memcpy DtoD (Device -> Device)", "gpu_memcpy", "memory"), ("Memset (Device)", "gpu_memset", "memory"),
    ("__amd_rocclr_fillBufferAligned", "kernel", "memory"), ("dma_request", "mtia_ccp_events", "memory"),
    ("_combined_routing_memset", "kernel", "computation"),
    ("void ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "kernel", "communication"),
])  # fmt: skip
def test_work_is_of_one_class_on_the_device_and_on_the_critical_path(tmp_path, name, category, expected):
    t = TraceBuilder()
    t.launch(name, duration=500, category=category)
    t.device_synchronize()
    found = analyse([rank_of(t, tmp_path)])
    assert [row["class"] for row in found["kernel_breakdown"].rows()] == [expected]
    kinds = {row["kind"] for row in found["critical_path_nodes"].rows() if row["name"] == name and row["time"] == 500}
    assert kinds == {expected}


def test_activities_without_a_launch_are_counted_where_they_are_left_out(tmp_path: Path) -> None:
    t = run_of("no ops")
    t.activity("before the window", 7, 100, 5)
    found = analyse([rank_of(t, tmp_path)])
    assert found["temporal_breakdown"].rows()[0]["activities"] == 3
    assert found["launch_statistics"].note == "1 of 3 activities have no launch call and are not in it"
    assert found["idle_time_breakdown"].note.startswith("1 of 1 gaps end with an activity without a launch call")


def test_a_linked_file_tells_what_the_device_trace_does_of_copies(tmp_path: Path) -> None:
    t = run_of("no ops")
    t.memcpy("DtoH", **{"bytes": 512, "memory bandwidth (GB/s)": 0.3404255319148936})
    _, device = t.write(tmp_path)
    linked = link(None, read_device_trace(str(device)))
    write_linked(linked, str(tmp_path / "linked.json"))
    found, again = (
        analyse([RankTrace(0, one)])["counters"].rows() for one in (linked, read_linked(str(tmp_path / "linked.json")))
    )
    assert found == again
    assert {row["counter"]: row["value"] for row in found if row["value"]}["DtoH"] == pytest.approx(
        0.340425532, abs=1e-9
    )


TABLE = Table("t", "T", [Column("time", "µs", np.array([1.5, np.nan])), Column("name", "", ["a", "b"])])


def test_a_table_gives_its_rows_with_none_for_unknown_numbers() -> None:
    rows = [{"time": 1.5, "name": "a"}, {"time": None, "name": "b"}]
    assert (TABLE.rows(), json.loads(TABLE.to_json())) == (rows, rows)
    assert list(TABLE["name"]) == ["a", "b"]
    with pytest.raises(KeyError):
        TABLE["nothing"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_table_becomes_a_data_frame_of_the_library_asked_for(library: str) -> None:
    pytest.importorskip(library)
    frame = getattr(TABLE, f"to_{library}")()
    assert type(frame).__module__.startswith(library) and list(frame.columns) == ["time", "name"]
    for column in TABLE.columns:
        assert np.array_equal(list(frame[column.name]), list(column.values), equal_nan=column.unit != "")


def test_a_cut_device_trace_gives_the_arguments_before_the_cut(tmp_path: Path) -> None:
    text = json.dumps(run_of("no ops").device_trace())
    (tmp_path / "cut.json").write_text(text[: text.rindex("{", 0, text.rindex('"ph"')) + 40])
    device, _ = read_recorded(str(tmp_path / "cut.json"))
    assert device.notes and 1024 in device.activities.size


@pytest.mark.parametrize("args", [
    "null", '{"bytes": "many"}', '{"bytes": null, "memory bandwidth (GB/s)": null}',
    '{"memory bandwidth (GB/s)": "N/A"}', '{"memory bandwidth (GB/s)": -2.5}',
    '{"memory bandwidth (GB/s)": 1e300}',
])  # fmt: skip
def test_arguments_that_make_no_sense_are_no_arguments(tmp_path: Path, args: str) -> None:
    row = f'{{"ph": "X", "cat": "gpu_memcpy", "name": null, "ts": 1, "pid": 0, "tid": 7, "args": {args}}}'
    (tmp_path / "odd.json").write_text(f'{{"traceEvents": [{row}]}}')
    device, recorded = read_recorded(str(tmp_path / "odd.json"))
    assert (recorded.ranges, len(recorded.allocations.time)) == ([], 0)
    assert (device.activities.size.tolist(), device.activities.bandwidth.tolist()) == ([-1], [-1])


def test_times_and_sizes_are_read_exactly(tmp_path: Path) -> None:
    row = '{"ph":"X","cat":"Memcpy","ts":1712867402348256.623,"pid":0,"tid":7,"args":{"correlation":5,"size":"4096"}}'
    for text in (f"[{row}]", f'{{"traceEvents":[{row}]}}'):
        (tmp_path / "copy.json").write_text(text)
        rows = read_recorded(str(tmp_path / "copy.json"))[0].activities
        read = rows.start.tolist() + rows.correlation.tolist() + rows.size.tolist()
        assert read == [1712867402348256623, 5, 4096]
