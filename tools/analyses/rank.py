"""One rank for the analyses: its linked trace, graph and replay, and what several analyses need of it, computed once.

An analysis is a function from a rank and the options to a Table (`per_rank`), or a pair of steps where it is over all
ranks (`Analysis`), so that only what was extracted of a rank stays in memory.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...converter.rewiring import HOST_TIME_AFTER
from ...converter.work import KernelWork, kernel_work
from ...linker.lost_records import launch_calls
from ...schema import columns
from ...schema.columns import ABSENT, Bool, Categorical, Int64, Intervals, NestedIntervals, OpRows, ThreadIntervals
from ...schema.graph import ExecutionGraph, NodeType
from ...schema.linked import USER_SCOPE, LinkedTrace, Ops, are_step_marks, op_tree
from ...schema.reasons import Counts, Reason
from ..replay import Replay, moves_memory, replay
from .table import Table, concat

WHOLE_RUN = "whole run"
SLOWED = 0.98
"""A step without a profiler that takes at least this share of the recorded ones was hardly slowed by recording."""
MOST_LOST = 0.01
"""Without a larger share of its work a device's idle time is not known."""
NO_ACTIVITIES = "no device activity was recorded"


class ActivityClass(IntEnum):
    """What an activity does: computes, communicates, or copies and sets memory."""

    COMPUTATION = 0
    COMMUNICATION = 1
    MEMORY = 2

    @property
    def label(self) -> str:
        """The name in lower case."""
        return self.name.lower()


LABELS = tuple(activity_class.label for activity_class in ActivityClass)


class Steps(NamedTuple):
    """Steps in order of time (ns), and for each activity the step that launched it, -1 for none.

    A step ends when its mark and all that it launched have ended. It starts with its mark, but not in the step before.
    """

    name: list[str]
    start: Int64
    end: Int64
    of_activity: Int64


class Launched(NamedTuple):
    """A launch: KERNEL, COPY or SET, what it runs and its graph node ("" and -1: not recorded), and its op's path."""

    kind: str
    name: str
    node: int
    op: str


class Capture(NamedTuple):
    """Launches in their order: those of one captured graph (`whole`), or all launches outside of captures."""

    launches: list[Launched]
    whole: bool


class ProfilerRange(NamedTuple):
    """The hardware counters of one kernel, or of a range that the user chose; `start` (ns) only gives the order."""

    name: str
    device: int
    start: int
    counters: dict[str, float]


class Allocations(NamedTuple):
    """Allocations and releases (`size` below 0) in bytes and order of time (ns); `device` is -1 for the host."""

    time: Int64
    process: Int64
    thread: Int64
    device: Int64
    address: Int64
    size: Int64
    allocated: Int64
    reserved: Int64

    def where(self, chosen: Bool | Int64) -> "Allocations":
        """Returns the chosen rows."""
        return Allocations(*(column[chosen] for column in self))


NO_ALLOCATIONS = Allocations(*np.empty((8, 0), np.int64))


@dataclass(slots=True)
class Recorded:
    """What a device trace records besides work and waits.

    `marks` are texts by graph node of PyTorch's `mark_kernels`; `kernels` are names by correlation id that calls record
    during capture, None where they are not to be read.
    """

    ranges: list[ProfilerRange] = field(default_factory=list)
    allocations: Allocations = NO_ALLOCATIONS
    are_of_details: bool = False
    marks: dict[int, str] = field(default_factory=dict)
    kernels: dict[int, str] | None = None


@dataclass(eq=False)
class RankTrace:
    """One rank. Without `graph` the analyses that need it return no rows and say so.

    `path` is "" if the rank was not read from a device trace. Times in tables count from `begin` (ns). `timed_ops` are
    the ops that have a time: threads and the process are rows, too.
    """

    rank: int
    linked: LinkedTrace
    graph: ExecutionGraph | None = None
    recorded: Recorded = field(default_factory=Recorded)
    path: str = ""

    def __post_init__(self) -> None:
        activities = self.linked.activities
        self.begin, self.end = span_ns(self.linked)
        self.timed_ops = np.flatnonzero(self.linked.ops.start != ABSENT)
        self.intervals = Intervals(activities.start, activities.end)
        self.durations = activities.end - activities.start
        # communication is told by recorded arguments or library, memory by category or name
        self.classes = np.full(len(activities), ActivityClass.COMPUTATION, np.int32)
        self.classes[moves_memory(activities.name, activities.category)] = ActivityClass.MEMORY
        self.classes[activities.communication_row >= 0] = ActivityClass.COMMUNICATION

    @cached_property
    def replay(self) -> Replay | None:
        """The replay of the graph alone; None without a graph or with one that has no nodes."""
        return replay(self.graph) if self.graph is not None and len(self.graph) else None

    @cached_property
    def tree(self) -> columns.Tree:
        """Which op called which."""
        return op_tree(self.linked.ops)

    @cached_property
    def shapes(self) -> Categorical:
        """The shapes of each op's inputs as a JSON list, such as `[[4,8],[]]`; "" if it has none."""
        return self.linked.ops.arguments.input_shapes

    @cached_property
    def work(self) -> KernelWork:
        """The operations and bytes of each activity."""
        return kernel_work(self.linked, self.tree)

    @cached_property
    def steps(self) -> Steps:
        """The steps marked by `ProfilerStep#N`; without marks the whole run is a step, without activities none."""
        ops, activities, calls = self.linked.ops, self.linked.activities, self.linked.calls
        has_call = activities.call_row >= 0
        launched = np.where(has_call, columns.RowMap(calls.start)[activities.call_row], activities.start)
        marks = np.flatnonzero(are_step_marks(ops.name) & (ops.start != ABSENT))
        marks = marks[np.argsort(ops.start[marks], kind="stable")]
        # of several threads that mark a step the first one counts
        marks = marks[np.sort(np.unique(ops.name.codes[marks], return_index=True)[1])]
        if not len(marks):
            begin, end = np.array([[self.begin], [self.end]])[:, : len(launched)]
            return Steps([WHOLE_RUN][: len(launched)], begin, end, np.zeros(len(launched), np.int64))
        begun = ops.start[marks]
        of_activity = np.searchsorted(begun, launched, side="right") - 1
        until, inside = ops.end[marks].copy(), of_activity >= 0
        np.maximum.at(until, of_activity[inside], activities.end[inside])
        until = np.clip(np.maximum.accumulate(until), self.begin, max(self.end, self.begin))
        start = np.clip(np.maximum(begun, np.append(begun[:1], until[:-1])), self.begin, until)
        return Steps(ops.name[marks], start, until, of_activity)

    def innermost_ops(self, thread: Int64, time: Int64) -> OpRows:
        """Returns the innermost op that was running on each thread at a time, -1 for none."""
        ops, timed = self.linked.ops, self.timed_ops
        intervals = ThreadIntervals(ops.thread[timed], ops.start[timed], ops.end[timed])
        nested = NestedIntervals(intervals, columns.within(timed, self.tree.parent))
        return OpRows(np.append(timed, -1)[nested.innermost(ThreadIntervals.at(thread, time))])

    def op_path(self, row: int) -> list[str]:
        """Returns the names of an op and of those that enclose it, outermost first, without the user's annotations."""
        ops = self.linked.ops
        return [ops.name[op] for op in self.tree.path(row) if ops.scope[op] != USER_SCOPE]

    def since_begin(self, time: Int64) -> Int64:
        """Returns how long (ns) after the first start of the rank a time is, 0 before it."""
        return np.maximum(time - self.begin, 0)

    def covered_time(self, chosen: Bool, spans: Intervals, device: Int64 | None) -> Int64:
        """Returns for each span how long (ns) any of the chosen activities of its device ran; None: of any device."""
        covered = np.zeros(len(spans.start), np.int64)
        rows = np.flatnonzero(chosen)
        running = columns.rows_by_number(rows, self.linked.activities.device) if device is not None else {}
        spans_by_device = columns.rows_of_each(device) if device is not None else {None: np.arange(len(covered))}
        for number, span_rows in spans_by_device.items():
            ran = self.intervals.take(rows if number is None else running.get(number, rows[:0]))
            covered[span_rows] = columns.covered_within(spans.take(span_rows), ran)
        return covered


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """Thresholds of the analyses, and how much they show.

    >>> import execgraph as eg
    >>> options = eg.AnalysisOptions(top=1, peaks={"fp32": 19.5})
    >>> report = eg.report("tests/data/training", only="kernel_breakdown", options=options)
    >>> len(report.tables["kernel_breakdown_kernels"])
    8

    Args:
        kernel_wait_us: A shorter gap on a stream counts as the kernel's own wait, unless the host was late.
        slow_call_us: A launch call that takes longer is slow.
        long_delay_us: Work that starts later after its call has a long delay.
        queue_limit: How many launched activities a stream's queue holds.
        top: How many kernels of each class to name.
        quantiles: The quantiles of distributions.
        operator: Kernel patterns are searched in operators whose name contains this text.
        longest_pattern: Patterns of more kernels are only counted.
        peaks: Numbers of `--peak` by their name, which override those of all devices.
        captures: Where the ops behind launched graphs are looked up, beside the rank's own trace.
    """

    kernel_wait_us: float = 30
    slow_call_us: float = 50
    long_delay_us: float = 100
    queue_limit: int = 1024
    top: int = 10
    quantiles: tuple[float, ...] = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
    operator: str = ""
    longest_pattern: int = 64
    peaks: Mapping[str, float] = field(default_factory=dict)
    captures: Sequence[Capture] = ()


class Analysis(NamedTuple):
    """An analysis in two steps: `of_rank` extracts what it needs of a rank, `over_ranks` makes the table of all."""

    name: str
    of_rank: Callable[[RankTrace, AnalysisOptions], Any]
    over_ranks: Callable[[Sequence[Any], AnalysisOptions], Table]

    def __call__(self, ranks: Iterable[RankTrace], options: AnalysisOptions | None = None) -> Table:
        """Returns the table over all ranks, of which there must be at least one."""
        options = options or AnalysisOptions()
        return self.over_ranks([self.of_rank(rank, options) for rank in ranks], options)


def per_rank(table_of: Callable[[RankTrace, AnalysisOptions], Table]) -> Analysis:
    """Makes an analysis of a function of that name, whose tables of single ranks get a column `rank`."""

    return Analysis(
        table_of.__name__, lambda rank, options: (rank.rank, table_of(rank, options)), lambda parts, _: concat(parts)
    )


def activity_rows(graph: ExecutionGraph) -> columns.Rows:
    """Returns the rows of the nodes that are activities; not of those that only wait until the rank begins or ends."""
    only_waits = graph.name.equal(HOST_TIME_AFTER) | graph.is_start_offset
    return np.flatnonzero(graph.is_activity & (graph.type != NodeType.METADATA) & ~only_waits)


def are_annotations(ops: Ops) -> Bool:
    """Returns which ops are annotations of the user with a time, without those that mark steps."""
    annotates: Bool = (ops.scope == USER_SCOPE) & (ops.start != ABSENT) & ~are_step_marks(ops.name)
    return annotates


def span_ns(linked: LinkedTrace) -> tuple[int, int]:
    """Returns the first start and last end (ns) of ops, calls and activities, but not of step marks; 0 without any."""
    ops, calls, activities = linked.ops, linked.calls, linked.activities
    is_work = (ops.start != ABSENT) & ~are_step_marks(ops.name)
    starts, ends = (ops.start[is_work], calls.start, activities.start), (ops.end[is_work], calls.end, activities.end)
    first = min((int(start.min()) for start in starts if len(start)), default=0)
    return first, max((int(end.max()) for end in ends if len(end)), default=0)


def faster_step_us(linked: LinkedTrace) -> float:
    """Returns how long a step takes without a profiler (µs); 0 if not known, or recorded steps take about as long."""
    marks = int(are_step_marks(linked.ops.name).sum())
    (begin, end), without_ns = span_ns(linked), linked.info.step_without_profiler_ns
    return without_ns / 1000 if 0 < marks * without_ns < SLOWED * (end - begin) else 0.0


def lost_work(linked: LinkedTrace) -> Counts:
    """Returns what the trace lacks of the work of devices, or which rows of it are wrong; nothing if that is little."""
    odd, launches, few = linked.report.oddities, len(launch_calls(linked.calls)), MOST_LOST * len(linked.activities)
    if (alone := odd[Reason.LAUNCHES_WITHOUT_ACTIVITY]) > (MOST_LOST * launches or few):
        return Counts({Reason.LAUNCHES_WITHOUT_ACTIVITY: alone})
    least = dict.fromkeys((Reason.OPS_WITHOUT_CALLS, Reason.SHORT_GRAPHS, Reason.ACTIVITIES_OF_ZERO_LENGTH), few)
    wrong_times = Reason.TOO_LONG, Reason.OUT_OF_TURN, Reason.CALLS_OF_ZERO_LENGTH
    least |= dict.fromkeys((*wrong_times, Reason.ODD_OPS, Reason.NODES_REMOVED, Reason.CONTRADICTIONS), 0.0)
    lost = Counts({reason: count for reason, count in odd.items() if count > least.get(reason.reason, count)})
    # what was cut off may be of any step, and what else is lost follows from that
    cut = Counts({cut: n for cut, n in linked.report.dropped.items() if cut.reason is Reason.CUT_OFF_ROWS})
    return cut or lost


def lost_launches(linked: LinkedTrace) -> Counts:
    """Returns how many activities of devices lost their launch call; nothing if they last little."""
    activities, count = linked.activities, linked.report.oddities[Reason.LAUNCHES_NOT_RECORDED]
    rows, duration = np.flatnonzero(activities.call_row < 0), activities.end - activities.start
    # the others were queued before the recording began, and so start first
    lost = rows[np.argsort(activities.start[rows], kind="stable")][len(rows) - count :]
    is_little = duration[lost].sum() <= MOST_LOST * duration.sum()
    return Counts() if is_little else Counts({Reason.LAUNCHES_NOT_RECORDED: count})
