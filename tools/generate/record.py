"""What happened in a simulated run, in columns: ops, calls, activities, synchronisations, and why things had to wait;
and the numbers by which they are known in traces.

Row i of a table is the i-th thing of its kind that began. Times are int64 ns from the start of the run.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from ...schema.columns import Bool, Int64
from .job import Activity, Group, Job, Op
from .machine import Machine

Column: TypeAlias = "array[int]"
SYNC_KINDS = ("Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")
EVENT_SYNC, STREAM_WAIT, STREAM_SYNC, CONTEXT_SYNC = range(4)
CORRELATION_STEP = 3
"""Calls that Kineto does not show, such as cudaGetDevice, take correlation ids too."""
DEVICES_PER_NODE = 8


class Table:
    """Columns of equal length, by the names that a table declares."""

    def __init__(self) -> None:
        self._columns = tuple(array("q") for _ in type(self).__annotations__)
        for name, column in zip(type(self).__annotations__, self._columns, strict=True):
            setattr(self, name, column)

    def append(self, *values: int) -> int:
        """Adds a row with the values in the order of the columns and returns its number."""
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        return len(self._columns[0]) - 1

    def columns(self) -> tuple[Column, ...]:
        """Returns the columns in the order of `append`."""
        return self._columns

    def __len__(self) -> int:
        return len(self._columns[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._columns == other._columns

    __hash__ = None  # type: ignore[assignment]


class Ops(Table):
    """`op` is an index of RankRun.op_table, `forward_open` the open row on the thread of the differentiated op."""

    op: Column
    thread: Column
    start: Column
    end: Column
    parent: Column
    sequence: Column
    forward_thread: Column
    forward_open: Column
    comm_sequence: Column


class Calls(Table):
    """`name` is the position in RankRun.call_names, `op` the row of the innermost open op."""

    name: Column
    thread: Column
    start: Column
    end: Column
    op: Column


class Activities(Table):
    """`activity` is an index of RankRun.activity_table, `node` the id in the launched graph (0: no graph)."""

    activity: Column
    stream: Column
    start: Column
    end: Column
    call: Column
    node: Column
    comm_sequence: Column


class Synchronisations(Table):
    """CUPTI's record of a waiting call: `kind` in SYNC_KINDS, the waiting stream, the event and where it was made."""

    kind: Column
    call: Column
    stream: Column
    event: Column
    recorded_on: Column
    recorded_by: Column


class Edges(Table):
    """Pairs of rows: which tables they point into is said where the edges stand."""

    source: Column
    target: Column


class ThreadHandoffs(Table):
    """Thread `source` gave at `given_ns` what `target` took at `taken_ns`; `waited` is 1 if the target had to wait."""

    source: Column
    given_ns: Column
    target: Column
    taken_ns: Column
    waited: Column


@dataclass(slots=True)
class RankRun:
    """The run of one rank. `event_waits` and `graph_order` join activities, `host_waits` calls and activities."""

    rank: int
    op_table: list[Op] = field(default_factory=list)
    activity_table: list[Activity] = field(default_factory=list)
    call_names: list[str] = field(default_factory=list)
    ops: Ops = field(default_factory=Ops)
    calls: Calls = field(default_factory=Calls)
    activities: Activities = field(default_factory=Activities)
    syncs: Synchronisations = field(default_factory=Synchronisations)
    event_waits: Edges = field(default_factory=Edges)
    graph_order: Edges = field(default_factory=Edges)
    host_waits: Edges = field(default_factory=Edges)
    handoffs: ThreadHandoffs = field(default_factory=ThreadHandoffs)

    @property
    def events(self) -> int:
        """How many ops, calls and activities there are."""
        return len(self.ops) + len(self.calls) + len(self.activities)

    def period(self) -> "TimeSpan":
        """Returns the time from the first start to the last end of ops, calls and activities, without step marks."""
        is_op = ~np.array([op.is_step for op in self.op_table], bool)[as_numpy(self.ops.op)]
        starts = [as_numpy(self.ops.start)[is_op], as_numpy(self.calls.start), as_numpy(self.activities.start)]
        ends = [as_numpy(self.ops.end)[is_op], as_numpy(self.calls.end), as_numpy(self.activities.end)]
        return TimeSpan(
            min((int(times.min()) for times in starts if len(times)), default=0),
            max((int(times.max()) for times in ends if len(times)), default=0),
        )


class TimeSpan(NamedTuple):
    """From `start` to `end`, ns from the start of the run."""

    start: int
    end: int

    @property
    def ns(self) -> int:
        """How long it is."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Run:
    """A simulated run of a job."""

    job: Job
    ranks: Sequence[RankRun]

    def period(self) -> TimeSpan:
        """Returns the time from the first start to the last end on any rank."""
        periods = [rank.period() for rank in self.ranks]
        return TimeSpan(min(period.start for period in periods), max(period.end for period in periods))

    @property
    def makespan_ns(self) -> int:
        """How long the run took over all ranks."""
        return self.period().ns

    @property
    def events(self) -> int:
        """How many ops, calls and activities there were on all ranks."""
        return sum(rank.events for rank in self.ranks)


def as_numpy(column: "array[int]") -> Int64:
    """Returns the column without a copy."""
    return np.frombuffer(column, np.int64) if len(column) else np.empty(0, np.int64)


class Identity(NamedTuple):
    """A rank's process: pid, device index, the OS ids of its threads (the main thread's is the pid), and its groups."""

    rank: int
    ranks: int
    pid: int
    device: int
    tids: tuple[int, ...]
    groups: tuple[Group, ...]


def identify(job: Job, rank: int) -> Identity:
    """Returns ids as an operating system might have given them; no two ranks share a pid."""
    pid = 41_000 + 64 * rank
    tids = (pid, *(pid + 20 + thread for thread in range(1, len(job.threads))))
    groups = tuple(group for group in job.groups if rank in group.ranks)
    return Identity(rank, job.ranks, pid, rank % DEVICES_PER_NODE, tids, groups)


def correlation(call: int) -> int:
    """Returns the correlation id of the call in that row."""
    return 1 + CORRELATION_STEP * (call + 1)


def record_function(op: int) -> int:
    """Returns the RecordFunction id of the op in that row; the first one went to the list of process groups."""
    return op + 2


def is_recorded(run: RankRun, machine: Machine) -> Bool:
    """Returns which activities are shown: all but a lost share, which ended one after the other within the run.

    Their launch calls are shown, as the profiler keeps records of calls and of activities apart.
    """
    by_end = np.argsort(as_numpy(run.activities.end), kind="stable")
    lost = round(machine.lost * len(by_end))
    first = (len(by_end) - lost) * (run.rank + 1) // (run.rank + 2)
    kept = np.ones(len(by_end), bool)
    kept[by_end[first : first + lost]] = False
    return kept
