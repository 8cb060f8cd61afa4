"""What happened in a simulated run, in columns: row i of a table is the i-th that began; times are int64 ns."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ...schema.columns import Bool, Int64
from .job import STEP, Activity, Job, Op

Column: TypeAlias = "array[int]"
SYNC_KINDS = ("Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")
EVENT_SYNC, STREAM_WAIT, STREAM_SYNC, CONTEXT_SYNC = range(4)
CORRELATION_STEP = 3
"""Calls that Kineto does not show, such as cudaGetDevice, take correlation ids too."""
DEVICES_PER_NODE = 8


class Table:
    """Columns of equal length, each an attribute of its name."""

    def __init__(self, *names: str) -> None:
        self._columns = tuple(array("q") for _ in names)
        self.__dict__.update(zip(names, self._columns, strict=True))

    def __getattr__(self, name: str) -> Column:
        raise AttributeError(f"no column is called {name}")

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
        return isinstance(other, Table) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]


OPS = ("op", "thread", "start", "end", "parent", "sequence", "forward_thread", "forward_open", "comm_sequence")
CALLS = ("name", "thread", "start", "end", "op")
ACTIVITIES = ("activity", "stream", "start", "end", "call", "node", "comm_sequence")
SYNCS = ("kind", "call", "stream", "event", "recorded_on", "recorded_by")
HANDOFFS = ("source", "given_ns", "target", "taken_ns", "waited")


class RankRun:
    """The run of one rank; the pid is the id of its main thread.

    `op`, `activity` and `name` are positions in `op_table`, `activity_table` and `call_names`. `forward_open` is the
    open row on the thread of the differentiated op, an activity's `node` the id in the launched graph (0: no graph).
    `syncs` are CUPTI's records of waiting calls. `event_waits` and `graph_order` join activities, `host_waits` calls
    and activities. In `handoffs` thread `source` gave at `given_ns` what `target` took at `taken_ns`; `waited` is 1 if
    the target had to wait.
    """

    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank, self.device = job, rank, rank % DEVICES_PER_NODE
        # ids as an operating system might have given them; no two ranks share a pid
        self.pid = 41_000 + 64 * rank
        self.tids = (self.pid, *(self.pid + 20 + thread for thread in range(1, len(job.threads))))
        self.groups = job.groups_of(rank)
        self.op_table, self.activity_table, self.call_names = list[Op](), list[Activity](), list[str]()
        self.ops, self.calls, self.activities, self.syncs = (Table(*names) for names in (OPS, CALLS, ACTIVITIES, SYNCS))
        self.event_waits, self.graph_order, self.host_waits = (Table("source", "target") for _ in range(3))
        self.handoffs = Table(*HANDOFFS)

    @property
    def events(self) -> int:
        """How many ops, calls and activities there are."""
        return len(self.ops) + len(self.calls) + len(self.activities)

    def period(self) -> tuple[int, int]:
        """Returns the time from the first start to the last end of ops, calls and activities, without step marks."""
        is_op = np.array([not op.name.startswith(STEP) for op in self.op_table], bool)[as_numpy(self.ops.op)]
        tables = [(as_numpy(table.start), as_numpy(table.end)) for table in (self.calls, self.activities)]
        tables.append((as_numpy(self.ops.start)[is_op], as_numpy(self.ops.end)[is_op]))
        spans = [(int(start.min()), int(end.max())) for start, end in tables if len(start)] or [(0, 0)]
        return min(start for start, _ in spans), max(end for _, end in spans)


@dataclass(frozen=True, slots=True)
class Run:
    """A simulated run of a job."""

    job: Job
    ranks: Sequence[RankRun]

    def period(self) -> tuple[int, int]:
        """Returns the time from the first start to the last end on any rank."""
        starts, ends = zip(*(rank.period() for rank in self.ranks), strict=True)
        return min(starts), max(ends)

    @property
    def makespan_ns(self) -> int:
        """How long the run took over all ranks."""
        start, end = self.period()
        return end - start

    @property
    def events(self) -> int:
        """How many ops, calls and activities there were on all ranks."""
        return sum(rank.events for rank in self.ranks)


def as_numpy(column: "array[int]") -> Int64:
    """Returns the column without a copy."""
    return np.frombuffer(column, np.int64) if len(column) else np.empty(0, np.int64)


def correlation(call: int) -> int:
    """Returns the correlation id of the call in that row."""
    return 1 + CORRELATION_STEP * (call + 1)


def record_function(op: int) -> int:
    """Returns the RecordFunction id of the op in that row; the first one went to the list of process groups."""
    return op + 2


def is_recorded(run: RankRun) -> Bool:
    """Returns which activities are shown: all but a lost share, which ended one after the other within the run."""
    by_end = np.argsort(as_numpy(run.activities.end), kind="stable")
    lost = round(run.job.machine.lost * len(by_end))
    first = (len(by_end) - lost) * (run.rank + 1) // (run.rank + 2)
    kept = np.ones(len(by_end), bool)
    kept[by_end[first : first + lost]] = False
    return kept
