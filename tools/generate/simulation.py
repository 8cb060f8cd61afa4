"""Simulates a job, with durations scaled where asked: a job in, what ran when out; equal input gives the equal run.

Host threads advance in the order of time. A stream runs one activity after another: each once its launch has reached
the device, what it follows has ended a gap ago, and fewer run than the device runs at once. Members of a rendezvous end
together and always find room, or ranks could hold each other up for ever. Kernels do not slow each other down.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...schema.columns import Interner
from ...schema.errors import RequestError
from ..replay import Changes, NodeClass
from .job import NONE, Activity, Instruction, Job, Op
from .machine import Factors
from .record import RankRun, Run, Table

IDLE = "host idle"
QUEUE_LIMIT = 1024
"""Launches on a stream that may wait for their start; one more holds the host up."""


class Rendezvous(NamedTuple):
    """Kernels with an equal `key` run together on `members` ranks: all end when the last has started and lasted."""

    key: tuple[object, ...]
    members: int


@dataclass(slots=True, eq=False)
class Running:
    """An activity from its launch on: ready at `available` and a gap after all it follows; `open` of these may run."""

    rank: int
    table: Table
    row: int
    stream: int
    available: int
    gap: int
    ns: int
    rendezvous: Rendezvous | None = None
    open: int = 0
    start: int = NONE
    end: int = NONE
    followers: "list[Running]" = field(default_factory=list)
    waiters: "list[Thread]" = field(default_factory=list)

    def follows(self, end: int) -> None:
        """Lets it start a gap after something that it follows has ended."""
        self.available = max(self.available, end + self.gap)


@dataclass(slots=True)
class Stream:
    """A stream: `tail` was enqueued last, the next activity waits for `waits` of events and `branches` of graphs."""

    tail: Running | None = None
    queue: deque[tuple[Running, Running | None]] = field(default_factory=lambda: deque(maxlen=QUEUE_LIMIT))
    waits: dict[int, Running] = field(default_factory=dict)
    branches: list[Running] = field(default_factory=list)

    def pending(self) -> tuple[Running, ...]:
        """Returns what has to end before all that was enqueued so far has happened."""
        return (*((self.tail,) if self.tail else ()), *self.waits.values(), *self.branches)

    def append(self, activity: Running) -> None:
        """Enqueues an activity, which takes over what the stream had to wait for."""
        self.queue.append((activity, self.tail))
        self.tail, self.waits, self.branches = activity, {}, []


class RecordedEvent(NamedTuple):
    """A recorded event: what it stands for, on which stream and by which call."""

    sources: tuple[Running, ...] = ()
    stream: int = NONE
    call: int = NONE


@dataclass(slots=True)
class Queue:
    """Items between threads, each with its giver and time; and the threads that wait for an item or for room."""

    items: "deque[tuple[Thread, int]]" = field(default_factory=deque)
    getters: "deque[tuple[Thread, int]]" = field(default_factory=deque)
    putters: "deque[Thread]" = field(default_factory=deque)


class Process:
    """A rank: its streams, events and queues, and the record of its run."""

    def __init__(self, job: Job, rank: int) -> None:
        self.record = RankRun(job, rank)
        self.streams: defaultdict[int, Stream] = defaultdict(Stream)
        self.events: dict[int, RecordedEvent] = {}
        self.queues: defaultdict[str, Queue] = defaultdict(Queue)
        self.threads: list[Thread] = []
        self.ops, self.activities, self.calls = Interner[Op](), Interner[Activity](), Interner[str]()

    def record_sync(self, kind: int, call: int, stream: int = NONE, event: int = NONE) -> None:
        """Records a call that waits for an event, or makes a stream wait."""
        recorded = self.events[event] if event != NONE else RecordedEvent()
        self.record.syncs.append(kind, call, stream, event, recorded.stream, recorded.call)


class Simulation:
    """A run on its way; `ready` and `ready_activities` are heaps by time, `met` has incomplete collectives' kernels."""

    def __init__(self, job: Job, factors: Factors) -> None:
        self.factors = factors
        self.ready_activities: list[tuple[int, int, int, Running]] = []
        self.met: defaultdict[Rendezvous, list[Running]] = defaultdict(list)
        self._busy_until = [[0] * (job.machine.at_once or 0) for _ in range(job.ranks)]
        """When each slot of a device is free again, as a heap; none for a device without a concurrency limit."""
        self.processes = [Process(job, rank) for rank in range(job.ranks)]
        self.ready: list[tuple[int, int, Thread]] = []
        for rank, process in enumerate(self.processes):
            for index, instructions in enumerate(job.instructions(rank)):
                thread = Thread(self, process, index, rank * len(job.threads) + index, instructions)
                process.threads.append(thread)
                self.wake(thread)

    def wake(self, thread: "Thread") -> None:
        """Puts a thread among those that can go on."""
        heapq.heappush(self.ready, (thread.time, thread.number, thread))

    def run(self) -> None:
        """Lets happen what is next in time, on a device or a host thread, until nothing is left.

        What a thread submits reaches its device later than the thread's own time, so activities come in order.
        """
        threads, activities = self.ready, self.ready_activities
        while threads or activities:
            if activities and (not threads or activities[0][0] <= threads[0][0]):
                self._start_next()
            else:
                heapq.heappop(threads)[2].run()

    def submit(self, activity: Running, sources: Iterable[Running]) -> None:
        """Enqueues an activity, which becomes ready at once, or when the last of its sources has its end."""
        for source in sources:
            if source.end == NONE:
                source.followers.append(activity)
                activity.open += 1
            else:
                activity.follows(source.end)
        if not activity.open:
            self._is_ready(activity)

    def _is_ready(self, activity: Running) -> None:
        heapq.heappush(self.ready_activities, (activity.available, activity.rank, activity.row, activity))

    def _start_next(self) -> None:
        """Starts the activity that is ready next, and lets what waited for it go on once its end is certain."""
        ready, rank, _, activity = heapq.heappop(self.ready_activities)
        slots = [] if activity.rendezvous else self._busy_until[rank]
        activity.start = activity.table.start[activity.row] = max([ready, *slots[:1]])
        members = self.met[activity.rendezvous] if activity.rendezvous else []
        members.append(activity)
        if activity.rendezvous:
            if len(members) < activity.rendezvous.members:
                return
            del self.met[activity.rendezvous]
        end = max(member.start for member in members) + max(member.ns for member in members)
        if slots:
            heapq.heapreplace(slots, end)
        for member in members:
            member.end = member.table.end[member.row] = end
        for member in members:
            for follower in member.followers:
                follower.follows(end)
                follower.open -= 1
                if not follower.open:
                    self._is_ready(follower)
            for thread in member.waiters:
                thread.go_on()
            member.followers, member.waiters = [], []


class Thread:
    """A host thread: program, clock, and the open ops, each as its row and the factor of its work."""

    def __init__(
        self, simulation: Simulation, process: Process, index: int, number: int, program: Iterator[Instruction]
    ) -> None:
        self.simulation, self.process, self.index, self.number = simulation, process, index, number
        self.time = 0
        self.open: list[tuple[int, float | None]] = []
        self._progress = self._follow(program)

    def _follow(self, program: Iterator[Instruction]) -> Iterator[bool]:
        """Yields whether an instruction has ended, or has to wait."""
        for instruction in program:
            for _ in instruction(self) or ():
                yield False
            yield True

    @property
    def op(self) -> int:
        """The row of the innermost open op."""
        return self.open[-1][0] if self.open else NONE

    def run(self) -> None:
        """Runs until the thread waits or another one is behind it in time."""
        ready = self.simulation.ready
        for has_ended in self._progress:
            if not has_ended:
                return
            if ready and ready[0][0] < self.time:
                self.simulation.wake(self)
                return

    def go_on(self) -> None:
        """Goes on with the instruction that waits, to its end or its next wait."""
        if next(self._progress):
            self.simulation.wake(self)

    def host_ns(self, name: str, ns: int) -> int:
        """Returns how long host work of the innermost open op lasts; `name` stands for it where no op is open."""
        factor = self.open[-1][1] if self.open else None
        return round(ns * (self.simulation.factors.of(name, NodeClass.HOST) if factor is None else factor))

    def call(self, name: str, ns: int) -> int:
        """Records a call that starts now and lasts `ns` if nothing holds it up; returns its row."""
        start, record = self.time, self.process.record
        self.time += self.host_ns(name, ns)
        return record.calls.append(self.process.calls[name], self.index, start, self.time, self.op)

    def until_known(self, sources: Iterable[Running]) -> Iterator[None]:
        """Waits, without taking time, until it is known when all the sources end."""
        for source in sources:
            if source.end == NONE:
                source.waiters.append(self)
                yield

    def wait_in_call(self, name: str, call: int, sources: Sequence[Running], return_ns: int) -> Iterator[None]:
        """Ends a call `return_ns` after the last source ends, or after now."""
        record = self.process.record
        for source in sources:
            record.host_waits.append(call, source.row)
        yield from self.until_known(sources)
        # what is left of a call after its wait goes by the call's name, whatever op it is in, as in the graphs
        left = round(return_ns * self.simulation.factors.of(name, NodeClass.HOST))
        self.time = record.calls.end[call] = max([self.time, *(source.end for source in sources)]) + left

    def take(self, giver: "Thread", given_at: int, waited: bool) -> None:
        """Records that this thread takes now what another one gave."""
        self.process.record.handoffs.append(giver.index, given_at, self.index, self.time, int(waited))

    def resume(self, wake_ns: int, by: "Thread") -> None:
        """Resumes after a wait, `wake_ns` after what another thread has just done."""
        self.time = by.time + self.host_ns(IDLE, wake_ns)
        self.take(by, by.time, waited=True)
        self.simulation.wake(self)


def simulate(job: Job, scale: Changes = (), *, refuse_unused: bool = False) -> Run:
    """Runs a job with durations multiplied as `scale` says (see `Factors`): host work, calls, activities. O(n log n).

    Raises ValueError for an unknown scaling, with `refuse_unused` RequestError for one that applies to nothing.
    """
    factors = Factors(scale)
    simulation = Simulation(job, factors)
    try:
        simulation.run()
    except OverflowError:
        raise RequestError("the job would take longer than any clock shows: give a smaller factor") from None
    if unmet := len(simulation.met):
        raise RuntimeError(f"job {job.name}: {unmet} collectives wait for members that never come")
    if refuse_unused and factors.unused:
        raise RequestError(f"scale {min(factors.unused)}: nothing in the job is called so or of that class")
    for process in simulation.processes:
        record = process.record
        record.op_table, record.activity_table = [*process.ops], [*process.activities]
        record.call_names = [*process.calls]
    return Run(job, [process.record for process in simulation.processes])
