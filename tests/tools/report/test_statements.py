"""What each section of the page proves: the sentences follow from the figures of the tables."""

from pathlib import Path

import numpy as np
import pytest
from execgraph.tools.analyses import Table
from execgraph.tools.report import find_sources, report_on
from execgraph.tools.report.sections import SECTIONS
from support.reports import table

STATEMENTS = {section.name: section.statement for sections in SECTIONS.values() for section in sections}


def test_without_rows_no_section_proves_anything() -> None:
    assert {statement({}) for statement in STATEMENTS.values()} == {""}


@pytest.mark.parametrize(
    ("section", "tables", "sentence"),
    [
        (
            "temporal_breakdown", table("temporal_breakdown", span=[100.0, 300.0], busy=[50.0, 250.0], compute=[40.0, 60.0]),
            "From first to last activity devices are busy for 75 % of the time, computing for 25 %.",
        ),
        (
            "step_breakdown", table("step_breakdown", time=[10.0, 30.0, 2000.0], outlier=["", "", "long"]),
            "3 steps of all ranks take 30.0 µs in the median, 10.0 µs to 2.00 ms; 1 stand out.",
        ),
        (
            "memory_timeline",
            table("memory_timeline_peak", rank=[0, 3], device=[0, 1], step=["", "step 2"], peak=[10, 3 << 20], before=[0, 1 << 20]),
            "Memory of device 1 of rank 3 peaks at 3.0 MiB, in step 2; 1.0 MiB were there before the recording.",
        ),
        ("critical_path", table("critical_path", kind=["host"], time=[3.0]), "All of the critical path is host time."),
        (
            "critical_path", table("critical_path", kind=["host", "communication"], time=[994.0, 6.0]),
            "99 % of the critical path is host time.",
        ),
        (
            "launch_statistics", table("launch_statistics_by_api", launches=[30, 10], short=[9, 1]),
            "25 % of 40 launches take the host longer than the device takes for what they launch.",
        ),
        (
            "cupti_counters", table("cupti_counters", kernel=["gemm", "add", "gemm"], flops=[8e9, 1e9, 8e9]),
            "Counters were recorded of 3 kernels; most floating-point operations are of gemm.",
        ),
        ("cupti_counters", table("cupti_counters", kernel=["add"], flops=[np.nan]), "Counters were recorded of 1 kernel."),
        (
            "modules", table("modules", depth=[0, 0], path=["A", "B"], device_subtree=[0.0, 0.0], host_subtree=[7.0, 3.0]),
            "A takes 70 % of the host time in modules.",
        ),
        (
            "trace_diff", table("trace_diff", name=["ProfilerStep#1", "gemm"], difference=[-9e6, -3e3]),
            "gemm differs most: 3.00 ms less in run B.",
        ),
        (
            "trace_diff", table("trace_diff_runs", part=["run", "device: idle", "host: forward"], difference=[9e3, 500.0, -40.0]),
            "Device idle differs most: 500.0 µs more in run B.",
        ),
    ],
)  # fmt: skip
def test_a_section_says_what_its_figures_prove(section: str, tables: dict[str, Table], sentence: str) -> None:
    assert STATEMENTS[section](tables) == sentence


def test_every_section_with_a_chart_proves_something(data: Path) -> None:
    report = report_on(find_sources([data / "training"]))
    proved = {name for name, statement in STATEMENTS.items() if statement(report.tables)}
    assert proved == {name for name in STATEMENTS if name in report.tables and len(report.tables[name])}
