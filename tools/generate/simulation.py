"""Simulates a job, with durations scaled where asked: a job in, what ran when out.

Host threads advance in the order of time, what they launch runs on the devices' streams, and a thread that waits for
a device or for another thread stands still until it is woken. Equal input gives the equal run. Not modelled: kernels
that slow each other down otherwise than by keeping each other from starting.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from .devices import Devices, Running, Stream
from .job import HOST, NONE, Instruction, Job
from .machine import Factors
from .record import RankRun, Run

IDLE = "host idle"
T = TypeVar("T")


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

    def __init__(self, rank: int) -> None:
        self.record = RankRun(rank)
        self.streams: defaultdict[int, Stream] = defaultdict(Stream)
        self.events: dict[int, RecordedEvent] = {}
        self.queues: defaultdict[str, Queue] = defaultdict(Queue)
        self.threads: list[Thread] = []
        self._codes: dict[object, int] = {}

    def code(self, item: T, table: list[T]) -> int:
        """Returns the position of an item in the table, to which it is added when it first comes."""
        code = self._codes.get(item)
        if code is None:
            code = self._codes[item] = len(table)
            table.append(item)
        return code

    def record_sync(self, kind: int, call: int, stream: int = NONE, event: int = NONE) -> None:
        """Records a call that waits for an event, or makes a stream wait."""
        recorded = self.events[event] if event != NONE else RecordedEvent()
        self.record.syncs.append(kind, call, stream, event, recorded.stream, recorded.call)


class Simulation:
    """A run on its way. `ready` is a heap of the threads that can go on, by their time."""

    def __init__(self, job: Job, factors: Factors) -> None:
        self.factors = factors
        self.devices = Devices(job.ranks, job.machine.at_once)
        self.processes = [Process(rank) for rank in range(job.ranks)]
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

        What a thread submits reaches its device later than the thread's own time, so activities that are ready by then
        come in order.
        """
        threads, devices = self.ready, self.devices
        while threads or devices.ready:
            if devices.ready and (not threads or devices.ready[0][0] <= threads[0][0]):
                devices.start_next()
            else:
                heapq.heappop(threads)[2].run()


class Thread:
    """A host thread: clock, program, rows of the open ops and the factors of their work."""

    __slots__ = ("factors", "index", "instructions", "number", "process", "rows", "simulation", "time")

    def __init__(
        self, simulation: Simulation, process: Process, index: int, number: int, instructions: Iterator[Instruction]
    ) -> None:
        self.simulation, self.process = simulation, process
        self.index, self.number, self.instructions = index, number, instructions
        self.time = 0
        self.rows: list[int] = []
        self.factors: list[float | None] = []

    @property
    def op(self) -> int:
        """The row of the innermost open op."""
        return self.rows[-1] if self.rows else NONE

    def run(self) -> None:
        """Runs until the thread waits or another one is behind it in time."""
        ready = self.simulation.ready
        for instruction in self.instructions:
            if not instruction.run(self):
                return
            if ready and ready[0][0] < self.time:
                self.simulation.wake(self)
                return

    def host_ns(self, name: str, ns: int) -> int:
        """Returns how long host work of the innermost open op lasts; `name` stands for it where no op is open."""
        factor = self.factors[-1] if self.factors else None
        return round(ns * (self.simulation.factors.of(name, HOST) if factor is None else factor))

    def call(self, name: str, ns: int) -> int:
        """Records a call that starts now and lasts `ns` if nothing holds it up; returns its row."""
        start, record = self.time, self.process.record
        self.time += self.host_ns(name, ns)
        code = self.process.code(name, record.call_names)
        return record.calls.append(code, self.index, start, self.time, self.op)

    def when_known(self, sources: Sequence[Running], finish: Callable[[], None]) -> bool:
        """Calls `finish` once the ends of all sources are known; False if that is later, when it wakes the thread."""
        unknown = next((source for source in sources if source.end == NONE), None)
        if unknown is None:
            finish()
            return True

        def go_on() -> None:
            if self.when_known(sources, finish):
                self.simulation.wake(self)

        unknown.waiters.append(go_on)
        return False

    def wait_in_call(self, call: int, sources: Sequence[Running], return_ns: int) -> bool:
        """Ends a call `return_ns` after the last source ends, or after now."""
        record = self.process.record
        name = record.call_names[record.calls.name[call]]
        for source in sources:
            record.host_waits.append(call, source.row)

        def finish() -> None:
            self.time = max([self.time, *(source.end for source in sources)])
            # what is left of a call after its wait goes by the call's name, whatever op it is in, as in the graphs
            self.time += round(return_ns * self.simulation.factors.of(name, HOST))
            record.calls.end[call] = self.time

        return self.when_known(sources, finish)

    def take(self, giver: "Thread", given_at: int, waited: bool) -> None:
        """Records that this thread takes now what another one gave."""
        self.process.record.handoffs.append(giver.index, given_at, self.index, self.time, int(waited))

    def resume(self, wake_ns: int, by: "Thread") -> None:
        """Resumes after a wait, `wake_ns` after what another thread has just done."""
        self.time = by.time + self.host_ns(IDLE, wake_ns)
        self.take(by, by.time, waited=True)
        self.simulation.wake(self)


def simulate(job: Job, scale: Mapping[str, float] | None = None, *, refuse_unused: bool = False) -> Run:
    """Runs a job with durations multiplied as `scale` says (see `Factors`): host work, calls, activities.

    Waiting follows from that; launch latencies and the gaps between activities stay as they are. O(n log n) in the
    instructions, which are made step by step. Raises ValueError for an unknown scaling, with `refuse_unused`
    RequestError for one that applies to nothing in the job.
    """
    factors = Factors(scale or {})
    simulation = Simulation(job, factors)
    simulation.run()
    if unmet := len(simulation.devices.met):
        raise RuntimeError(f"job {job.name}: {unmet} collectives wait for members that never come")
    if refuse_unused:
        factors.check_all_used()
    return Run(job, [process.record for process in simulation.processes])
