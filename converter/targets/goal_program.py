"""A rank's graph as GOAL operations: what computes for how long, what is sent where, and who waits for whom.

A node follows the last operations of its dependencies. Computation is a calc on the cpu of its lane, which takes the
node's host delay, gap and duration; delays, which pass beside all work, are calcs on cpus of their own. Communication
starts with a calc of its gap, goes on with the messages of its algorithm, and ends with a calc on its lane when all of
them are over. Messages between two ranks are counted over all collectives, which have the same order on all ranks, so
both ends give a message the same tag. Communication that no other rank recorded is a calc of its measured time.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, Ragged
from ...schema.errors import DataError, Remedy
from ...schema.graph import ExecutionGraph, NodeType
from ..device_only import SILENT
from ..edges import Edges
from ..ranks import MeasuredTimes
from ..rewiring import data_edges, lanes_of, spliced
from .algorithms import steps_of
from .goal_job import GoalOptions, RecordedJob
from .times import chain_gaps

NETWORK, NODE, WITHIN_RANK, READY = 0, 1, 2, 3
"""The nics for messages to other nodes, within the node, of the rank to itself, and for bytes that say that a receiver
is ready: these do not wait behind others. Each further link has two nics, as the first has `NETWORK` and `NODE`.
"""
LARGEST_TAG = (1 << 32) - 2
"""A tag has 32 bits, and the last number means any tag."""
LARGEST_COUNT = 256
"""A cpu is eight bits in GOAL."""
MESSAGES = 0
"""The cpu of messages to other ranks, the same on all ranks: an arriving message blocks the receiver's cpu that has the
number of the sender's.
"""


def network_nic(link: int) -> int:
    """Returns the nic of a link for messages to other nodes; the next one is for those within the node.

    >>> network_nic(0), network_nic(1), network_nic(2)
    (0, 4, 6)
    """
    return NETWORK if link == 0 else 2 * link + 2


class Operation(NamedTuple):
    """A "calc" of `amount` ns, or a "send" or "recv" of `amount` bytes.

    `after` are the operations that must be over before it, `after_begin` those that must have begun.
    """

    verb: str
    amount: int
    cpu: int
    after: tuple[int, ...] = ()
    peer: int = -1
    tag: int = 0
    nic: int = NETWORK
    after_begin: tuple[int, ...] = ()


def lines(rank: int, operations: Sequence[Operation]) -> Iterator[str]:
    """Yields the lines of a rank; the label of an operation is l and its number."""
    yield f"rank {rank} {{\n"
    for number, operation in enumerate(operations):
        verb, amount, cpu, after, peer, tag, nic, after_begin = operation
        if verb == "calc":
            yield f"l{number}: calc {amount} cpu {cpu}\n"
        else:
            way = "to" if verb == "send" else "from"
            yield f"l{number}: {verb} {amount}b {way} {peer} tag {tag} cpu {cpu} nic {nic}\n"
        for word, sources in (("requires", after), ("irequires", after_begin)):
            for source in sources:
                yield f"l{number} {word} l{source}\n"
    yield "}\n"


def in_order(numbers: Iterable[int]) -> tuple[int, ...]:
    """Returns each number once, in ascending order."""
    return tuple(sorted(set(numbers)))


class CollectiveMessages(NamedTuple):
    """The rank's messages in one collective. Their `after` are positions in `messages`.

    The collective is over for the rank `excess_ns` after the messages at the positions `last` are. It takes
    `duration_ns` from the last arrival on, as measured.
    """

    messages: list[Operation]
    last: list[int]
    duration_ns: int
    excess_ns: int


def rank_messages(job: RecordedJob, rank: int) -> dict[int, list[CollectiveMessages]]:
    """Returns, by row of its graph, the collectives of the rank at a position of the job, as messages on cpu 0.
    O(messages).

    Raises DataError where there are more messages from one rank to another than tags.
    """
    by_row: defaultdict[int, list[CollectiveMessages]] = defaultdict(list)
    tags = {"send": Counter[int](), "recv": Counter[int]()}
    for row, number in job.nodes[rank]:
        collective = job.collectives[number]
        steps, last = steps_of(collective.algorithm, collective.member(rank))
        messages = []
        for step in steps:
            verb, peer = "send" if step.sends else "recv", collective.members[step.peer]
            tag = tags[verb][peer]
            tags[verb][peer] += 1
            nic = READY if step.says_ready else network_nic(job.links[number])
            messages.append(Operation(verb, step.size, 0, step.after, peer, tag, nic))
        member = collective.members.index(rank)
        durations = collective.duration_ns[member], job.excess_ns[number][member]
        by_row[row].append(CollectiveMessages(messages, last, *durations))
    if any(count > LARGEST_TAG for counts in tags.values() for count in counts.values()):
        raise DataError(
            f"more than {LARGEST_TAG} messages between two ranks, and no tags for them; let the pieces be longer"
        )
    return by_row


@dataclass(frozen=True, slots=True)
class Cpus:
    """The cpu of each node (-1 for metadata), the name of each cpu, and `lanes`, the number of the cpus before those of
    delays; they run in the order of the nodes.
    """

    of_node: Int64
    names: list[str]
    lanes: int


def cpus_of(graph: ExecutionGraph, times: MeasuredTimes, first: list[str]) -> Cpus:
    """Returns the cpus of a graph, after those of the names `first`. O(n log n).

    Raises DataError where the graph needs more cpus than GOAL has.
    """
    runs, is_delay = graph.type != NodeType.METADATA, graph.is_delay
    of_node = np.full(len(graph), -1, np.int64)
    work = np.flatnonzero(runs & ~is_delay)
    lane, head = _lane_numbers(lanes_of(graph)[work])
    of_node[work] = len(first) + lane
    rows = np.flatnonzero(is_delay)
    # a delay without dependencies starts with the run
    released = np.where(graph.data_deps.lengths() > 0, times.start_ns, 0)
    of_node[rows] = len(first) + len(head) + _without_overlap(released[rows], times.end_ns[rows])
    delay_cpus = int(of_node.max(initial=-1)) + 1 - len(first) - len(head)
    names = [*first, *(_name(graph, row) for row in work[head].tolist()), *["delays"] * max(delay_cpus, 0)]
    if len(names) > LARGEST_COUNT:
        raise DataError(
            f"the graph of rank {graph.metadata.get('rank', '?')} has {len(names)} threads, streams and delays at "
            f"once, and GOAL knows {LARGEST_COUNT} cpus; build a part of the trace, or without host (",
            Remedy.NO_HOST,
            ")",
        )
    return Cpus(of_node, names, len(first) + len(head))


def _lane_numbers(lane: Int64) -> tuple[Int64, Int64]:
    """Returns the number of each lane, from 0 on, and the position at which each number comes first."""
    _, head, number = np.unique(lane, return_index=True, return_inverse=True)
    return number.astype(np.int64), head


def _name(graph: ExecutionGraph, row: int) -> str:
    if graph.is_activity[row]:
        return f"device {_number(graph, 'device', row)} stream {_number(graph, 'stream', row)}"
    return f"thread {_number(graph, 'tid', row)}"


def _number(graph: ExecutionGraph, name: str, row: int) -> str:
    number = int(graph.integers(name)[row])
    return "?" if number == ABSENT else str(number)


def _without_overlap(start: Int64, end: Int64) -> Int64:
    """Returns a number for each interval such that overlapping ones differ; the number that is free for longest is
    reused first.
    """
    number, running = np.zeros(len(start), np.int64), list[tuple[int, int]]()
    for row in np.argsort(start, kind="stable").tolist():
        if running and running[0][0] <= start[row]:
            number[row] = heapq.heappop(running)[1]
        else:
            number[row] = len(running)
        heapq.heappush(running, (int(end[row]), int(number[row])))
    return number


class RankStart(NamedTuple):
    """The position of a rank in the job, and when it began, in ns."""

    number: int
    begin_ns: int


def rank_program(
    graph: ExecutionGraph,
    times: MeasuredTimes,
    cpus: Cpus,
    *,
    rank: RankStart,
    messages: Mapping[int, list[CollectiveMessages]],
    options: GoalOptions,
) -> list[Operation]:
    """Returns the operations of a rank, each after those for which it waits. O(n + e + messages)."""
    operations: list[Operation] = []
    edges = spliced(data_edges(graph), np.isin(graph.type, SILENT))
    before = Ragged.grouped(edges.target, edges.source, len(graph))
    rows = np.argsort(graph.id, kind="stable")
    rows = rows[cpus.of_node[rows] >= 0]
    wait = _wait(graph, times, edges, _first_of_cpu(cpus.of_node, rows), rank.begin_ns)
    starts, sources, ends, last = before.starts.tolist(), before.values.tolist(), [-1] * len(graph), dict[int, int]()
    columns = (rows, cpus.of_node[rows], wait[rows], graph.duration_ns[rows])
    for row, cpu, waited, duration in zip(*(column.tolist() for column in columns), strict=True):
        after = in_order(ends[source] for source in sources[starts[row] : starts[row + 1]])
        if not after and cpu in last:
            # without dependencies a node keeps its position in the lane
            after = (last[cpu],)
        if row in messages:
            operations.append(Operation("calc", waited, cpu, after))
            _communicate(operations, cpu, messages[row], rank.number, options)
        else:
            operations.append(Operation("calc", waited + duration, cpu, after))
        ends[row] = last[cpu] = len(operations) - 1
    return operations


def _communicate(
    operations: list[Operation], cpu: int, collectives: list[CollectiveMessages], rank: int, options: GoalOptions
) -> None:
    """Appends the messages of all collectives of a node, after the last operation so far, and the calc
    that ends them.

    The messages of a collective leave a nic in their order. Otherwise a piece that is passed on may take turns with the
    rest of its block, and the next member waits for either.
    """
    begin = len(operations) - 1
    measured, is_proxied = options.measured_communication, options.simulator == "loggopsim"
    last: list[int] = []
    for collective in collectives:
        first, sent = len(operations), dict[int, int]()
        for message in collective.messages:
            after = tuple(first + number for number in message.after) or (begin,)
            within_node = message.nic != READY and _share_node(rank, message.peer, options.gpus_per_node)
            nic = message.nic + (NODE if within_node else NETWORK)
            before = (sent[nic],) if message.verb == "send" and nic in sent else ()
            if message.verb == "send":
                sent[nic] = len(operations)
            operations.append(message._replace(cpu=0 if is_proxied else cpu, after=after, nic=nic, after_begin=before))
        last += [first + number for number in collective.last]
    rest_ns = max(collective.duration_ns if measured else collective.excess_ns for collective in collectives)
    operations.append(Operation("calc", rest_ns, cpu, tuple(last) or (begin,)))


def _share_node(rank: int, peer: int, gpus: int) -> bool:
    return gpus > 0 and rank // gpus == peer // gpus


def _wait(graph: ExecutionGraph, times: MeasuredTimes, edges: Edges, first: Bool, begin_ns: int) -> Int64:
    """Returns the time (ns) on the cpu between the end of each node's dependencies and the node.

    The first node of a lane, and a delay without dependencies, start at their measured time; the rank began `begin_ns`
    after the first rank.
    """
    rooted = np.bincount(edges.target, minlength=len(graph)) == 0
    gap = chain_gaps(graph, edges).gap + graph.integers("host_delay_ns", 0)
    at_start = begin_ns + np.maximum(times.start_ns, 0)
    return np.where(rooted, np.where(first | graph.is_delay, at_start, 0), gap)


def _first_of_cpu(cpu: Int64, rows: Int64) -> Bool:
    first = np.zeros(len(cpu), np.bool_)
    first[rows[np.unique(cpu[rows], return_index=True)[1]]] = True
    return first


def cross_by_messages(operations: Sequence[Operation], rank: int, lanes: int) -> list[Operation]:
    """Returns the operations, with messages of the rank to itself where one waits for another cpu. O(n + e).

    In LogGOPSim an operation that requires one on another cpu starts when its own cpu is free, even if the other one
    has only begun: `requires` gives the order, but time passes only within a cpu, or through a nic, which sends
    messages in order. So an operation that is awaited elsewhere sends the rank a byte when it has ended, and the
    operation that waits first sends another byte after that one, both through a nic of their own.

    Operations on the cpus below `lanes` keep their order.
    """
    awaited = {
        source for operation in operations for source in operation.after if operations[source].cpu != operation.cpu
    }
    crossed: list[Operation] = []
    begin, end, last, tags = list[int](), list[int](), dict[int, int](), count()

    def send_to_itself(cpu: int, after: tuple[int, ...]) -> int:
        tag = next(tags)
        crossed.append(Operation("send", 1, cpu, after, rank, tag, WITHIN_RANK))
        crossed.append(Operation("recv", 1, MESSAGES, (), rank, tag, WITHIN_RANK, (len(crossed) - 1,)))
        return len(crossed) - 2

    for number, operation in enumerate(operations):
        cpu = operation.cpu
        elsewhere = [end[source] for source in operation.after if operations[source].cpu != cpu]
        after = [end[source] for source in operation.after if operations[source].cpu == cpu]
        if MESSAGES < cpu < lanes and cpu in last:
            after.append(last[cpu])
        if elsewhere:
            after = [send_to_itself(cpu, in_order(after + elsewhere))]
        after_begin = tuple(begin[source] for source in operation.after_begin)
        crossed.append(operation._replace(after=in_order(after), after_begin=after_begin))
        position = len(crossed) - 1
        begin.append(position)
        end.append(send_to_itself(cpu, (position,)) if number in awaited else position)
        last[cpu] = end[-1]
    return crossed
