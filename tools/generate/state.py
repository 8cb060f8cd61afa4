"""The state of a simulated run: host threads, what they share with their process, and which of them can go on.

A thread that waits, for a device or for another thread, stands still until `wake` puts it among the ready ones again.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from .device import Devices, RecordedEvent, Running, Stream
from .instructions import HOST, Instruction
from .job import Job
from .record import NONE, RankRun
from .scaling import Factors

IDLE = "host idle"
T = TypeVar("T")


class Process:
    """A rank: its streams, events and queues, and the record of its run."""

    def __init__(self, rank: int) -> None:
        self.record = RankRun(rank)
        self.streams: dict[int, Stream] = {}
        self.events: dict[int, RecordedEvent] = {}
        self.queues: dict[str, Queue] = {}
        self.threads: list[Thread] = []
        self._codes: dict[object, int] = {}

    def stream(self, number: int) -> Stream:
        """Returns the stream of that number, made when it first comes."""
        return self.streams.setdefault(number, Stream())

    def queue(self, name: str) -> "Queue":
        """Returns the queue of that name, made when it first comes."""
        return self.queues.setdefault(name, Queue())

    def code(self, item: T, table: list[T]) -> int:
        """Returns the position of an item in the table, to which it is added when it first comes."""
        code = self._codes.get(item)
        if code is None:
            code = self._codes[item] = len(table)
            table.append(item)
        return code


class Thread:
    """A host thread: clock, program, open ops and the factors of their work; `open` counts what it waits for."""

    __slots__ = ("factors", "index", "instructions", "number", "open", "process", "rows", "time")

    def __init__(self, process: Process, index: int, number: int, instructions: Iterator[Instruction]) -> None:
        self.process, self.index, self.number, self.instructions = process, index, number, instructions
        self.time = self.open = 0
        self.rows: list[int] = []
        self.factors: list[float | None] = []

    @property
    def op(self) -> int:
        """The row of the innermost open op."""
        return self.rows[-1] if self.rows else NONE


class Queue:
    """Items between threads, each with its giver and time; and the threads that wait for an item or for room."""

    __slots__ = ("getters", "items", "putters")

    def __init__(self) -> None:
        self.items: deque[tuple[Thread, int]] = deque()
        self.getters: deque[tuple[Thread, int]] = deque()
        self.putters: deque[Thread] = deque()


class Simulation:
    """A run on its way. `ready` is a heap of the threads that can go on, by their time."""

    def __init__(self, job: Job, factors: Factors) -> None:
        self.factors = factors
        self.devices = Devices(job.ranks, job.machine.at_once)
        self.processes = [Process(rank) for rank in range(job.ranks)]
        self.ready: list[tuple[int, int, Thread]] = []

    def wake(self, thread: Thread) -> None:
        """Puts a thread among those that can go on."""
        heapq.heappush(self.ready, (thread.time, thread.number, thread))

    def host_ns(self, thread: Thread, name: str, ns: int) -> int:
        """Returns how long host work of the innermost open op lasts; `name` stands for it where no op is open."""
        factor = thread.factors[-1] if thread.factors else None
        return round(ns * (self.factors.of(name, HOST) if factor is None else factor))

    def call(self, thread: Thread, name: str, ns: int) -> int:
        """Records a call that starts now and lasts `ns` if nothing holds it up; returns its row."""
        process, start = thread.process, thread.time
        thread.time += self.host_ns(thread, name, ns)
        code = process.code(name, process.record.call_names)
        return process.record.calls.append(code, thread.index, start, thread.time, thread.op)

    def when_known(self, thread: Thread, sources: Sequence[Running], finish: Callable[[], None]) -> bool:
        """Calls `finish` once the ends of all sources are known; False if that is later, when it wakes the thread."""
        unknown = [source for source in sources if source.end == NONE]
        if not unknown:
            finish()
            return True
        thread.open = len(unknown)

        def one_less() -> None:
            thread.open -= 1
            if not thread.open:
                finish()
                self.wake(thread)

        for source in unknown:
            source.waiters.append(one_less)
        return False
