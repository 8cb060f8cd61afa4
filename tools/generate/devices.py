"""The devices: when the activities on streams start and end, known as soon as it is certain.

A stream runs one activity after another in the order of submission. An activity is ready when its launch has reached
the device and, a gap later, all it follows has ended; it starts then, or once fewer than the device runs at once are
running. Members of a rendezvous end together; they always find room, or ranks could hold each other up for ever. Times
are ns.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from .instructions import Rendezvous
from .record import NONE, Activities

QUEUE_LIMIT = 1024
"""Launches on a stream that may wait for their start; one more holds the host up."""


class Running:
    """An activity from its launch on; `end` is NONE until all that it depends on is known."""

    __slots__ = (
        "available",
        "end",
        "followers",
        "gap",
        "ns",
        "open",
        "rank",
        "rendezvous",
        "row",
        "sources",
        "start",
        "stream",
        "table",
        "waiters",
    )

    def __init__(self, rank: int, table: Activities, row: int, stream: int, sources: "Sequence[Running]") -> None:
        self.rank, self.table, self.row, self.stream, self.sources = rank, table, row, stream, sources
        self.available = self.gap = self.ns = self.open = 0
        self.start = self.end = NONE
        self.rendezvous: Rendezvous | None = None
        self.followers: list[Running] = []
        self.waiters: list[Callable[[], None]] = []


class RecordedEvent(NamedTuple):
    """A recorded event: what it stands for, on which stream and by which call."""

    sources: tuple[Running, ...]
    stream: int
    call: int


class Stream:
    """`tail` was enqueued last; the next activity also has to wait for `waits` (of events, one for each stream) and for
    the `branches` of a graph that was launched on this stream. `queue` has the latest launches, each with the one
    before it.
    """

    __slots__ = ("branches", "queue", "tail", "waits")

    def __init__(self) -> None:
        self.tail: Running | None = None
        self.queue: deque[tuple[Running, Running | None]] = deque(maxlen=QUEUE_LIMIT)
        self.waits: dict[int, Running] = {}
        self.branches: list[Running] = []

    def wait_for(self, sources: Iterable[Running]) -> None:
        """Of several sources on one stream the last one says all."""
        for source in sources:
            earlier = self.waits.get(source.stream)
            if earlier is None or earlier.row < source.row:
                self.waits[source.stream] = source

    def pending(self) -> tuple[Running, ...]:
        """Returns what has to end before all that was enqueued so far has happened."""
        tail = (self.tail,) if self.tail else ()
        return (*tail, *self.waits.values(), *self.branches)

    def oldest_in_queue(self) -> tuple[Running, Running | None] | None:
        """Returns, if the queue may be full, the launch that has to start before another fits, and its predecessor."""
        return self.queue[0] if len(self.queue) == QUEUE_LIMIT else None

    def append(self, activity: Running) -> None:
        """Enqueues an activity, which takes over what the stream had to wait for."""
        self.queue.append((activity, self.tail))
        self.tail, self.waits, self.branches = activity, {}, []


class Devices:
    """The devices of all ranks, whose kernels meet in collectives; each runs `at_once` activities at the same time."""

    def __init__(self, ranks: int, at_once: int | None) -> None:
        self._met: dict[tuple[object, ...], list[Running]] = {}
        self._ready: list[tuple[int, int, int, Running]] = []
        self._busy_until = [[0] * (at_once or 0) for _ in range(ranks)]
        """When each slot of a device is free again, as a heap; none for a device without a concurrency limit."""

    @property
    def unmet(self) -> int:
        """Collectives that some rank has reached and some member never will."""
        return len(self._met)

    @property
    def next_ready(self) -> int | None:
        """When the next activity is ready that has not been started yet."""
        return self._ready[0][0] if self._ready else None

    def submit(self, activity: Running) -> None:
        """Enqueues an activity, which becomes ready at once, or when the last activity that it follows has its end."""
        for source in activity.sources:
            if source.end == NONE:
                source.followers.append(activity)
                activity.open += 1
        if not activity.open:
            self._is_ready(activity)

    def _is_ready(self, activity: Running) -> None:
        free = max((source.end for source in activity.sources), default=NONE)
        ready = max(activity.available, free + activity.gap if free != NONE else 0)
        activity.sources = ()
        heapq.heappush(self._ready, (ready, activity.rank, activity.row, activity))

    def start_next(self) -> None:
        """Starts the activity that is ready next; none may be submitted later that would be ready before it."""
        ready, _, _, activity = heapq.heappop(self._ready)
        running = self._busy_until[activity.rank] if activity.rendezvous is None else []
        activity.start = activity.table.start[activity.row] = max(ready, running[0]) if running else ready
        for ended in self._ended_by(activity):
            if running:
                heapq.heapreplace(running, ended.end)
            for follower in ended.followers:
                follower.open -= 1
                if not follower.open:
                    self._is_ready(follower)
            for on_end in ended.waiters:
                on_end()
            ended.followers, ended.waiters = [], []

    def _ended_by(self, activity: Running) -> Sequence[Running]:
        """Returns the activities whose end is certain now that this one has its start."""
        members = [activity]
        if activity.rendezvous is not None:
            members = self._met.setdefault(activity.rendezvous.key, [])
            members.append(activity)
            if len(members) < activity.rendezvous.members:
                return ()
            del self._met[activity.rendezvous.key]
        end = max(member.start for member in members) + max(member.ns for member in members)
        for member in members:
            member.end = member.table.end[member.row] = end
        return members
