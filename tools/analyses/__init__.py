"""Analyses of linked traces and execution graphs of one or many ranks: tables of what the run spent its time on.

`analyse` runs all analyses, or some by name, rank after rank: ranks may come from a generator, only what an analysis
needs of a rank is kept. Each analysis alone is a callable of ANALYSES, `(ranks, options) -> Table`; `trace_diff` takes
two runs. A rank comes from its traces, `read_rank`, or from its graph alone, `rank_of_graph`.

Times are µs (float, exact from int64 ns), shares are percent, sizes bytes. Moments (`start`, `ts`) count from the first
start of the rank, as its timeline does. Tables of single ranks have a column `rank`; `device` and `stream` are added
where rows differ by them: two processes that both call their device 0 stay two.

An activity is *communication* by its recorded arguments or as a kernel of a communication library, *memory* if it
copies or sets memory, whoever records it (ROCm's runtime does so by kernels, `__amd_rocclr_copyBuffer`, MTIA by DMA
requests), else *computation*.

docs/tables.md says what the rows and columns of each table are.

Collectives over all ranks: when each member arrived, how long they took, what bandwidth they reached.

Counters: queue lengths of streams and bandwidths of copies over time, and hardware counters of kernels.

Launches of CUDA and HIP graphs, and the ops that their kernels were captured from.

Memory in use over time, and the ops that hold it at the peak: of each device, and of the host (-1).

Time by module: of a rank as a table, of two runs as a difference.

Host ops: their host time, their device time, and the sequences of kernels that they launch repeatedly.

What all analyses share: a rank's linked trace and graph, classes of activities, intervals, steps and tables.

What rules look at and return: a job's ranks, reduced to what is needed, with their replay; and findings.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ...schema.errors import nearest
from ...schema.progress import OnProgress, unseen
from .annotations import (
    USER_SCOPE as USER_SCOPE,
    are_annotations as are_annotations,
    op_path as op_path,
    with_modules as with_modules,
)
from .captures import (
    KERNEL as KERNEL,
    Capture as Capture,
    Launched as Launched,
    captures_of as captures_of,
    kinds_of as kinds_of,
    read_captures as read_captures,
)
from .classes import (
    LABELS as LABELS,
    ActivityClass as ActivityClass,
    Codes as Codes,
    activity_classes as activity_classes,
    covered_time as covered_time,
    intervals_of as intervals_of,
)
from .critical_path import critical_path, path_frame as path_frame, path_rows as path_rows, reliability as reliability
from .cupti import cupti_counters
from .efficiency import efficiency
from .finding import LEAST_PCT as LEAST_PCT, Change as Change, Finding as Finding, Gain as Gain
from .findings import find as find, together as together
from .findings_job import Job as Job, is_of_kind as is_of_kind, job_of as job_of
from .first_start import first_start_ns as first_start_ns, last_end_ns as last_end_ns
from .frequent_kernel_patterns import (
    Patterns as Patterns,
    frequent_kernel_patterns,
    occurrences as occurrences,
    pattern_times as pattern_times,
    patterns_of as patterns_of,
)
from .graph_alone import activity_rows as activity_rows, rank_of_graph as rank_of_graph
from .graph_replays import graph_replays
from .host_phases import host_phases, step_starts as step_starts
from .host_time_per_op import host_time_per_op
from .idle_time_breakdown import idle_time_breakdown
from .kernel_breakdown import kernel_breakdown
from .kernel_duration_distribution import kernel_duration_distribution
from .launch_statistics import launch_statistics
from .memory_curves import curves_of as curves_of
from .memory_timeline import memory_timeline
from .module_difference import ModuleTimes as ModuleTimes, module_difference as module_difference
from .modules import modules
from .over_ranks import collectives_over_ranks
from .over_time import ALL_STREAMS as ALL_STREAMS, counters, counters_of as counters_of
from .overlap import communication_computation_overlap
from .overlay import overlay_events as overlay_events
from .per_op_device_time import device_time_of_ops as device_time_of_ops, per_op_device_time
from .rank_facts import RankFacts as RankFacts, facts_of as facts_of
from .rank_trace import (
    READ_STAGES as READ_STAGES,
    Analysis as Analysis,
    AnalysisOptions as AnalysisOptions,
    RankTrace as RankTrace,
    graph_of as graph_of,
    per_rank as per_rank,
    read_rank as read_rank,
)
from .recorded import Allocations as Allocations, ProfilerRange as ProfilerRange
from .recording_cost import recording_cost as recording_cost
from .run_difference import WHOLE as WHOLE, WITHOUT_PROFILER as WITHOUT_PROFILER
from .step_breakdown import step_breakdown
from .steps import WHOLE_RUN as WHOLE_RUN, Steps as Steps, faster_step_us as faster_step_us, steps_of as steps_of
from .table import (
    BytesColumn as BytesColumn,
    Column as Column,
    Floats as Floats,
    Table as Table,
    integers as integers,
    microseconds as microseconds,
    percentage as percentage,
    rank_column as rank_column,
    text_column as text_column,
)
from .temporal_breakdown import temporal_breakdown
from .trace_diff import trace_diff as trace_diff
from .verdict import verdict as verdict
from .write_overlay import write_overlay as write_overlay

ANALYSES: tuple[Analysis, ...] = (
    temporal_breakdown,
    step_breakdown,
    idle_time_breakdown,
    kernel_breakdown,
    kernel_duration_distribution,
    communication_computation_overlap,
    launch_statistics,
    counters,
    memory_timeline,
    frequent_kernel_patterns,
    graph_replays,
    cupti_counters,
    critical_path,
    collectives_over_ranks,
    per_op_device_time,
    host_phases,
    host_time_per_op,
    efficiency,
    modules,
)


def analyse(
    ranks: Iterable[RankTrace],
    only: Sequence[str] | None = None,
    options: AnalysisOptions | None = None,
    on_progress: OnProgress = unseen,
) -> dict[str, Table]:
    """Returns the tables of all analyses, or of those named in `only`, by name and in their order, details among them.

    Ranks are taken one after the other, none is kept; `on_progress` is called for each analysis of each.

    Raises ValueError for a name that no analysis has, and without any rank.
    """
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
