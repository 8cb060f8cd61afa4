"""The analyses of whole jobs: of generated ones against plain loops over the rows of their traces, in exact decimals,
and of real ones by figures that were checked by hand, and rules that hold for every trace.

Traces that lack what an analysis looks for: an empty table that says why, never an exception; tables elsewhere.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

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
from support.references import Act, linked_of

from benchmarks.programs import build_job

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
Spans = list[tuple[Decimal, Decimal]]


class Run(NamedTuple):
    """The tables over all ranks, and each rank's rows of whole events with times in µs."""

    tables: dict[str, Table]
    rows: list[list[dict[str, Any]]]

    def of(self, name: str, rank: int) -> list[dict[str, Any]]:
        return [row for row in self.tables[name].rows() if row["rank"] == rank]

    def activities(self, rank: int) -> list[dict[str, Any]]:
        return [row for row in self.rows[rank] if row["cat"] in ON_DEVICE]


@pytest.fixture(scope="module", params=[("simple", None), ("graph", None), ("ddp", 2), ("moe", 2)], ids=lambda p: p[0])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    job, ranks = request.param
    folder: Path = tmp_path_factory.mktemp(job)
    files = write_traces(simulate(build_job(job, ranks=ranks, steps=2, layers=2, seed=4)), str(folder))
    read = (json.loads(Path(device).read_text(), parse_float=Decimal)["traceEvents"] for _, device in files)
    rows = [[row for row in events if row["ph"] == "X"] for events in read]
    yield Run(analyse(read_rank(str(device), str(host)) for host, device in files), rows)


def spans(rows: list[dict[str, Any]]) -> Spans:
    return sorted((Decimal(row["ts"]), row["ts"] + Decimal(row["dur"])) for row in rows)


def covered(ordered: Spans) -> Decimal:
    total, until = Decimal(0), Decimal(0)
    for start, end in ordered:
        total += max(end - max(start, until), Decimal(0))
        until = max(until, end)
    return total


def kind(row: dict[str, Any]) -> str:
    return "memory" if row["cat"] != "kernel" else "communication" if "nccl" in row["name"] else "computation"


def same(value: float, expected: Decimal) -> bool:
    """To the ns."""
    return round(1000 * value) == 1000 * expected


def test_times_of_devices_are_exact_to_the_nanosecond(run: Run) -> None:
    for rank in range(len(run.rows)):
        (row,) = run.of("temporal_breakdown", rank)
        own = run.activities(rank)
        everything = spans(own)
        busy, compute = covered(everything), covered(spans([one for one in own if kind(one) == "computation"]))
        span = max(end for _, end in everything) - everything[0][0]
        expected = {"span": span, "idle": span - busy, "compute": compute, "non_compute": busy - compute}
        assert row["activities"] == len(own) and all(same(row[name], time) for name, time in expected.items())


def test_collectives_last_as_long_as_their_shortest_member(run: Run) -> None:
    meetings = defaultdict(list)
    for rank in range(len(run.rows)):
        for one in run.activities(rank):
            if kind(one) == "communication":
                meetings[one["args"]["Process Group Name"], one["args"]["Seq"]].append(one)
    rows = run.tables["collectives_over_ranks"].rows()
    found = {(row["group"].partition(" ")[0], row["sequence"]): row for row in rows}
    assert found.keys() == meetings.keys() and len(found) == len(rows)
    for key, own in meetings.items():
        starts = [Decimal(one["ts"]) for one in own]
        assert found[key]["present"] == len(own) == len(run.rows)
        assert same(found[key]["latency"], min(Decimal(one["dur"]) for one in own))
        assert same(found[key]["start_skew"], max(starts) - min(starts))


@pytest.fixture(scope="module")
def dlrm(real_traces: Path) -> list[RankTrace]:
    folder = real_traces / "dlrm_8gpu"
    return [
        read_rank(str(folder / f"device_rank{rank}.json.gz"), str(folder / f"host_rank{rank}.json.gz"), rank)
        for rank in range(4)
    ]


def test_dlrm_is_half_idle_and_its_communication_exposed(dlrm: list[RankTrace]) -> None:
    found = analyse(dlrm)
    times = [(row["span"], row["idle"], row["compute"]) for row in found["temporal_breakdown"].rows()]
    assert times == [(13009, 6419, 1034), (18749, 6428, 1246), (11350, 7046, 1068), (18853, 8145, 1240)]
    talk = [(row["communication"], row["overlap"]) for row in found["communication_computation_overlap"].rows()]
    assert talk == [(5798, 261), (11336, 280), (3492, 275), (9774, 324)]


def test_dlrm_ranks_meet_in_all_eight_collectives(dlrm: list[RankTrace]) -> None:
    rows = analyse(dlrm, ["collectives_over_ranks"])["collectives_over_ranks"].rows()
    assert [(row["sequence"], row["present"], row["members"], row["missing"]) for row in rows] == [
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


def only_host() -> TraceBuilder:
    t = TraceBuilder()
    t.leaf("aten::add", 5)
    return t


def one_event() -> TraceBuilder:
    t = TraceBuilder()
    t.activity("lonely", 7, 10, 5)
    return t


def one_moment() -> TraceBuilder:
    t = TraceBuilder()
    t.activity("lonely", 7, 10, 0)
    return t


def graphs_alone() -> TraceBuilder:
    t = TraceBuilder()
    for _ in range(2):
        t.graph_launch([("a", 7, 5), ("b", 7, 6), ("c", 9, 4)])
    t.device_synchronize()
    return t


def hip_alone() -> TraceBuilder:
    t = TraceBuilder()
    for _ in range(2):
        t.launch("Cijk_Ailk_Bljk", stream=0, duration=9, call="hipExtModuleLaunchKernel")
        t.launch("__amd_rocclr_copyBuffer", stream=0, duration=3, call="hipMemcpyWithStream")
    return t


def no_ops() -> TraceBuilder:
    t = TraceBuilder()
    t.launch("k")
    t.memcpy("HtoD")
    return t


RUNS = [only_host, one_event, one_moment, graphs_alone, hip_alone, no_ops]


def rank_of(t: TraceBuilder, folder: Path) -> RankTrace:
    """From the device trace alone, as the host trace of these runs may be empty."""
    return read_rank(str(t.write(folder)[1]))


@pytest.mark.parametrize("run", RUNS)
def test_no_trace_is_too_poor(run: Callable[[], TraceBuilder], tmp_path: Path) -> None:
    rank = rank_of(run(), tmp_path)
    found = analyse([rank, rank])
    every_table = [*found.values(), *trace_diff([rank], [rank]).with_details()]
    for table in every_table:
        assert len(table) or table.note, table.name
        assert len({len(column.values) for column in table.columns}) == 1
        assert json.loads(table.to_json()) == table.rows()
    assert {analysis.name for analysis in ANALYSES} <= set(found)
    assert len({table.title for table in every_table}) == len(every_table)
    if run is one_moment:  # a span of no length has no shares
        row = found["temporal_breakdown"].rows()[0]
        assert (row["span"], row["activities"], row["idle_pct"]) == (0.0, 1, None)


@pytest.mark.skipif(find_spec("altair") is None, reason="needs the extra `report`")
@pytest.mark.parametrize("run", RUNS)
def test_no_trace_is_too_poor_for_a_page(run: Callable[[], TraceBuilder], tmp_path: Path) -> None:
    _, device = run().write(tmp_path)
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


def test_an_empty_rank_does_not_hide_the_others() -> None:
    found = analyse([RankTrace(0, linked_of([])), RankTrace(1, linked_of([Act(0, 5)]))])
    assert [row["rank"] for row in found["temporal_breakdown"].rows()] == [1]
    assert found["temporal_breakdown"].note == "rank 0: no device activity was recorded"
    assert found["communication_computation_overlap"].note == "no communication on the device was recorded"


def test_a_graph_is_one_launch_and_one_entry_of_each_queue(tmp_path: Path) -> None:
    found = analyse([rank_of(graphs_alone(), tmp_path)])
    launches = found["launch_statistics"].rows()
    assert [(row["api"], row["activities"], row["device"]) for row in launches] == [
        ("cudaGraphLaunch", 3, 11.0),
        ("cudaGraphLaunch", 3, 14.0),
    ]
    assert {row["max"] for row in found["counters_summary"].rows()} == {1.0}
    assert found["temporal_breakdown"].rows()[0]["activities"] == 6


def test_hip_launches_count_and_its_copy_kernels_are_copies(tmp_path: Path) -> None:
    found = analyse([rank_of(hip_alone(), tmp_path)])
    assert {row["api"] for row in found["launch_statistics"].rows()} == {
        "hipExtModuleLaunchKernel",
        "hipMemcpyWithStream",
    }
    assert {row["class"] for row in found["kernel_breakdown"].rows()} == {"computation", "memory"}


@pytest.mark.parametrize(
    ("name", "category", "expected"),
    [
        ("Memcpy DtoD (Device -> Device)", "gpu_memcpy", "memory"),
        ("Memset (Device)", "gpu_memset", "memory"),
        ("__amd_rocclr_fillBufferAligned", "kernel", "memory"),
        ("dma_request", "mtia_ccp_events", "memory"),
        ("_combined_routing_memset", "kernel", "computation"),
        ("void ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "kernel", "communication"),
    ],
)
def test_work_is_of_one_class_on_the_device_and_on_the_critical_path(
    tmp_path: Path, name: str, category: str, expected: str
) -> None:
    t = TraceBuilder()
    t.launch(name, duration=500, category=category)
    t.device_synchronize()
    found = analyse([rank_of(t, tmp_path)])
    assert [row["class"] for row in found["kernel_breakdown"].rows()] == [expected]
    kinds = {row["kind"] for row in found["critical_path_nodes"].rows() if row["name"] == name and row["time"] == 500}
    assert kinds == {expected}


def test_activities_without_a_launch_are_counted_where_they_are_left_out(tmp_path: Path) -> None:
    t = no_ops()
    t.activity("before the window", 7, 100, 5)
    found = analyse([rank_of(t, tmp_path)])
    assert found["temporal_breakdown"].rows()[0]["activities"] == 3
    assert found["launch_statistics"].note == "1 of 3 activities have no launch call and are not in it"
    assert found["idle_time_breakdown"].note.startswith("1 of 1 gaps end with an activity without a launch call")


def test_a_linked_file_tells_what_the_device_trace_does_of_copies(tmp_path: Path) -> None:
    t = no_ops()
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


def test_two_devices_of_a_process_stay_two() -> None:
    found = analyse([RankTrace(0, linked_of([Act(0, 5), Act(3, 9, device=1)])), RankTrace(1, linked_of([Act(0, 2)]))])
    rows = [(row["rank"], row["device"], row["busy"]) for row in found["temporal_breakdown"].rows()]
    assert rows == [(0, 0, 0.005), (0, 1, 0.006), (1, 0, 0.002)]


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
    text = json.dumps(no_ops().device_trace())
    (tmp_path / "cut.json").write_text(text[: text.rindex("{", 0, text.rindex('"ph"')) + 40])
    device, _ = read_recorded(str(tmp_path / "cut.json"))
    assert device.notes and 1024 in device.activities.size


@pytest.mark.parametrize(
    "args",
    [
        "null",
        '{"bytes": "many"}',
        '{"bytes": null, "memory bandwidth (GB/s)": null}',
        '{"memory bandwidth (GB/s)": "N/A"}',
        '{"memory bandwidth (GB/s)": -2.5}',
        '{"memory bandwidth (GB/s)": 1e300}',
    ],
)
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
        assert (rows.start.tolist(), rows.correlation.tolist(), rows.size.tolist()) == (
            [1712867402348256623],
            [5],
            [4096],
        )
