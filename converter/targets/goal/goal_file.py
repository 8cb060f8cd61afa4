"""Writes the GOAL file of a job, rank after rank, and says what was done."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ....schema.graph import ExecutionGraph
from ....schema.io import open_output
from .cpu_crossing import cross_by_messages
from .cpus import cpus_of
from .goal_options import GoalOptions
from .job import RecordedJob, job_of
from .operations import Operation, lines
from .rank_communication import measured_times, rank_communication
from .rank_messages import rank_messages
from .rank_program import RankStart, rank_program

MESSAGES_OF_LANES = "messages"


@dataclass(slots=True)
class GoalRank:
    """A rank of the file: its number there and in the job, its node and GPU, when it began and had ended in the
    measured run, on one clock of all ranks, what each cpu stands for, and how many operations it has by kind.
    """

    number: int
    rank: int
    node: int
    gpu: int
    begin_ns: int
    end_ns: int
    cpus: list[str] = field(default_factory=list)
    operations: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class GoalReport:
    """What a GOAL file holds: its ranks, how its communication is done and what was lost, and the bytes that cross the
    network.
    """

    ranks: list[GoalRank]
    communication: dict[str, int]
    bytes_sent: int = 0


def write_goal(path: str, ranks: int, read: Callable[[int], ExecutionGraph], options: GoalOptions) -> GoalReport:
    """Writes the job whose graphs, one per rank, `read` gives by place, each twice; one of them at a time is in memory.

    The file is written whole or not at all. Raises DataError where the graphs are of no one job, or more than GOAL can
    hold.
    """
    job = job_of([rank_communication(read(place), place) for place in range(ranks)], options)
    report = GoalReport([_rank(job, place, options) for place in range(ranks)], dict(sorted(job.counts.items())))
    with open_output(path) as out:
        out.write(f"num_ranks {ranks}\n\n".encode())
        for place in range(ranks):
            operations, names = _operations(read(place), job, place, options)
            report.ranks[place].cpus = names
            report.ranks[place].operations = dict(Counter(one.verb for one in operations))
            report.bytes_sent += sum(one.amount for one in operations if one.verb == "send" and one.peer != place)
            out.writelines(line.encode() for line in lines(place, operations))
    return report


def _operations(
    graph: ExecutionGraph, job: RecordedJob, place: int, options: GoalOptions
) -> tuple[list[Operation], list[str]]:
    """Returns a rank's operations, and what its cpus are."""
    times = measured_times(graph)
    crosses = options.simulator == "loggopsim"
    cpus = cpus_of(graph, times, [MESSAGES_OF_LANES] if crosses else [])
    begin = int(job.begin_ns[place])
    operations = rank_program(graph, times, cpus, RankStart(place, begin), rank_messages(job, place), options)
    return (cross_by_messages(operations, place, cpus.lanes) if crosses else operations), cpus.names


def _rank(job: RecordedJob, place: int, options: GoalOptions) -> GoalRank:
    gpus = options.gpus_per_node or 1
    times = int(job.begin_ns[place]), int(job.end_ns[place])
    return GoalRank(place, job.ranks[place], place // gpus, place % gpus, *times)
