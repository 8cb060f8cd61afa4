"""The sections of the page, an analysis each, in five groups."""

from typing import NamedTuple

OF_NO_RECORDING = {"trace_diff", "memory_timeline", "cupti_counters"}
"""The sections that say themselves which run they are of, or whose figures are no times."""
LARGEST = {
    "critical_path_by_rank": "on_path", "critical_path_between_ranks": "time", "critical_path_nodes": "time",
    "per_op_device_time_by_name": "self", "per_op_device_time_by_shape": "self", "per_op_device_time": "self",
    "host_time_per_op": "self", "host_time_per_op_by_shape": "self",
    "collectives_over_ranks_by_group": "exposed", "collectives_over_ranks_waits_by_rank": "waited",
    "collectives_over_ranks_waits": "time", "collectives_over_ranks_all_to_all": "size",
    "collectives_over_ranks": "start_skew", "memory_timeline_live": "size", "memory_timeline": "allocated",
    "kernel_duration_distribution": "sum", "kernel_duration_distribution_by_rank": "sum",
    "launch_statistics": "delay", "frequent_kernel_patterns": "device_time",
    "graph_replays": "time", "graph_replays_by_op": "time", "graph_replays_by_position": "time", "efficiency": "time",
}  # fmt: skip
"""The column of which a long table shows the rows with the largest values; of others it shows the first rows."""


class Section(NamedTuple):
    """An analysis: the label of its link, how to read it, and its tables in the order of the page, named `NAME…`."""

    name: str
    label: str
    reads: str
    details: tuple[str, ...] = ("",)

    @property
    def tables(self) -> list[str]:
        """The names of the tables."""
        return [f"{self.name}{detail}" for detail in self.details]


SECTIONS = {
    "Overview": (
        Section("trace_diff", "Difference", "Run B less run A: step and run first, then what they were spent on; then "
                "by name and shape, by call path, which shows where a moved or fused kernel went, and by module.",
                ("", "_runs", "_tree", "_modules")),
    ),
    "Time": (
        Section("temporal_breakdown", "Busy and idle", "Busy is the time in which anything runs on a device, idle the "
                "rest between its first and last activity."),
        Section("step_breakdown", "Steps", "A step lasts until its mark and all that it launched have ended. It is "
                "bound by what most of the critical path of its rank, replayed alone, is: work of the device, or of "
                "the host, which then is what to make faster."),
        Section("host_phases", "Phases", "What the main thread did in each step: backward pass, optimizer, next batch, "
                "all other ops (the forward pass, and logging for example), waiting for the device, other threads or "
                "ranks, and Python between ops."),
        Section("idle_time_breakdown", "Idle time", "Why a stream stood still: the launch came after the stream was "
                "free (host wait), the start took its usual pause (kernel wait, below {options.kernel_wait_us:g} µs), "
                "or the work was there but held back (other)."),
        Section("kernel_breakdown", "Kernels", "What ran on the devices, classes that overlap counted once. Ticks are "
                "single ranks, bars their mean.", ("", "_kernels")),
        Section("critical_path", "Critical path", "The chain of work and waits that the job's length consists of; "
                "anything beside it can get faster without effect. All ranks are replayed together, and the rank of a "
                "row is the one that the chain is on. It goes from rank to rank through a collective or a message, "
                "whose time counts for the rank that came last to it.",
                ("", "_replay", "_by_rank", "_between_ranks", "_nodes")),
        Section("per_op_device_time", "Ops", "Device time of what an op launched itself, and of its whole subtree.",
                ("_by_name", "_by_shape", "")),
        Section("host_time_per_op", "Host", "How long ops kept the host: with all that they called, and by themselves, "
                "runtime calls included.", ("", "_by_shape")),
    ),
    "Communication": (
        Section("communication_computation_overlap", "Overlap", "Communication that runs beside computation costs "
                "nothing; what is exposed makes the run longer."),
        Section("collectives_over_ranks", "Collectives", "A collective starts for all when the last rank arrives: "
                "latency is the shortest duration of any member, skew the wait for the last.",
                ("_by_size", "_by_group", "_waits_by_rank", "_waits", "_all_to_all", "", "_missing")),
    ),
    "Memory": (
        Section("memory_timeline", "Memory", "Bytes in use, and what lives at the peak, by the op that got it. What "
                "stays from step to step is the model; what grows and falls with each are activations and gradients.",
                ("_peak", "_live", "")),
    ),
    "Details": (
        Section("kernel_duration_distribution", "Durations", "Boxes hold the middle half of a kernel's durations over "
                "all ranks, lines reach from the 5th to the 95th percentile.", ("", "_by_rank")),
        Section("launch_statistics", "Launches", "Short: the device was done sooner than the "
                "call; slow: a call above {options.slow_call_us:g} µs; long delay: more than {options.long_delay_us:g} "
                "µs from call to start, which is good where the host runs ahead.",
                ("_by_api", "_delay_by_op", "_short_kernels", "")),
        Section("counters", "Queues and copies", "Work queued on a stream keeps the device busy; at 0 it waits for the "
                "host, at the limit ({options.queue_limit}) the host waits for it.", ("_summary", "")),
        Section("frequent_kernel_patterns", "Patterns", "Operators that launch the same kernels in the same order, "
                "over and over, are candidates for fusion or graphs."),
        Section("graph_replays", "Graphs", "What a launched CUDA or HIP graph does, kernel by kernel. No op launches "
                "these, but each has its place in the graph, and with a trace of the capture (--capture-trace) the op "
                "that it was captured from, or what the program marked it as (PyTorch's mark_kernels).",
                ("", "_by_op", "_by_position")),
        Section("cupti_counters", "CUPTI", "Hardware counters of the kernels and ops that they measured."),
        Section("efficiency", "Efficiency", "What kernels reach of what their device can do at most, by the work of "
                "the op that launched them. Dashed: the roof, up along the memory bandwidth, then flat at the peak; "
                "what lies far below is limited by something else, often by being small.", ("", "_by_step")),
        Section("modules", "Modules", "What each module of the model takes, forward and backward, with the modules in "
                "it: a bar is as long as its share, and a module lies below the one that calls it.", ("", "_by_function")),
    ),
}  # fmt: skip
"""The sections by their group, in the order of the page."""
OVERVIEW, *_, DETAILS = SECTIONS
"""The group of what comes before the first heading, and the one whose sections are folded."""
