"""The analyses of generated jobs against plain loops over the rows of their device traces, in exact decimals."""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from execgraph.tools.analyses import Table, analyse, read_rank
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
