"""A small simulator of GOAL files whose messages cost nothing, and what a file must not hold.

`parse(text)` gives each rank's operations, `troubles(ranks)` what would make a simulator hang or lie, `run(ranks, how)`
when each rank finishes. An operation runs on its cpu alone. By `Waits.TIME` it begins when what it requires has ended,
as the language says and ATLAHS does; by `Waits.ORDER` when its cpu is free, once what it requires has begun: LogGOPSim
knows the time of a cpu and of a nic alone, and a message that arrives moves the cpu that has the sender's number.
"""

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

CPUS = 256
ANY = 2**32 - 1
LINE = re.compile(
    r"(?P<label>l\d+): (?:calc (?P<ns>\d+) cpu (?P<calc_cpu>\d+)"
    r"|(?P<verb>send|recv) (?P<bytes>\d+)b (?:to|from) (?P<peer>\d+) tag (?P<tag>\d+) cpu (?P<cpu>\d+) nic (?P<nic>\d+))"
)
REQUIRES = re.compile(r"(l\d+) (i?requires) (l\d+)")


class Waits(Enum):
    TIME = "the time of what is required"
    ORDER = "the order alone, and a cpu's time"


@dataclass
class Op:
    verb: str
    amount: int
    cpu: int
    peer: int = -1
    tag: int = -1
    nic: int = 0
    requires: list[int] = field(default_factory=list)
    follows_start: list[int] = field(default_factory=list)


def parse(text: str) -> list[list[Op]]:
    """The operations of each rank. Raises ValueError at a line that is not GOAL or names a label not yet defined."""
    head, *rest = text.split("\n\n", 1)
    ranks: list[list[Op]] = []
    labels: dict[str, int] = {}
    for line in rest[0].splitlines():
        if line == f"rank {len(ranks)} {{":
            ranks.append([])
            labels = {}
        elif match := LINE.fullmatch(line):
            if match["label"] in labels:
                raise ValueError(f"a label twice: {line}")
            labels[match["label"]] = len(ranks[-1])
            ranks[-1].append(_operation(match))
        elif match := REQUIRES.fullmatch(line):
            op = ranks[-1][labels[match[1]]]
            (op.requires if match[2] == "requires" else op.follows_start).append(labels[match[3]])
        elif line != "}":
            raise ValueError(f"no line of GOAL: {line}")
    if head != f"num_ranks {len(ranks)}":
        raise ValueError(f"{head}, but there are {len(ranks)}")
    return ranks


def _operation(match: re.Match[str]) -> Op:
    if match["ns"]:
        return Op("calc", int(match["ns"]), int(match["calc_cpu"]))
    return Op(match["verb"], *(int(match[name]) for name in ("bytes", "cpu", "peer", "tag", "nic")))


def troubles(ranks: Sequence[Sequence[Op]]) -> list[str]:
    """Messages without their other end or of another size there, tags of two messages at once, numbers out of range."""
    ends: dict[str, Counter[tuple[int, ...]]] = {"send": Counter(), "recv": Counter()}
    found = []
    for rank, ops in enumerate(ranks):
        for op in ops:
            if op.verb != "calc":
                way = (rank, op.peer) if op.verb == "send" else (op.peer, rank)
                ends[op.verb][(*way, op.tag, op.amount)] += 1
                if not 0 <= op.tag < ANY or op.amount < 1 or not 0 <= op.peer < len(ranks):
                    found.append(f"rank {rank}: {op}")
            if not 0 <= op.cpu < CPUS:
                found.append(f"rank {rank}: cpu {op.cpu}")
    found += [f"sent but not received: {way}" for way in ends["send"] - ends["recv"]]
    found += [f"received but not sent: {way}" for way in ends["recv"] - ends["send"]]
    tags = Counter((*way[:3],) for way in ends["send"].elements())
    return found + [f"a tag twice: {way}" for way, count in tags.items() if count > 1]


class StandsStill(Exception):
    """Operations that never begin or never end."""


def run(ranks: Sequence[Sequence[Op]], waits: Waits = Waits.TIME, rendezvous: bool = False) -> list[int]:
    """When each rank finishes. With `rendezvous` a send ends when another rank receives it. Raises StandsStill."""
    job = _Run(ranks, waits, rendezvous)
    while job.events:
        job.step(*heapq.heappop(job.events))
    if job.left:
        raise StandsStill(f"{len(job.left)} operations never end, among them {sorted(job.left)[:4]}")
    return [
        max((time for (of, _), time in job.cpu_free.items() if of == rank), default=0) for rank in range(len(ranks))
    ]


class _Run:
    """Events are (time, order in which they came, rank, operation, whether it is an arriving message of a send)."""

    def __init__(self, ranks: Sequence[Sequence[Op]], waits: Waits, rendezvous: bool) -> None:
        self.ranks, self.waits, self.rendezvous = ranks, waits, rendezvous
        self.events: list[tuple[int, int, int, int, bool]] = []
        self.cpu_free: defaultdict[tuple[int, int], int] = defaultdict(int)
        self.nic_free: defaultdict[tuple[int, int], int] = defaultdict(int)
        self.left = {(rank, at) for rank, ops in enumerate(ranks) for at in range(len(ops))}
        self.unmet = {
            (rank, at): len(ranks[rank][at].requires + ranks[rank][at].follows_start) for rank, at in self.left
        }
        self.ready: defaultdict[tuple[int, int], int] = defaultdict(int)
        self.after: defaultdict[tuple[int, int, bool], list[int]] = defaultdict(list)
        self.posted: dict[tuple[int, int, int], tuple[int, int]] = {}
        self.arrived: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        self.count = 0
        for rank, at in sorted(self.left):
            for source in ranks[rank][at].requires:
                self.after[rank, source, False].append(at)
            for source in ranks[rank][at].follows_start:
                self.after[rank, source, True].append(at)
            if not self.unmet[rank, at]:
                self._add(0, rank, at)

    def _add(self, time: int, rank: int, at: int, message: bool = False) -> None:
        self.count += 1
        heapq.heappush(self.events, (time, self.count, rank, at, message))

    def _over(self, rank: int, at: int, time: int, is_start: bool) -> None:
        if not is_start:
            self.left.discard((rank, at))
        for dependent in self.after[rank, at, is_start]:
            key = (rank, dependent)
            self.unmet[key] -= 1
            self.ready[key] = max(self.ready[key], time)
            if not self.unmet[key]:
                op = self.ranks[rank][dependent]
                known = [self.cpu_free[rank, op.cpu]] + [self.nic_free[rank, op.nic]] * (op.verb == "send")
                self._add(self.ready[key] if self.waits is Waits.TIME else max(known), rank, dependent)

    def step(self, time: int, order: int, rank: int, at: int, message: bool) -> None:
        op = self.ranks[rank][at]
        cpu = (op.peer if message else rank, op.cpu)
        if message and self.waits is Waits.TIME:
            cpu = (-1, -1)
        free = max(self.cpu_free[cpu], self.nic_free[rank, op.nic] if op.verb == "send" and not message else 0)
        if op.verb != "recv" and free > time:
            heapq.heappush(self.events, (free, order, rank, at, message))
        elif message:
            self.cpu_free[cpu] = time
            self._meet((rank, op.peer, op.tag), time, sent=(rank, at))
        else:
            self._begin(op, rank, at, time)

    def _begin(self, op: Op, rank: int, at: int, time: int) -> None:
        self._over(rank, at, time, is_start=True)
        if op.verb == "calc":
            self.cpu_free[rank, op.cpu] = time + op.amount
            self._over(rank, at, time + op.amount, is_start=False)
        elif op.verb == "send":
            self.cpu_free[rank, op.cpu] = self.nic_free[rank, op.nic] = time
            self._add(time, rank, at, message=True)
            if not self.rendezvous or op.peer == rank:
                self._over(rank, at, time, is_start=False)
        else:
            self._meet((op.peer, rank, op.tag), time, received=(rank, at))

    def _meet(
        self, way: tuple[int, int, int], time: int, sent: tuple[int, int] | None = None,
        received: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        """One end of a message is there; both are over when the other one is, too."""
        if sent:
            self.arrived[way] = (*sent, time)
        if received:
            self.posted[way] = received
        if way in self.arrived and way in self.posted:
            (sender, send, came), (receiver, receive) = self.arrived.pop(way), self.posted.pop(way)
            over = max(time, came) if self.waits is Waits.TIME else time
            self._over(receiver, receive, over, is_start=False)
            if (sender, send) in self.left:
                self._over(sender, send, over, is_start=False)


def others(ranks: Sequence[Sequence[Op]], verb: str) -> Iterator[tuple[int, Op]]:
    """The sends or receives between ranks, each with its rank."""
    for rank, ops in enumerate(ranks):
        yield from ((rank, op) for op in ops if op.verb == verb and op.peer != rank)
