"""Writes the GOAL file of a job, rank after rank."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ...schema.graph import ExecutionGraph
from ...schema.io import open_output
from ..ranks import measured_times
from .goal_job import GoalOptions, RecordedJob, job_of, rank_communication
from .goal_network import MessageNetwork
from .goal_program import Operation, RankStart, cpus_of, cross_by_messages, lines, rank_messages, rank_program

MESSAGES_OF_LANES = "messages"


@dataclass(slots=True)
class GoalRank:
    """A rank of the file: its number there and in the job, its node and GPU, when it began and ended in the measured
    run on a clock of all ranks, the lane of each cpu, and the number of its operations by verb; for how long its
    collectives were beyond the fitted network, and how long all of them took from the last arrival on.
    """

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
    """The ranks of a GOAL file, the number of its communications by how they are done, and the bytes sent to other
    ranks, and the network that the measured times of the messages fit.
    """

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
) -> GoalReport:
    """Writes a job. `read` returns the graph of the rank at a position of the job, and is called twice for each, so
    that one graph at a time is in memory. With `start_offsets` each rank begins when it did in the measured run, else
    all at once. With `excess_time` collectives keep the time that they took beyond the fitted network.

    The file is written whole or not at all. Raises DataError where the graphs are not of one job, or hold more than
    GOAL allows.
    """
    communication = [rank_communication(read(number), number) for number in range(ranks)]
    job = job_of(communication, options, excess_time=excess_time)
    report = GoalReport(
        [_rank(job, number, options) for number in range(ranks)], dict(sorted(job.counts.items())), network=job.network
    )
    with open_output(path) as out:
        out.write(f"num_ranks {ranks}\n\n".encode())
        for number, rank in enumerate(report.ranks):
            start = RankStart(number, rank.begin_ns if start_offsets else 0)
            operations, rank.cpus = _operations(read(number), job, start, options)
            rank.operations = dict(Counter(operation.verb for operation in operations))
            report.bytes_sent += sum(
                operation.amount for operation in operations if operation.verb == "send" and operation.peer != number
            )
            out.writelines(line.encode() for line in lines(number, operations))
    return report


def _operations(
    graph: ExecutionGraph, job: RecordedJob, start: RankStart, options: GoalOptions
) -> tuple[list[Operation], list[str]]:
    """Returns the operations of a rank, and the names of its cpus."""
    times = measured_times(graph)
    crosses = options.simulator == "loggopsim"
    cpus = cpus_of(graph, times, [MESSAGES_OF_LANES] if crosses else [])
    messages = rank_messages(job, start.number)
    operations = rank_program(graph, times, cpus, rank=start, messages=messages, options=options)
    return (cross_by_messages(operations, start.number, cpus.lanes) if crosses else operations), cpus.names


def _rank(job: RecordedJob, number: int, options: GoalOptions) -> GoalRank:
    node, gpu = divmod(number, options.gpus_per_node or 1)
    excess, collectives = job.excess_of(number)
    return GoalRank(
        number,
        job.ranks[number],
        node,
        gpu,
        int(job.begin_ns[number]),
        int(job.end_ns[number]),
        excess_ns=excess,
        collectives_ns=collectives,
    )
