"""The analyses of whole jobs: of generated ones against plain loops over the rows of their traces, in exact decimals,
and of real ones by figures that were checked by hand, and rules that hold for every trace.
"""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from execgraph.tools.analyses import RankTrace, Table, analyse, read_rank
from execgraph.tools.generate import simulate, write_traces

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


def test_hidden_communication_is_that_beside_computation(run: Run) -> None:
    for rank in range(len(run.rows)):
        talk, work = (
            [one for one in run.activities(rank) if kind(one) == name] for name in ("communication", "computation")
        )
        found = run.of("communication_computation_overlap", rank)
        assert bool(found) == bool(talk)
        for row in found:
            whole = covered(spans(talk))
            hidden = whole + covered(spans(work)) - covered(spans(talk + work))
            assert same(row["communication"], whole) and same(row["exposed_communication"], whole - hidden)
            assert row["overlap_pct"] == pytest.approx(100 * float(hidden / whole))


def test_gaps_of_streams_add_up_to_their_idle_time(run: Run) -> None:
    for rank in range(len(run.rows)):
        of_stream = defaultdict(list)
        for one in run.activities(rank):
            of_stream[one["tid"]].append(one)
        for stream, own in of_stream.items():
            ordered = spans(own)
            idle = max(end for _, end in ordered) - ordered[0][0] - covered(ordered)
            found = [row for row in run.of("idle_time_breakdown", rank) if row["stream"] == stream]
            assert same(sum(row["idle"] for row in found), idle)


def test_kernels_by_name_have_the_statistics_of_their_rows(run: Run) -> None:
    durations = defaultdict(list)
    for rank in range(len(run.rows)):
        for one in run.activities(rank):
            durations[one["name"]].append(Decimal(one["dur"]))
    rows = run.tables["kernel_duration_distribution"].rows()
    assert {row["name"] for row in rows} == durations.keys()
    for row in rows:
        own = durations[row["name"]]
        assert row["count"] == len(own) and same(row["sum"], sum(own, Decimal(0)))
        assert same(row["min"], min(own)) and same(row["max"], max(own))
        assert row["q50"] == pytest.approx(float(statistics.median(own)))
        assert row["std"] == pytest.approx(float(statistics.stdev(own)) if len(own) > 1 else 0, abs=1e-6)


def test_each_launch_has_the_delay_between_its_two_rows(run: Run) -> None:
    for rank in range(len(run.rows)):
        calls = {one["args"]["correlation"]: one for one in run.rows[rank] if one["cat"] == "cuda_runtime"}
        first: dict[int, Decimal] = {}
        for start, number in sorted((Decimal(one["ts"]), one["args"]["correlation"]) for one in run.activities(rank)):
            first.setdefault(number, start)
        rows = run.of("launch_statistics", rank)
        assert sorted(row["correlation"] for row in rows) == sorted(first)
        for row in rows:
            call = calls[row["correlation"]]
            assert row["api"] == call["name"] and same(row["host"], Decimal(call["dur"]))
            assert same(row["delay"], max(first[row["correlation"]] - call["ts"] - Decimal(call["dur"]), Decimal(0)))


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
    "device_only/a100_nccl_rank0_of_2", "device_only/h100_bert", "device_only/mi210_gpu_only", "device_only/mi300_bert",
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
