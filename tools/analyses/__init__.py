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

Columns by table (`NAME_…` are details):

temporal_breakdown              rank device span busy idle compute non_compute idle_pct compute_pct non_compute_pct
                                activities
step_breakdown                  rank device step time busy computation exposed_communication idle_pct by_device bound
                                outlier
                                by_device: share of the critical path; bound: device or host; outlier: slow or fast
idle_time_breakdown             rank device stream category cause idle share gaps
                                category: host wait, kernel wait, other;
                                cause of other: `event wait on stream N`, `host sync` or ""
kernel_breakdown                rank device class time pct           also of overlaps: `computation + communication`, …
kernel_breakdown_kernels        rank class name sum pct mean std min max count
                                per class the top k, the rest as `others`
kernel_duration_distribution    name class count sum mean std min q05 q25 q50 q75 q95 q99 max
                                over all ranks; no column rank
kernel_duration_distribution_by_rank    rank name class … the same
communication_computation_overlap   rank device communication overlap exposed_communication overlap_pct
launch_statistics               rank on_device stream correlation api name activities host device delay flags
                                host, device: durations; flags: `short`, `slow call`, `long delay`, joined by `, `
launch_statistics_by_api        rank api launches host device short slow_call long_delay delay_mean delay_max
launch_statistics_delay_by_op   rank op launches delay_mean delay_median delay_max long_delay
                                op: around the call, or ""
launch_statistics_short_kernels rank from to kernels kernels_pct time time_pct
                                by duration: below 1 µs, then powers of two
counters                        rank device counter stream ts value
                                counter: `queue length`, or a kind of copy (GB/s, stream -1)
counters_summary                rank device counter stream mean max q50 q95 active at_limit
                                weighted by time; active: time above 0,
                                at_limit: time at the queue limit (unknown for bandwidth)
memory_timeline                 rank device step ts allocated reserved
                                device -1: the host; step "": before the first
memory_timeline_peak            rank device step ts peak before reserved known_by
                                before: what of the peak was there before the recording
memory_timeline_live            rank device op allocated_by blocks size pct
                                op: the outermost at the peak, allocated_by: the innermost
frequent_kernel_patterns        rank operator pattern length count device_time host_time
graph_replays                   rank graph api launches activities span span_mean time host_time ops_known
graph_replays_by_position       rank graph position name device stream count time pct mean min max op
                                over all launches of the graph
graph_replays_by_op             rank graph op kernels count time pct
                                op: `aten::linear > aten::mm`, by captures
cupti_counters                  rank op_stack kernel correlation flops COUNTER…
                                a column for each recorded counter
critical_path                   rank kind time pct
                                of the job, whose ranks are replayed together; rank: that the time is on
critical_path_replay            ranks measured replayed error explained              one row; ranks: how many
critical_path_by_rank           rank begins ends on_path on_path_pct                 on the clock that the ranks share
critical_path_nodes             rank node name kind start time device stream tid
                                pieces in order of replayed time; -1 where not on one
collectives_over_ranks          group sequence repetition collective dtype members present missing size latency
                                start_skew straggler algorithm_bandwidth bus_bandwidth imbalance
                                missing: ranks; straggler -1: nobody to wait for
collectives_over_ranks_by_size  group collective size count latency bus_bandwidth best_bandwidth of_best
                                medians; best of any size
collectives_over_ranks_by_group rank group collectives time exposed exposed_pct
collectives_over_ranks_waits_by_rank
                                rank collectives last last_pct waited awaited
                                last: came last, so that others awaited it
collectives_over_ranks_waits    rank waits_for collectives time
collectives_over_ranks_all_to_all       group source destination size
collectives_over_ranks_missing  rank group missing                                   missing: how many
per_op_device_time              rank op name thread start self subtree count          ops that own device time, by start
per_op_device_time_by_name      rank name ops self subtree count
                                count: of activities in the subtrees
per_op_device_time_by_shape     rank name shape ops self subtree count
                                shape: of all inputs, "" where none was recorded
host_phases                     rank step time forward backward optimizer data_loading waiting between_ops
                                of the main thread
host_time_per_op                rank name thread count total self mean
                                self: without the ops that it called
host_time_per_op_by_shape       rank name shape count total self mean
efficiency                      rank device op shape element kernels time intensity speed speed_pct bandwidth
                                bandwidth_pct bound peak_speed peak_bandwidth
                                of computation; bound: compute, memory or ""; percentages: of the device's peak
efficiency_by_step              rank device step time operations speed utilisation
                                operations as run, also those done again;
                                utilisation: time at the formats' peaks over that of the step
modules                         rank depth name device_self device_subtree device_pct operations_self
                                operations_subtree critical_self critical_subtree critical_pct host_self host_subtree
                                ops activities path
                                critical: of the critical path; subtree: with the modules in it;
                                path: `Net_0/Linear_2`, depth first
modules_by_function             rank function device device_pct operations critical critical_pct host ops activities
trace_diff                      kind name shape category difference count_a count_b time_a time_b
                                kind: op, call or kernel; category: added, removed, slower, faster, same
trace_diff_runs                 part a b difference change
                                part: step, run, then what they were spent on, the largest difference first
trace_diff_tree                 depth kind name category difference count_a count_b device_time_a device_time_b
                                host_time_a host_time_b path
                                call paths, depth first; difference of device time
trace_diff_modules              depth name difference count_a count_b device_time_a device_time_b host_time_a
                                host_time_b path
                                with the modules in each, depth first;
                                difference of device time, without a device of host time
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ...schema.progress import OnProgress, unseen
from .collectives import collectives_over_ranks
from .counters import counters, cupti_counters
from .critical_path import critical_path, reliability as reliability
from .efficiency import efficiency
from .graphs import graph_replays
from .host_phases import host_phases, step_starts as step_starts
from .idle_time_breakdown import idle_time_breakdown
from .kernel_breakdown import kernel_breakdown
from .kernel_duration_distribution import kernel_duration_distribution
from .launch_statistics import launch_statistics
from .memory import memory_timeline
from .modules import modules
from .ops import frequent_kernel_patterns, host_time_per_op, per_op_device_time
from .overlap import communication_computation_overlap
from .overlay import overlay_events as overlay_events
from .rank import (
    READ_STAGES as READ_STAGES,
    Analysis as Analysis,
    Column as Column,
    Floats as Floats,
    Options as Options,
    RankTrace as RankTrace,
    Table as Table,
    activity_rows as activity_rows,
    graph_of as graph_of,
    rank_of_graph as rank_of_graph,
    read_captures as read_captures,
    read_rank as read_rank,
)
from .step_breakdown import step_breakdown
from .temporal_breakdown import temporal_breakdown
from .trace_diff import trace_diff as trace_diff
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
    options: Options | None = None,
    on_progress: OnProgress = unseen,
) -> dict[str, Table]:
    """Returns the tables of all analyses, or of those named in `only`, by name and in their order, details among them.

    Ranks are taken one after the other, none is kept; `on_progress` is called for each analysis of each.

    Raises ValueError for a name that no analysis has, and without any rank.
    """
    options = options or Options()
    names = {analysis.name for analysis in ANALYSES}
    unknown = sorted(set(only or ()) - names)
    if unknown:
        raise ValueError(f"there is no analysis {', '.join(unknown)}; there are {', '.join(sorted(names))}")
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
