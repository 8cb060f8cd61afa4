"""The plan that the ranks' graphs keep so that a simulator can run them together.

Groups get their numbers when those of all ranks are known. For a simulator with one communication at a time, sizes and
the order of communication are made the same on all members too, and what lacks a partner becomes computation.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...converter.ranks import (
    Calls,
    CommunicationEntry,
    CommunicationSummary,
    Network,
    SimulatedOrder,
    common_order,
    common_positions,
    common_sizes,
    communication_summary,
    fitted_network,
    match_entries,
    on_job_clock,
    recorded_groups,
    simulated_orders,
    start_offsets,
    unmatched,
    with_deferred_ends,
)
from ...schema.arguments import ASTRA_SIM, Target
from ...schema.comm_groups import RankList, number_groups
from ...schema.graph import ExecutionGraph
from .transfers import ExcessTime, complete_matches, excess_times


class RankCommunication(NamedTuple):
    """What the second step needs of a rank's graph: rank lists of its groups, for simulators its communication."""

    groups: list[RankList]
    summary: CommunicationSummary


class RankPlan(NamedTuple):
    """What one rank's graph has to keep: ids of communication without partners, sizes by id, ids in the common order,
    for replay mode and for modelled communication; how much later than the first rank it began, in ns; and what
    collectives took beyond the fitted network.
    """

    numbers: dict[RankList, int]
    unpartnered: list[int]
    sizes: dict[int, int]
    order: list[int]
    simulated_order: SimulatedOrder
    start_offset_ns: int
    excess: ExcessTime


def look_up(graph: ExecutionGraph, target: Target) -> RankCommunication:
    """Returns what other ranks need to know of a graph; for simulators the graph is already one of the job's ranks."""
    summary = communication_summary(graph) if target == ASTRA_SIM else CommunicationSummary(Calls.of([]), [])
    return RankCommunication(recorded_groups(graph).lists, summary)


class JobPlan(NamedTuple):
    """What each rank has to keep, the numbers of all groups, and the network that what was measured fits."""

    ranks: dict[int, RankPlan]
    numbers: dict[RankList, int]
    network: Network


def plan_job(communication_of: Mapping[int, RankCommunication]) -> JobPlan:
    """Returns what the ranks' communication needs. Raises DataError where it contradicts itself."""
    numbers = number_groups(group for rank in communication_of.values() for group in rank.groups)
    present = sorted(communication_of)
    issued = match_entries([communication_of[rank].summary for rank in present])
    unmatched_nodes, offsets = unmatched(issued), start_offsets(issued).tolist()
    timed = on_job_clock(issued, offsets)
    remaining = [_remove_nodes(entries, set(nodes)) for entries, nodes in zip(timed, unmatched_nodes, strict=True)]
    positions = common_positions(with_deferred_ends(remaining))
    orders = simulated_orders(remaining, positions)
    matches = complete_matches(remaining, frozenset[int]().union(*(order.awaited for order in orders)))
    network = fitted_network([match.transfer for match in matches.values()], len(present))
    columns = zip(
        unmatched_nodes,
        common_sizes(remaining),
        common_order(remaining),
        orders,
        offsets,
        excess_times(remaining, positions, matches if network.transfers else {}, network),
        strict=True,
    )
    plans = {rank: RankPlan(numbers, *kept) for rank, kept in zip(present, columns, strict=True)}
    return JobPlan(plans, numbers, network)


def _remove_nodes(issued: Sequence[CommunicationEntry], nodes: set[int]) -> list[CommunicationEntry]:
    """Returns a rank's entries without those of some nodes; successors of a removed one follow its predecessor."""
    kept, new_row, followed_by = list[CommunicationEntry](), dict[int, int](), dict[int, set[int]]()
    for number, entry in enumerate(issued):
        follows = set[int]()
        for before in entry.follows:
            follows |= {new_row[before]} if before in new_row else followed_by[before]
        if entry.node in nodes:
            followed_by[number] = follows
        else:
            new_row[number] = len(kept)
            kept.append(entry._replace(follows=tuple(sorted(follows))))
    return kept
