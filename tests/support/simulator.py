"""A small simulator that reads graph files as ASTRA-sim's two generations do, and stops or stands still where they do.

`simulate(read_files(prefix, ranks), groups, generation)` plays `PREFIX.i.et` of every rank i. One host node, one
computation and one send or collective run at a time per rank, receives beside them; of several that are ready the
lowest id goes first. A small simulator of GOAL files whose messages cost nothing, and what a file must not hold.
`parse(text)` gives each rank's operations, `troubles(ranks)` what would make a simulator hang or lie, `run(ranks, how)`
when each rank finishes. An operation runs on its cpu alone. By `Waits.TIME` it begins when what it requires has ended,
as the language says and ATLAHS does; by `Waits.ORDER` when its cpu is free, once what it requires has begun: LogGOPSim
knows the time of a cpu and of a nic alone, and a message that arrives moves the cpu that has the sender's number.
"""

import heapq
import json
import re
from bisect import insort
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from pathlib import Path

from support.graphs import Node, read_nodes

INVALID, METADATA, SEND, RECV, COLL = 0, 1, 5, 6, 7
COMMUNICATION = (SEND, RECV, COLL)
ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER = 0, 2, 5, 6, 7
RUN = (ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER, BROADCAST)
SPLITS = 64
LATENCY_NS, BYTES_PER_NS = 500, 50
INT32_MAX = 2**31 - 1


class Generation(Enum):
    """V1 follows data dependencies and takes 0 for an absent one; V3 follows both kinds and stops at an absent one."""

    V1 = 1
    V3 = 3


class Stopped(Exception):
    """The simulator threw, aborted, failed an assertion or loops for ever."""


class StandsStill(Exception):
    """The node, or an operation, never begins or never ends."""


@dataclass
class Outcome:
    """When each rank finished; if not all did, why the simulator stopped, or where each rank stands still.

    `lost` are messages that nobody received, on which the real one says nothing.
    """

    finished_ns: dict[int, int] = field(default_factory=dict)
    stopped: str = ""
    standing: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.trouble

    @property
    def trouble(self) -> str:
        return self.stopped or "; ".join(self.standing + self.lost)


def read_files(prefix: Path, ranks: int) -> list[list[Node]]:
    return [read_nodes(prefix.with_name(f"{prefix.name}.{rank}.et")) for rank in range(ranks)]


def simulate(files: Sequence[Sequence[Node]], groups: Path | None, generation: Generation) -> Outcome:
    """Plays the nodes of every rank, as read from its file."""
    outcome = Outcome()
    try:
        job = Job([Rank(rank, nodes, generation) for rank, nodes in enumerate(files)], read_groups(groups), generation)
        job.run()
    except Stopped as stopped:
        outcome.stopped = str(stopped)
        return outcome
    outcome.lost = job.lost()
    for rank in job.ranks:
        if rank.left:
            outcome.standing.append(rank.standing())
        else:
            outcome.finished_ns[rank.number] = rank.now
    return outcome


def read_groups(path: Path | None) -> dict[int, list[int]]:
    if path is None or "empty" in str(path):
        return {}
    recorded = json.loads(path.read_text())
    if wrong := [key for key in recorded if not key.isdecimal() or not 0 < int(key) <= INT32_MAX]:
        raise Stopped(f"the group {wrong[0]} is no positive number")
    return {int(key): ranks for key, ranks in recorded.items()}


class Rank:
    """The nodes of a rank: who waits for whom, what is ready, what runs in which slot."""

    def __init__(self, number: int, nodes: Sequence[Node], generation: Generation) -> None:
        self.number, self.generation, self.now = number, generation, 0
        self.nodes = {node.id: node for node in nodes}
        self.left = set(self.nodes)
        self.running: dict[str, int] = {}
        self.reasons: dict[int, str] = {}
        self.dependents: defaultdict[int, set[int]] = defaultdict(set)
        self.unmet: dict[int, int] = {}
        if not nodes and generation is Generation.V3:
            raise Stopped(f"the file of rank {number} has no node")
        for node in nodes:
            followed = node.data if generation is Generation.V1 else sorted({*node.data, *node.control})
            if generation is Generation.V3 and (missing := [one for one in followed if one not in self.nodes]):
                raise Stopped(f"rank {number}: node {node.id} depends on missing node {missing[0]}")
            # a dependency that is there twice is waited for twice but met once
            self.unmet[node.id] = len(followed)
            for one in followed:
                self.dependents[one].add(node.id)
        self.ready = sorted(node for node, unmet in self.unmet.items() if not unmet)

    def next_node(self) -> Node | None:
        """The ready node of the lowest id whose slot is free; it is taken."""
        for place, ready in enumerate(self.ready):
            if self.slot(self.nodes[ready]) not in self.running:
                node = self.nodes[self.ready.pop(place)]
                self.running[self.slot(node)] = node.id
                return node
        return None

    def slot(self, node: Node) -> str:
        if node.read("is_cpu_op", "bool_val"):
            return "host"
        if node.type == RECV:
            return f"receive {node.id}"  # beside anything
        return "communication" if node.type in COMMUNICATION else "computation"

    def finish(self, node: Node, now: int) -> None:
        del self.running[self.slot(node)]
        self.left.remove(node.id)
        self.now = now
        for dependent in () if node.type == INVALID else self.dependents[node.id]:
            self.unmet[dependent] -= 1
            if not self.unmet[dependent]:
                insort(self.ready, dependent)
        has_host = not self.left and any(self.slot(one) == "host" for one in self.nodes.values())
        if self.generation is Generation.V3 and has_host and node.type in (SEND, RECV):
            raise Stopped(f"rank {self.number}: the last event is a send or receive")

    def standing(self) -> str:
        """Why the rank has not finished: the reason of what runs for ever, else the first node that was never ready."""
        running = [f"node {node} {self.reasons[node]}" for node in self.running.values() if node in self.reasons]
        first = min(self.left)
        return f"rank {self.number}: " + (" and ".join(running) or f"node {first} never became ready")


class Job:
    """All ranks: events in order of time, and who meets whom."""

    def __init__(self, ranks: list[Rank], groups: dict[int, list[int]], generation: Generation) -> None:
        self.ranks, self.groups, self.generation = ranks, groups, generation
        self.events: list[tuple[int, int, int, int]] = []
        self.order = count()
        self.issued: Counter[tuple[int, str]] = Counter()
        self.meetings: defaultdict[tuple[str, int], dict[int, tuple[int, int, int]]] = defaultdict(dict)
        self.arrived: defaultdict[tuple[int, ...], deque[int]] = defaultdict(deque)
        self.awaited: defaultdict[tuple[int, ...], deque[int]] = defaultdict(deque)

    def run(self) -> None:
        for rank in self.ranks:
            self.issue(rank, 0)
        while self.events:
            now, _, number, node = heapq.heappop(self.events)
            rank = self.ranks[number]
            rank.finish(rank.nodes[node], now)
            self.issue(rank, now)

    def issue(self, rank: Rank, now: int) -> None:
        while node := rank.next_node():
            try:
                START.get(node.type, Job.compute)(self, rank, node, now)
            except StandsStill as reason:
                rank.reasons[node.id] = f"({node.name}) {reason}"

    def end(self, rank: int, node: int, at: int) -> None:
        heapq.heappush(self.events, (at, next(self.order), rank, node))

    def integer(self, rank: Rank, node: Node, name: str, kind: str, default: int | None = None) -> int:
        if self.generation is Generation.V3 and default is None and name not in node.attributes:
            raise Stopped(f"rank {rank.number}: node {node.id} has no {name}")
        return int(node.read(name, kind, default or 0))

    def compute(self, rank: Rank, node: Node, now: int) -> None:
        least = 1 if self.generation is Generation.V3 else 0
        self.end(rank.number, node.id, now + max(node.duration_us * 1000, least))

    def metadata(self, rank: Rank, node: Node, now: int) -> None:
        if self.generation is Generation.V3:
            raise Stopped(f"rank {rank.number}: node {node.id} is metadata")
        if rank.slot(node) != "host":
            raise StandsStill("is metadata")
        self.end(rank.number, node.id, now)

    def collective(self, rank: Rank, node: Node, now: int) -> None:
        self._check_device(rank, node)
        kind, size = (self.integer(rank, node, name, "int64_val") for name in ("comm_type", "comm_size"))
        if kind not in RUN:
            does_not_run = f"has a collective type that does not run, {kind}"
            v3 = self.generation is Generation.V3
            raise Stopped(f"rank {rank.number}: node {node.id} {does_not_run}") if v3 else StandsStill(does_not_run)
        if kind == BROADCAST:
            self.compute(rank, node, now)
            return
        name = str(node.read("pg_name", "string_val", ""))
        members = self._members(rank, node, name)
        if kind == ALL_GATHER and 0 < size < SPLITS:
            raise Stopped(f"rank {rank.number}: node {node.id} splits {size} bytes for ever")
        if kind == ALL_GATHER and size == 0:
            raise StandsStill("gathers nothing")
        if len(members) == 1:
            raise StandsStill("is in a group of one")
        self._meet(rank, node, now, name, members, (kind, size))

    def _members(self, rank: Rank, node: Node, name: str) -> list[int]:
        if not name:
            return list(range(len(self.ranks)))
        if not name.isdecimal() or int(name) not in self.groups:
            raise Stopped(f"rank {rank.number}: node {node.id} is of group {name!r}, which is not known")
        members = self.groups[int(name)]
        if rank.number not in members or max(members) >= len(self.ranks):
            raise Stopped(f"rank {rank.number}: node {node.id} is of group {name}, whose ranks are {members}")
        return members

    def _meet(self, rank: Rank, node: Node, now: int, name: str, members: list[int], what: tuple[int, int]) -> None:
        """The k-th collective of the members of a group is one; it runs when all have come with one type and size."""
        key = (name, self.issued[rank.number, name])
        self.issued[rank.number, name] += 1
        meeting = self.meetings[key]
        meeting[rank.number] = (node.id, *what)
        rank.reasons[node.id] = f"({node.name}) waits in group {name or 'of all'} as its collective {key[1] + 1}"
        if len(meeting) < len(members):
            return
        if len({came[1:] for came in meeting.values()}) > 1:
            for number, (one, *_) in meeting.items():
                self.ranks[number].reasons[one] += ", whose members differ in type or size"
            return
        for number, (one, *_) in meeting.items():
            del self.ranks[number].reasons[one]
            self.end(number, one, now + LATENCY_NS + what[1] // BYTES_PER_NS)

    def message(self, rank: Rank, node: Node, now: int) -> None:
        self._check_device(rank, node)
        sends = node.type == SEND
        source = self.integer(rank, node, "comm_src", "int32_val", rank.number if sends else None)
        destination = self.integer(rank, node, "comm_dst", "int32_val", None if sends else rank.number)
        tag = self.integer(rank, node, "comm_tag", "int32_val")
        size = self.integer(rank, node, "comm_size", "int64_val")
        if (source if sends else destination) != rank.number:
            raise Stopped(f"rank {rank.number}: node {node.id} is issued by another rank than its own")
        if source == destination or tag < 0 or size <= 0 or not {source, destination} <= set(range(len(self.ranks))):
            raise Stopped(
                f"rank {rank.number}: node {node.id} goes from {source} to {destination}, {size} bytes, tag {tag}"
            )
        key = (tag, source, destination, size)
        arrival = now + LATENCY_NS + size // BYTES_PER_NS
        if sends:
            self.end(rank.number, node.id, arrival)
        if sends and self.awaited[key]:
            receiver, waiting = self.ranks[destination], self.awaited[key].popleft()
            del receiver.reasons[waiting]
            self.end(receiver.number, waiting, arrival)
        elif sends:
            self.arrived[key].append(arrival)
        elif self.arrived[key]:
            self.end(rank.number, node.id, max(now, self.arrived[key].popleft()))
        else:
            self.awaited[key].append(node.id)
            rank.reasons[node.id] = f"({node.name}) waits for {size} bytes of tag {tag} from rank {source}"

    def lost(self) -> list[str]:
        return [
            f"{key[3]} bytes of tag {key[0]} from rank {key[1]} to rank {key[2]} are never received"
            for key, arrived in self.arrived.items()
            if arrived
        ]

    def _check_device(self, rank: Rank, node: Node) -> None:
        if rank.slot(node) == "host":
            raise Stopped(f"rank {rank.number}: node {node.id} communicates on the host")


START = {METADATA: Job.metadata, SEND: Job.message, RECV: Job.message, COLL: Job.collective}


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
            calc = match["ns"] is not None
            names = ("ns", "calc_cpu") if calc else ("bytes", "cpu", "peer", "tag", "nic")
            ranks[-1].append(Op("calc" if calc else match["verb"], *(int(match[name]) for name in names)))
        elif match := REQUIRES.fullmatch(line):
            op = ranks[-1][labels[match[1]]]
            (op.requires if match[2] == "requires" else op.follows_start).append(labels[match[3]])
        elif line != "}":
            raise ValueError(f"no line of GOAL: {line}")
    if head != f"num_ranks {len(ranks)}":
        raise ValueError(f"{head}, but there are {len(ranks)}")
    return ranks


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
        self.unmet: dict[tuple[int, int], int] = {}
        self.ready: defaultdict[tuple[int, int], int] = defaultdict(int)
        self.after: defaultdict[tuple[int, int, bool], list[int]] = defaultdict(list)
        self.posted: dict[tuple[int, int, int], tuple[int, int]] = {}
        self.arrived: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        self.count = 0
        for rank, at in sorted(self.left):
            op = ranks[rank][at]
            sources = [*((source, False) for source in op.requires), *((source, True) for source in op.follows_start)]
            self.unmet[rank, at] = len(sources)
            for source, is_start in sources:
                self.after[rank, source, is_start].append(at)
            if not sources:
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
