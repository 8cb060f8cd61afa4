"""Replays a graph by the rules of ASTRA-sim's replay mode, which tells when a rank finishes there.

The simulator runs one host node, one computation and one send or collective at a time, and receives beside them, each
for its `duration_micros`, when all its data and control dependencies have ended. Of several ready nodes it takes the
one with the lowest id. Streams and threads do not count, and ranks do not wait for each other. Times agree to the ns
with the versions of 2025-08 and 2026-03, except for 1 ns per node of 0 µs. A rank that began to record later begins
with its start offset, so that its times are on the job's clock, and so is the measured run that they are compared with.
"""

import heapq
from collections.abc import Sequence

import msgspec
import numpy as np

from ...converter.edit import COMMUNICATION, control_edges, data_edges
from ...converter.targets import ASTRA_SIM
from ...schema.columns import Int64, Ragged
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph, NodeType
from .workload import gather

HOST, COMPUTATION, TRANSFER, RECEIVE = range(4)


class SimulatedRank(msgspec.Struct, frozen=True):
    """When a rank finishes in the simulator and in the measured run, in µs, and the difference; both count from
    `start_offset_us` before the rank began to record.
    """

    finish_us: float
    measured_us: float
    error_pct: float
    start_offset_us: float = 0.0


class Simulated(msgspec.Struct, frozen=True):
    """Every rank by its label, and the largest error.

    >>> import execgraph as eg
    >>> simulated = eg.build("tests/data/training", target="astra-sim").simulate()
    >>> simulated.ranks.keys(), abs(simulated.worst_error_pct) < 1
    (dict_keys(['0', '1']), True)
    """

    simulator: str
    ranks: dict[str, SimulatedRank]
    worst_error_pct: float


def simulate_ranks(graphs: Sequence[ExecutionGraph]) -> Simulated:
    """Returns when the simulator finishes each rank. O((n + e) log n).

    Raises DataError for a graph of another target, or with a cycle.
    """
    work = gather(graphs)
    ranks = {}
    for position, (label, graph) in enumerate(zip(work.rank_labels(), graphs, strict=True)):
        if graph.metadata.get("target") != ASTRA_SIM:
            raise DataError(f"the graph of rank {label} is not for {ASTRA_SIM}; convert with --target {ASTRA_SIM}")
        finish = int(simulated_ends(graph).max(initial=0)) / 1000
        of_rank = work.ranks_of(np.arange(len(work))) == position
        offset = int(graph.integers("start_offset_ns", 0).sum()) / 1000
        measured = offset + int(work.measured_end_ns[of_rank].max(initial=0)) / 1000
        error = 100 * (finish - measured) / measured if measured else 0.0
        ranks[label] = SimulatedRank(finish, measured, error, offset)
    return Simulated(ASTRA_SIM, ranks, max((rank.error_pct for rank in ranks.values()), key=abs, default=0.0))


def simulated_ends(graph: ExecutionGraph) -> Int64:
    """Returns when each node of a graph ends in the simulator (ns). Raises DataError if nodes never become ready."""
    count, resource = len(graph), _resources(graph)
    data, control = data_edges(graph), control_edges(graph)
    edges = np.unique(
        np.stack((np.append(data.source, control.source), np.append(data.target, control.target))), axis=1
    )
    dependents = Ragged.grouped(edges[0], edges[1], count)
    starts, values = dependents.starts.tolist(), dependents.values.tolist()
    unmet = np.bincount(edges[1], minlength=count).tolist()
    length = (graph.duration_micros.astype(np.int64) * 1000).tolist()
    # rows are in the order of ids
    ready: list[list[int]] = [[], [], [], []]
    for row in range(count):
        if not unmet[row]:
            ready[resource[row]].append(row)
    running: list[tuple[int, int]] = []
    free, end, now = [True] * 4, [-1] * count, 0
    while True:
        for number in range(4):
            while free[number] and ready[number]:
                row = heapq.heappop(ready[number])
                free[number] = number == RECEIVE
                heapq.heappush(running, (now + length[row], row))
        if not running:
            break
        now, row = heapq.heappop(running)
        end[row], free[resource[row]] = now, True
        for dependent in values[starts[row] : starts[row + 1]]:
            unmet[dependent] -= 1
            if not unmet[dependent]:
                heapq.heappush(ready[resource[dependent]], dependent)
    if -1 in end:
        raise DataError(f"{end.count(-1)} of {count} nodes never become ready; the dependencies form a cycle")
    return np.array(end, np.int64)


def _resources(graph: ExecutionGraph) -> list[int]:
    on_host = graph.integers("is_cpu_op", 0) != 0
    on_device = np.where(np.isin(graph.type, COMMUNICATION), TRANSFER, COMPUTATION)
    on_device[graph.type == NodeType.COMM_RECV] = RECEIVE
    resources: list[int] = np.where(on_host, HOST, on_device).tolist()
    return resources


def describe_simulated(result: Simulated) -> str:
    """Returns a line per rank, for people."""
    lines = [
        f"rank {label:<10}{rank.finish_us:>14,.1f} µs simulated{rank.measured_us:>14,.1f} µs measured  "
        f"{rank.error_pct:+.2f} %"
        for label, rank in result.ranks.items()
    ]
    return "\n".join([*lines, f"worst {result.worst_error_pct:+.2f} %, in {result.simulator}'s replay mode"])
