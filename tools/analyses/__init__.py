"""Analyses of linked traces and execution graphs, as tables of what a run spent its time on, and rules for findings.

Times are µs (float, exact from int64 ns), shares are percent, sizes bytes. Moments (`start`, `ts`) count from the first
start of the rank, as its timeline does. docs/report-tables.md says what the rows and columns of each table are.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ...schema.errors import nearest
from ...schema.progress import OnProgress, unseen
from .collectives import collectives_over_ranks
from .critical_path import critical_path, path_frame, path_rows, step_breakdown
from .device_time import (
    communication_computation_overlap, frequent_kernel_patterns, idle_time_breakdown, kernel_breakdown,
    kernel_duration_distribution, launch_statistics, temporal_breakdown,
)  # fmt: skip
from .differences import DATA_WITHOUT_PROFILER, RUN, SYMPTOMS, WHOLE, WITHOUT_PROFILER, trace_diff
from .efficiency import cupti_counters, efficiency
from .findings import find, together, verdict
from .graphs import graph_replays, read_captures
from .job import Finding, Gain, Job, RankFacts, facts_of, job_of
from .modules import modules
from .ops import host_phases, host_time_per_op, per_op_device_time
from .over_time import QUEUE_LENGTH, counters, memory_timeline
from .overlay import overlay_events, write_overlay
from .rank import Analysis, AnalysisOptions, RankTrace, faster_step_us, lost_work
from .reading import READ_STAGES, graph_of, rank_of_graph, read_rank
from .table import Column, Table, named, tabulate

ANALYSES: tuple[Analysis, ...] = (
    temporal_breakdown, step_breakdown, idle_time_breakdown, kernel_breakdown, kernel_duration_distribution,
    communication_computation_overlap, launch_statistics, counters, memory_timeline, frequent_kernel_patterns,
    graph_replays, cupti_counters, critical_path, collectives_over_ranks, per_op_device_time, host_phases,
    host_time_per_op, efficiency, modules,
)  # fmt: skip


def analyse(
    ranks: Iterable[RankTrace],
    only: Sequence[str] | None = None,
    options: AnalysisOptions | None = None,
    on_progress: OnProgress = unseen,
) -> dict[str, Table]:
    """Returns the tables of all analyses, or those in `only`, by name; raises ValueError for wrong names or no rank."""
    options = options or AnalysisOptions()
    names = {analysis.name for analysis in ANALYSES}
    for unknown in sorted(set(only or ()) - names):
        raise ValueError(f"there is no analysis {unknown!r}{nearest(unknown, sorted(names))}")
    chosen = [analysis for analysis in ANALYSES if only is None or analysis.name in only]

    def parts_of(rank: RankTrace) -> list[Any]:
        parts = []
        for analysis in chosen:
            parts.append(analysis.of_rank(rank, options))
            on_progress(1)
        return parts

    parts = list(map(parts_of, ranks))  # holds no rank while the next one is read
    if not parts:
        raise ValueError("there is no rank to analyse")
    by_analysis = list(zip(*parts, strict=True))
    del parts
    tables = [analysis.over_ranks(by_analysis.pop(0), options) for analysis in chosen]  # parts go as tables come
    return {table.name: table for whole in tables for table in whole.with_details()}
