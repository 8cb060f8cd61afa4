"""What happened in a simulated run, in columns: ops, calls, activities, synchronisations, and why things had to wait.

Row i of a table is the i-th thing of its kind that began. Times are int64 ns from the start of the run.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64
from .instructions import Activity, Op
from .job import Job

NONE = -1


def _column() -> "array[int]":
    return array("q")


@dataclass(slots=True)
class Table:
    """Columns of equal length."""

    def append(self, *values: int) -> int:
        """Adds a row with the values in the order of the columns and returns its number."""
        columns = self.columns()
        for column, value in zip(columns, values, strict=True):
            column.append(value)
        return len(columns[0]) - 1

    def columns(self) -> "tuple[array[int], ...]":
        """Returns the columns in the order of `append`."""
        return _getter_of(self.__slots__)(self)

    def __len__(self) -> int:
        return len(self.columns()[0])


@cache
def _getter_of(names: tuple[str, ...]) -> "Callable[[Table], tuple[array[int], ...]]":
    return attrgetter(*names)


@dataclass(slots=True)
class Ops(Table):
    """`op` is an index of RankRun.op_table, `forward_open` the open row on the thread of the differentiated op."""

    op: "array[int]" = field(default_factory=_column)
    thread: "array[int]" = field(default_factory=_column)
    start: "array[int]" = field(default_factory=_column)
    end: "array[int]" = field(default_factory=_column)
    parent: "array[int]" = field(default_factory=_column)
    sequence: "array[int]" = field(default_factory=_column)
    forward_thread: "array[int]" = field(default_factory=_column)
    forward_open: "array[int]" = field(default_factory=_column)
    comm_sequence: "array[int]" = field(default_factory=_column)


@dataclass(slots=True)
class Calls(Table):
    """`name` is the position in RankRun.call_names, `op` the row of the innermost open op."""

    name: "array[int]" = field(default_factory=_column)
    thread: "array[int]" = field(default_factory=_column)
    start: "array[int]" = field(default_factory=_column)
    end: "array[int]" = field(default_factory=_column)
    op: "array[int]" = field(default_factory=_column)


@dataclass(slots=True)
class Activities(Table):
    """`activity` is an index of RankRun.activity_table, `node` the id in the launched graph (0: no graph)."""

    activity: "array[int]" = field(default_factory=_column)
    stream: "array[int]" = field(default_factory=_column)
    start: "array[int]" = field(default_factory=_column)
    end: "array[int]" = field(default_factory=_column)
    call: "array[int]" = field(default_factory=_column)
    node: "array[int]" = field(default_factory=_column)
    comm_sequence: "array[int]" = field(default_factory=_column)


@dataclass(slots=True)
class Synchronisations(Table):
    """CUPTI's record of a waiting call: `kind` in SYNC_KINDS, the waiting stream, the event and where it was made."""

    kind: "array[int]" = field(default_factory=_column)
    call: "array[int]" = field(default_factory=_column)
    stream: "array[int]" = field(default_factory=_column)
    event: "array[int]" = field(default_factory=_column)
    recorded_on: "array[int]" = field(default_factory=_column)
    recorded_by: "array[int]" = field(default_factory=_column)


SYNC_KINDS = ("Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")
EVENT_SYNC, STREAM_WAIT, STREAM_SYNC, CONTEXT_SYNC = range(4)


@dataclass(slots=True)
class Edges(Table):
    """Pairs of rows: which tables they point into is said where the edges stand."""

    source: "array[int]" = field(default_factory=_column)
    target: "array[int]" = field(default_factory=_column)


@dataclass(slots=True)
class ThreadHandoffs(Table):
    """Thread `source` gave at `given_ns` what `target` took at `taken_ns`; `waited` is 1 if the target had to wait."""

    source: "array[int]" = field(default_factory=_column)
    given_ns: "array[int]" = field(default_factory=_column)
    target: "array[int]" = field(default_factory=_column)
    taken_ns: "array[int]" = field(default_factory=_column)
    waited: "array[int]" = field(default_factory=_column)


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
