"""No table of any sample says what cannot be: more than all, less than nothing, before the start or after the end."""

import re
from pathlib import Path

import numpy as np
import pytest
from execgraph.tools.analyses import Table
from execgraph.tools.replay import describe, parse_scale, replay_ranks, summarise
from execgraph.tools.report import ReportRequest, find_sources, read_ranks, report_on
from support.folders import ROOT

DATA = ROOT / "tests/data"
DIFFERENCES = {"error", "difference", "saved", "saved_pct", "gain", "gain_pct"}
"""Columns that may be below 0."""
WITHIN_THE_RUN = ("temporal_breakdown", "step_breakdown", "host_phases", "critical_path_nodes", "critical_path_by_rank")
SAMPLES = sorted(
    path.parent.relative_to(DATA).as_posix()
    for pattern in ("*/device_rank0.json.gz", "gpu/*/device_rank0.json.gz")
    for path in DATA.glob(pattern)
)
REAL = [
    "dlrm_8gpu", "captures/ddp_gloo", "captures/mlp_attn", "critical_path/event_sync.json.gz", "simple_add",
    *(f"device_only/{name}.json.gz" for name in ("a100_nccl_rank0_of_2", "h100_bert", "mi210_gpu_only", "mi300_bert")),
    *(f"device_only/{name}.json.gz" for name in ("mi300_vllm_decode_hipgraph", "mtia_inference")),
]  # fmt: skip
BUSY = re.compile(r"^  \S+ +[\d,.]+ µs +([\d.]+) %$", re.M)


def impossible(tables: dict[str, Table]) -> list[str]:
    """What cannot be, as `table column value`."""
    (replay,) = tables["critical_path_replay"].rows()
    run = max(replay["measured"], replay["replayed"])
    found = []
    for name, table in tables.items():
        for column in table.columns:
            if isinstance(column.values, list):
                continue
            values = np.asarray(column.values, np.float64)
            values = values[~np.isnan(values)]
            highest, lowest = values.max(initial=0), values.min(initial=0)
            if column.unit == "%" and column.name not in DIFFERENCES and highest > 100.0001:
                found.append(f"{name} {column.name} {highest}")
            if column.unit and column.name not in DIFFERENCES and lowest < -1e-6:
                found.append(f"{name} {column.name} {lowest}")
            if column.unit == "µs" and name in WITHIN_THE_RUN and highest > run + 0.01:
                found.append(f"{name} {column.name} {highest} of {run}")
    return found


def check(traces: Path) -> None:
    report = report_on(find_sources([traces]), ReportRequest(page=False))
    assert impossible(report.tables) == []
    for finding in report.findings:
        assert finding.gain is None or 0 < finding.gain.pct <= 100.0001
    graphs = [rank.graph for rank in read_ranks(find_sources([traces]).ranks) if rank.graph is not None]
    for scale in ([], [parse_scale("class:host=0")]):
        replayed = replay_ranks(graphs, scale)
        for share in BUSY.findall(describe(replayed, summarise(replayed), scale)):
            assert float(share) <= 100


@pytest.mark.parametrize("sample", SAMPLES)
def test_no_table_of_a_sample_says_what_cannot_be(sample: str, data: Path) -> None:
    check(data / sample)


@pytest.mark.parametrize("sample", REAL)
def test_no_table_of_a_real_trace_says_what_cannot_be(sample: str, real_traces: Path) -> None:
    check(real_traces / sample)


def test_memory_that_was_there_before_stays_to_the_end(data: Path) -> None:
    """Parameters are there throughout, though the last op that names them is long before the end."""
    tables = report_on(find_sources([data / "torch_2.1.2"]), ReportRequest(["memory_timeline"], page=False)).tables
    before = {row["device"]: row["before"] for row in tables["memory_timeline_peak"].rows()}
    last = {row["device"]: row["allocated"] for row in tables["memory_timeline"].rows()}
    assert any(before.values())
    assert all(last[device] >= size for device, size in before.items())
