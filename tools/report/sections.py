"""The sections of the page, an analysis each, in five groups; and what the words of the page mean."""

from collections.abc import Callable
from typing import NamedTuple

from ..analyses import Table
from . import charts, curves, module_tree, statements
from .drawing import Chart, RankedBars, StackedBars
from .statements import Statement

OF_NO_RECORDING = {"what_if", "trace_diff", "memory_timeline", "cupti_counters"}
"""The sections that say themselves which run they are of, or whose figures are no times."""
WORDS = {
    "host": "an op or a call of the CPU at work",
    "waiting": "a call of the CPU that waits for a device",
    "idle": "of a host thread: nothing was recorded, mostly Python between ops; of a device: nothing ran",
    "computation": "a kernel that neither communicates nor only copies",
    "communication": "a collective, a send or a receive, from its start on the rank to its end, waiting for the other "
    "ranks included",
    "memory": "a copy or a set of memory",
    "unrecorded": "time in which the host was at work that no trace recorded",
    "metadata": "nodes that only say something of others",
    "delay": "time in which, as far as the traces show, nothing was waited for",
    "carry-in": "a delay: work from before the recording still kept the stream busy",
    "launch": "from the end of the launching work on the host to the start on a free stream",
    "stream order": "the gap between an activity and the one before it on its stream",
    "event wait": "from an awaited event of another stream to the start",
    "host sync": "from the end of what the host waited for until the host goes on",
    "hand-off": "from one host thread's coming so far until another goes on",
    "collective": "after a collective that had to be done",
    "tensor flow": "after the op that wrote what is read",
    "program order": "between an op and the one before it on its thread",
    "gap": "a wait whose reason the graph does not say",
    "host delay": "host work that was left out of a graph of the device alone, where the device waited for it",
    "start offset": "a rank began later than the first one: either its recording did, or the rank was late: no trace shows which",
    "unknown start": "a thread or stream whose first work waits for nothing in the graph starts when it did",
    "hidden communication": "beside computation, so that it costs nothing",
    "exposed communication": "beside no computation, so that the run waits for it",
}


class Shown(NamedTuple):
    """How a table is shown: with a chart, and of many rows those with the largest values of the column `by`."""

    chart: Callable[[Table], list[Chart]] | None = None
    by: str = ""


ROWS = Shown()


class Section(NamedTuple):
    """An analysis: the label of its link, what its tables prove, how to read it, and how its tables are shown."""

    name: str
    label: str
    statement: Statement
    reads: str
    tables: dict[str, Shown]


SECTIONS = {
    "Overview": (
        Section(
            "what_if",
            "What if",
            statements.what_if,
            "The run replayed with changed durations: what it would take in all, as work that ran beside the change then "
            "limits it. Nodes says to how many a change applies, matched how long these took as recorded.",
            {"what_if": Shown(charts.what_if)},
        ),
        Section(
            "trace_diff",
            "Difference",
            statements.difference,
            "Run B less run A: step and run first, then what they were spent on; then by name and shape, by call path, which shows where a "
            "moved or fused kernel went, and by module.",
            {
                "trace_diff": Shown(charts.trace_diff),
                "trace_diff_runs": ROWS,
                "trace_diff_tree": ROWS,
                "trace_diff_modules": ROWS,
            },
        ),
    ),
    "Time": (
        Section(
            "temporal_breakdown",
            "Busy and idle",
            statements.busy_devices,
            "Busy is the time in which anything runs on a device, idle the rest between its first and last activity.",
            {
                "temporal_breakdown": Shown(
                    StackedBars(
                        "time [µs]",
                        ("time [µs]", "share [%]"),
                        {"compute": "computation", "non_compute": "other activities", "idle": "idle"},
                    )
                )
            },
        ),
        Section(
            "step_breakdown",
            "Steps",
            statements.steps,
            "A step lasts until its mark and all that it launched have ended. It is bound by what most of the critical path of its rank, "
            "replayed alone, is: work of the device, or of the host, which then is what to make faster.",
            {"step_breakdown": Shown(charts.step_breakdown)},
        ),
        Section(
            "host_phases",
            "Phases",
            statements.host_phases,
            "What the main thread did in each step: ops of the forward and the backward pass, the optimizer, the next batch, "
            "waiting for the device, other threads or ranks, and Python between ops.",
            {"host_phases": ROWS},
        ),
        Section(
            "idle_time_breakdown",
            "Idle time",
            statements.idle_cause,
            "Why a stream stood still: the launch came after the stream was free (host wait), the start took its usual "
            "pause (kernel wait, below {options.kernel_wait_us:g} µs), or the work was there but held back (other).",
            {
                "idle_time_breakdown": Shown(
                    StackedBars(
                        "idle [µs]",
                        ("cause", "idle [µs]", "share [%]", "gaps"),
                        part="category",
                        order=lambda row: ("host wait", "kernel wait", "other").index(row["part"]),
                        title="idle",
                    )
                )
            },
        ),
        Section(
            "kernel_breakdown",
            "Kernels",
            statements.heaviest_kernel,
            "What ran on the devices, classes that overlap counted once. Ticks are single ranks, bars their mean.",
            {
                "kernel_breakdown": Shown(
                    StackedBars(
                        "time [µs]",
                        ("time [µs]", "pct [%]"),
                        part="class",
                        order=lambda row: (row["part"].count("+"), row["part"]),
                    )
                ),
                "kernel_breakdown_kernels": Shown(
                    RankedBars("{name}", "sum [µs]", "total time", ("pct [%]", "count"), part="class", skip="others")
                ),
            },
        ),
        Section(
            "critical_path",
            "Critical path",
            statements.whole_critical_path,
            "The chain of work and waits that the job's length consists of; anything beside it can get faster without effect. "
            "All ranks are replayed together, and the rank of a row is the one that the chain is on. "
            "It goes from rank to rank through a collective or a message, whose time counts for the rank that came last to it.",
            {
                "critical_path": Shown(
                    StackedBars("time [µs]", ("time [µs]", "pct [%]"), part="kind", order=lambda row: -row["time"])
                ),
                "critical_path_replay": ROWS,
                "critical_path_by_rank": Shown(by="on_path"),
                "critical_path_between_ranks": Shown(by="time"),
                "critical_path_nodes": Shown(by="time"),
            },
        ),
        Section(
            "per_op_device_time",
            "Ops",
            statements.ops_of_device,
            "Device time of what an op launched itself, and of its whole subtree.",
            {
                "per_op_device_time_by_name": Shown(
                    RankedBars(
                        "{name}", "self [µs]", "time of the op's own activities", ("subtree [µs]", "ops", "count")
                    ),
                    by="self",
                ),
                "per_op_device_time_by_shape": Shown(by="self"),
                "per_op_device_time": Shown(by="self"),
            },
        ),
        Section(
            "host_time_per_op",
            "Host",
            statements.ops_of_host,
            "How long ops kept the host: with all that they called, and by themselves, runtime calls included.",
            {
                "host_time_per_op": Shown(
                    RankedBars(
                        "{name}", "self [µs]", "time of the op itself on the host", ("thread", "total [µs]", "count")
                    ),
                    by="self",
                ),
                "host_time_per_op_by_shape": Shown(by="self"),
            },
        ),
    ),
    "Communication": (
        Section(
            "communication_computation_overlap",
            "Overlap",
            statements.hidden_communication,
            "Communication that runs beside computation costs nothing; what is exposed makes the run longer.",
            {
                "communication_computation_overlap": Shown(
                    StackedBars(
                        "time [µs]",
                        ("time [µs]", "overlap_pct [%]"),
                        {"overlap": charts.HIDDEN, "exposed_communication": charts.EXPOSED},
                        title="communication",
                    )
                )
            },
        ),
        Section(
            "collectives_over_ranks",
            "Collectives",
            statements.collectives,
            "A collective starts for all when the last rank arrives: latency is the shortest duration of any member, skew "
            "the wait for the last.",
            {
                "collectives_over_ranks_by_size": ROWS,
                "collectives_over_ranks_by_group": Shown(by="exposed"),
                "collectives_over_ranks_waits_by_rank": Shown(by="waited"),
                "collectives_over_ranks_waits": Shown(charts.collectives_over_ranks_waits, by="time"),
                "collectives_over_ranks_all_to_all": Shown(charts.collectives_over_ranks_all_to_all, by="size"),
                "collectives_over_ranks": Shown(charts.collectives_over_ranks, by="start_skew"),
                "collectives_over_ranks_missing": ROWS,
            },
        ),
    ),
    "Memory": (
        Section(
            "memory_timeline",
            "Memory",
            statements.memory,
            "Bytes in use, and what lives at the peak, by the op that got it. What stays from step to step is the model; "
            "what grows and falls with each are activations and gradients.",
            {
                "memory_timeline_peak": ROWS,
                "memory_timeline_live": Shown(by="size"),
                "memory_timeline": Shown(curves.memory_timeline, by="allocated"),
            },
        ),
    ),
    "Details": (
        Section(
            "kernel_duration_distribution",
            "Durations",
            statements.durations,
            "Boxes hold the middle half of a kernel's durations over all ranks, lines reach from the 5th to the 95th "
            "percentile.",
            {
                "kernel_duration_distribution": Shown(charts.kernel_duration_distribution, by="sum"),
                "kernel_duration_distribution_by_rank": Shown(by="sum"),
            },
        ),
        Section(
            "launch_statistics",
            "Launches",
            statements.launches,
            "Each point is a launch. Short: the device was done sooner than the call; slow: a call above "
            "{options.slow_call_us:g} µs; long delay: more than {options.long_delay_us:g} µs from call to start, which is "
            "good where the host runs ahead.",
            {
                "launch_statistics_by_api": Shown(
                    RankedBars("{api}", "host [µs]", "host time in calls", ("launches", "delay_mean [µs]"))
                ),
                "launch_statistics_delay_by_op": ROWS,
                "launch_statistics_short_kernels": Shown(charts.launch_statistics_short_kernels),
                "launch_statistics": Shown(charts.launch_statistics, by="delay"),
            },
        ),
        Section(
            "counters",
            "Queues and copies",
            statements.queues,
            "Work queued on a stream keeps the device busy; at 0 it waits for the host, at the limit "
            "({options.queue_limit}) the host waits for it.",
            {"counters_summary": ROWS, "counters": Shown(charts.counters)},
        ),
        Section(
            "frequent_kernel_patterns",
            "Patterns",
            statements.patterns,
            "Operators that launch the same kernels in the same order, over and over, are candidates for fusion or graphs.",
            {
                "frequent_kernel_patterns": Shown(
                    RankedBars(
                        "{operator}: {pattern}", "device_time [µs]", "time on the device", ("count", "host_time [µs]")
                    ),
                    by="device_time",
                )
            },
        ),
        Section(
            "graph_replays",
            "Graphs",
            statements.graphs,
            "What a launched CUDA or HIP graph does, kernel by kernel. No op launches these, but each has its place in "
            "the graph, and with a trace of the capture (--capture-trace) the op that it was captured from, or what the "
            "program marked it as (PyTorch's mark_kernels).",
            {
                "graph_replays": Shown(by="time"),
                "graph_replays_by_op": Shown(by="time"),
                "graph_replays_by_position": Shown(by="time"),
            },
        ),
        Section(
            "cupti_counters",
            "CUPTI",
            statements.hardware_counters,
            "Hardware counters of the kernels and ops that they measured.",
            {"cupti_counters": Shown(RankedBars("{kernel}", "flops []", "floating-point operations", ("op_stack",)))},
        ),
        Section(
            "efficiency",
            "Efficiency",
            statements.efficiency,
            "What kernels reach of what their device can do at most, by the work of the op that launched them. Dashed: "
            "the roof, up along the memory bandwidth, then flat at the peak; what lies far below is limited by something "
            "else, often by being small.",
            {"efficiency": Shown(charts.efficiency, by="time"), "efficiency_by_step": ROWS},
        ),
        Section(
            "modules",
            "Modules",
            statements.modules,
            "What each module of the model takes, forward and backward, with the modules in it: a module is as wide as "
            "its share, and lies below the one that calls it.",
            {"modules": Shown(module_tree.modules), "modules_by_function": ROWS},
        ),
    ),
}
"""The sections by their group, in the order of the page."""
OVERVIEW, *_, DETAILS = SECTIONS
"""The group of what comes before the first heading, and the one whose sections are folded."""
