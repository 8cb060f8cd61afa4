"""The devices: when the activities on streams start and end, known as soon as it is certain.

A stream runs one activity after another in the order of submission. An activity is ready when its launch has reached
the device and, a gap later, all it follows has ended; it starts then, or once fewer than the device runs at once are
running. Members of a rendezvous end together; they always find room, or ranks could hold each other up for ever. Times
are ns.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .job import NONE
from .record import Activities

QUEUE_LIMIT = 1024
"""Launches on a stream that may wait for their start; one more holds the host up."""


class Rendezvous(NamedTuple):
    """Kernels with an equal `key` run together on `members` ranks: all end when the last has started and lasted."""

    key: tuple[object, ...]
    members: int


@dataclass(slots=True, eq=False)
class Running:
    """An activity from its launch on: a row of its rank's table. It reaches the device at `available` and takes `ns`.

    It follows the `sources`, of which `open` are not known to have ended; `end` is NONE until it is known.
    """

    rank: int
    table: Activities
    row: int
    stream: int
    sources: "Sequence[Running]"
    available: int
    gap: int
    ns: int
    rendezvous: Rendezvous | None = None
    open: int = 0
    start: int = NONE
    end: int = NONE
    followers: "list[Running]" = field(default_factory=list)
    waiters: list[Callable[[], None]] = field(default_factory=list)


@dataclass(slots=True)
class Stream:
    """`tail` was enqueued last; the next activity also has to wait for `waits` (of events, one for each stream) and for
    the `branches` of a graph that was launched on this stream. `queue` has the latest launches, each with the one
    before it.
    """

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


class Devices:
    """The devices of all ranks; each runs `at_once` activities at the same time. `ready` is a heap of those that are
    ready, by time; `met` has the kernels of collectives that some members have not reached.
    """

    def __init__(self, ranks: int, at_once: int | None) -> None:
        self.ready: list[tuple[int, int, int, Running]] = []
        self.met: dict[tuple[object, ...], list[Running]] = {}
        self._busy_until = [[0] * (at_once or 0) for _ in range(ranks)]
        """When each slot of a device is free again, as a heap; none for a device without a concurrency limit."""

    def submit(self, activity: Running) -> None:
        """Enqueues an activity, which becomes ready at once, or when the last activity that it follows has its end."""
        for source in activity.sources:
            if source.end == NONE:
                source.followers.append(activity)
                activity.open += 1
        if not activity.open:
            self._is_ready(activity)

    def _is_ready(self, activity: Running) -> None:
        free = max((source.end + activity.gap for source in activity.sources), default=0)
        activity.sources = ()
        heapq.heappush(self.ready, (max(activity.available, free), activity.rank, activity.row, activity))

    def start_next(self) -> None:
        """Starts the activity that is ready next; none may be submitted later that would be ready before it."""
        ready, _, _, activity = heapq.heappop(self.ready)
        running = self._busy_until[activity.rank] if activity.rendezvous is None else []
        activity.start = activity.table.start[activity.row] = max(ready, running[0]) if running else ready
        members = [activity]
        if activity.rendezvous is not None:
            members = self.met.setdefault(activity.rendezvous.key, [])
            members.append(activity)
            if len(members) < activity.rendezvous.members:
                return
            del self.met[activity.rendezvous.key]
        end = max(member.start for member in members) + max(member.ns for member in members)
        for member in members:
            member.end = member.table.end[member.row] = end
        for member in members:
            self._ended(member, running)

    def _ended(self, activity: Running, running: list[int]) -> None:
        """Lets what waited for an activity go on, now that its end is certain."""
        if running:
            heapq.heapreplace(running, activity.end)
        for follower in activity.followers:
            follower.open -= 1
            if not follower.open:
                self._is_ready(follower)
        for on_end in activity.waiters:
            on_end()
        activity.followers, activity.waiters = [], []
