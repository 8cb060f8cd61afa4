"""A job as a file in the GOAL language: what each rank computes for how long, what is sent where, who waits for whom.
Computation is a calc on the cpu of its lane, which takes the node's host delay, gap and duration; delays have cpus of
their own. Messages between two ranks are counted over all collectives, so both ends give one the same tag.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import numpy as np

from ...schema.arguments import MOST_MESSAGES
from ...schema.columns import ABSENT, Int64, Ragged
from ...schema.errors import DataError, Remedy
from ...schema.graph import ExecutionGraph, NodeType
from ...schema.io import open_output
from ..edges import Edges
from ..ranks import MeasuredTimes, measured_times
from ..rewiring import SILENT, data_edges, lanes_of, spliced
from .algorithms import MessageNetwork, messages_sent, steps_of
from .goal_job import COMMUNICATION_WORDS, GoalOptions, RecordedJob, job_of, rank_communication
from .times import chain_gaps

NETWORK, NODE, WITHIN_RANK, READY = 0, 1, 2, 3
"""The nics for other nodes, the own node, the rank itself, and signs of readiness; each further link has two."""
LARGEST_TAG = (1 << 32) - 2
"""A tag has 32 bits, and the last number means any tag."""
LARGEST_COUNT = 256
"""A cpu is eight bits in GOAL."""
MESSAGES = 0
"""The cpu of messages, the same on all ranks, as an arriving message blocks the cpu with the sender's number."""
MESSAGES_OF_LANES = "messages"


@dataclass(slots=True)
class GoalRank:
    """A rank of the file, with its times in the measured run, the lane of each cpu, and its operations by verb."""

    number: int
    rank: int
    node: int
    gpu: int
    begin_ns: int
    end_ns: int
    cpus: list[str] = field(default_factory=list)
    operations: dict[str, int] = field(default_factory=dict)
    excess_ns: int = 0
    collectives_ns: int = 0


@dataclass(slots=True)
class GoalReport:
    """The ranks of a GOAL file, how its communications are done, the bytes sent to other ranks, and the network."""

    ranks: list[GoalRank]
    communication: dict[str, int]
    bytes_sent: int = 0
    network: MessageNetwork | None = None


def write_goal(
    path: str,
    ranks: int,
    read: Callable[[int], ExecutionGraph],
    options: GoalOptions,
    *,
    start_offsets: bool = True,
    excess_time: bool = True,
    max_messages: int = MOST_MESSAGES,
) -> GoalReport:
    """Writes a job, whole or not at all. `read` is called twice for each rank, so that one graph at a time is in
    memory. Raises DataError where graphs are not of one job, or hold more than GOAL or `max_messages` of a rank allow.
    """
    communication = [rank_communication(read(number), number) for number in range(ranks)]
    job = job_of(communication, options, excess_time=excess_time)
    sent = messages_sent(job.collectives, ranks)
    if (most := int(sent.max(initial=0))) > max_messages:
        which = f"rank {job.ranks[int(sent.argmax())]} would send {most:,} messages, of {int(sent.sum()):,} in all"
        limit = f"{which}, and the limit is {max_messages:,} of a rank: make them longer by "
        raise DataError(limit, Remedy.CHUNK, ", or raise the limit by ", Remedy.MAX_MESSAGES)
    counts = dict(sorted((COMMUNICATION_WORDS[how], count) for how, count in job.counts.items()))
    report = GoalReport([_rank(job, number, options) for number in range(ranks)], counts, network=job.network)
    with open_output(path) as out:
        out.write(f"num_ranks {ranks}\n\n".encode())
        for number, rank in enumerate(report.ranks):
            begin_ns, messages = rank.begin_ns if start_offsets else 0, _rank_messages(job, number, options)
            operations, rank.cpus = _rank_program(read(number), number, begin_ns, messages, options)
            rank.operations = dict(Counter(operation.verb for operation in operations))
            report.bytes_sent += sum(
                operation.amount for operation in operations if operation.verb == "send" and operation.peer != number
            )
            out.writelines(line.encode() for line in _lines(number, operations))
    return report


def _rank(job: RecordedJob, number: int, options: GoalOptions) -> GoalRank:
    node, gpu = divmod(number, options.gpus_per_node or 1)
    rank = GoalRank(number, job.ranks[number], node, gpu, int(job.begin_ns[number]), int(job.end_ns[number]))
    for collective in (job.collectives[at] for _, at in job.nodes[number]):
        if not collective.algorithm.is_message:
            member = collective.members.index(number)
            rank.excess_ns += collective.excess_ns[member]
            rank.collectives_ns += collective.duration_ns[member]
    return rank


class Operation(NamedTuple):
    """A "calc" of ns, or a "send" or "recv" of bytes, which follows the ends, or begins, of other operations."""

    verb: str
    amount: int
    cpu: int
    after: tuple[int, ...] = ()
    peer: int = -1
    tag: int = 0
    nic: int = NETWORK
    after_begin: tuple[int, ...] = ()


def _lines(rank: int, operations: Sequence[Operation]) -> Iterator[str]:
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


class _Messages(NamedTuple):
    """A rank's messages in one collective, which is over for it `rest_ns` after those at the positions `last`."""

    messages: list[Operation]
    last: list[int]
    rest_ns: int


def _rank_messages(job: RecordedJob, rank: int, options: GoalOptions) -> dict[int, list[_Messages]]:
    """Returns the collectives of a rank as messages, by row; DataError for more messages between two than tags."""
    by_row: defaultdict[int, list[_Messages]] = defaultdict(list)
    tags, per_node = Counter[tuple[str, int]](), options.gpus_per_node or 1
    for row, number in job.nodes[rank]:
        collective = job.collectives[number]
        member, link = collective.members.index(rank), collective.link
        steps, last = steps_of(collective.algorithm, collective.first._replace(group_rank=member))
        messages = []
        for step in steps:
            verb, peer = "send" if step.sends else "recv", collective.members[step.peer]
            nic = READY
            if not step.says_ready:
                within_node = rank // per_node == peer // per_node
                nic = (2 * link + 2 if link else 0) + (NODE if within_node else NETWORK)
            messages.append(Operation(verb, step.size, MESSAGES, step.after, peer, tags[verb, peer], nic))
            tags[verb, peer] += 1
        rest = collective.duration_ns if options.measured_communication else collective.excess_ns
        by_row[row].append(_Messages(messages, last, rest[member]))
    if any(count > LARGEST_TAG for count in tags.values()):
        raise DataError(
            f"more than {LARGEST_TAG} messages between two ranks, and no tags for them; let the pieces be longer"
        )
    return by_row


class Cpus(NamedTuple):
    """The cpu of each node (-1 for metadata), and the cpus' names; those of delays come after the `lanes`."""

    of_node: Int64
    names: list[str]
    lanes: int


def cpus_of(graph: ExecutionGraph, times: MeasuredTimes, first: list[str]) -> Cpus:
    """Returns the cpus of a graph, after those of the names `first`; DataError for more than GOAL has. O(n log n)."""

    def name(row: int) -> str:
        device, stream, thread = (
            "?" if (number := int(graph.integers(kind)[row])) == ABSENT else str(number)
            for kind in ("device", "stream", "tid")
        )
        return f"device {device} stream {stream}" if graph.is_activity[row] else f"thread {thread}"

    of_node = np.full(len(graph), -1, np.int64)
    work = np.flatnonzero((graph.type != NodeType.METADATA) & ~graph.is_delay)
    _, head, lane = np.unique(lanes_of(graph)[work], return_index=True, return_inverse=True)
    lanes = len(first) + len(head)
    of_node[work] = len(first) + lane
    delays = np.flatnonzero(graph.is_delay)
    # a delay without dependencies starts with the run
    released = np.where(graph.data_deps.lengths() > 0, times.start_ns, 0)
    of_node[delays] = lanes + _without_overlap(released[delays], times.end_ns[delays])
    names = [*first, *map(name, work[head].tolist())]
    names += ["delays"] * (int(of_node.max(initial=-1)) + 1 - lanes)
    if len(names) > LARGEST_COUNT:
        raise DataError(
            f"the graph of rank {graph.metadata.get('rank', '?')} has {len(names)} threads, streams and delays at "
            f"once, and GOAL knows {LARGEST_COUNT} cpus; build a part of the trace, or without host (",
            Remedy.NO_HOST,
            ")",
        )
    return Cpus(of_node, names, lanes)


def _without_overlap(start: Int64, end: Int64) -> Int64:
    """Returns a number for each interval; overlapping ones differ, and what is free for longest is reused."""
    number, running = np.zeros(len(start), np.int64), list[tuple[int, int]]()
    for row in np.argsort(start, kind="stable").tolist():
        if running and running[0][0] <= start[row]:
            number[row] = heapq.heappop(running)[1]
        else:
            number[row] = len(running)
        heapq.heappush(running, (int(end[row]), int(number[row])))
    return number


def _rank_program(
    graph: ExecutionGraph, rank: int, begin_ns: int, messages: Mapping[int, list[_Messages]], options: GoalOptions
) -> tuple[list[Operation], list[str]]:
    """Returns the operations of the rank at a position, each after those for which it waits, and its cpus' names."""
    times, crosses = measured_times(graph), options.simulator == "loggopsim"
    cpus = cpus_of(graph, times, [MESSAGES_OF_LANES] if crosses else [])
    operations: list[Operation] = []
    edges = spliced(data_edges(graph), np.isin(graph.type, SILENT))
    before = Ragged.grouped(edges.target, edges.source, len(graph))
    rows = np.argsort(graph.id, kind="stable")
    rows = rows[cpus.of_node[rows] >= 0]
    wait = _waits(graph, times, edges, rows[np.unique(cpus.of_node[rows], return_index=True)[1]], begin_ns)
    starts, sources, ends, last = before.starts.tolist(), before.values.tolist(), [-1] * len(graph), dict[int, int]()
    columns = (rows, cpus.of_node[rows], wait[rows], graph.duration_ns[rows])
    for row, cpu, waited, duration in zip(*(column.tolist() for column in columns), strict=True):
        after = tuple(sorted({ends[source] for source in sources[starts[row] : starts[row + 1]]}))
        if not after and cpu in last:
            # without dependencies a node keeps its position in the lane
            after = (last[cpu],)
        if row in messages:
            operations.append(Operation("calc", waited, cpu, after))
            _communicate(operations, cpu, messages[row], MESSAGES if crosses else cpu)
        else:
            operations.append(Operation("calc", waited + duration, cpu, after))
        ends[row] = last[cpu] = len(operations) - 1
    return _cross_by_messages(operations, rank, cpus.lanes) if crosses else operations, cpus.names


def _waits(graph: ExecutionGraph, times: MeasuredTimes, edges: Edges, first: Int64, begin_ns: int) -> Int64:
    """Returns the ns on the cpu from the end of each node's dependencies to the node; first nodes start as measured."""
    is_root = np.bincount(edges.target, minlength=len(graph)) == 0
    starts_as_measured = graph.is_delay.copy()
    starts_as_measured[first] = True
    gap = chain_gaps(graph, edges)[0] + graph.integers("host_delay_ns", 0)
    at_start = begin_ns + np.maximum(times.start_ns, 0)
    return np.where(is_root, np.where(starts_as_measured, at_start, 0), gap)


def _communicate(operations: list[Operation], cpu: int, collectives: list[_Messages], cpu_of_messages: int) -> None:
    """Appends the messages of a node's collectives, in their order on a nic, and the calc that ends them."""
    begin = len(operations) - 1
    last: list[int] = []
    for collective in collectives:
        first, sent = len(operations), dict[int, int]()
        for message in collective.messages:
            after = tuple(first + number for number in message.after) or (begin,)
            before = (sent[message.nic],) if message.verb == "send" and message.nic in sent else ()
            if message.verb == "send":
                sent[message.nic] = len(operations)
            operations.append(message._replace(cpu=cpu_of_messages, after=after, after_begin=before))
        last += [first + number for number in collective.last]
    rest_ns = max(collective.rest_ns for collective in collectives)
    operations.append(Operation("calc", rest_ns, cpu, tuple(last) or (begin,)))


def _cross_by_messages(operations: Sequence[Operation], rank: int, lanes: int) -> list[Operation]:
    """Returns the operations, with messages of the rank to itself where one waits for another cpu. In LogGOPSim
    `requires` gives only the order between cpus: time passes within a cpu, or through a nic.
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
            after = [send_to_itself(cpu, tuple(sorted({*after, *elsewhere})))]
        after_begin = tuple(begin[source] for source in operation.after_begin)
        crossed.append(operation._replace(after=tuple(sorted({*after})), after_begin=after_begin))
        position = len(crossed) - 1
        begin.append(position)
        end.append(send_to_itself(cpu, (position,)) if number in awaited else position)
        last[cpu] = end[-1]
    return crossed
