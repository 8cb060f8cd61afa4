"""The plan that the ranks' graphs keep so that a simulator can run them together.

For one communication at a time, sizes and the order of communication are made the same on all members too, and what
lacks a partner becomes computation. What collectives took from the last arrival on is fitted to a network.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...converter import ranks as across_ranks
from ...converter.ranks import AWAITED_MESSAGE, MESSAGE, Calls, Network, SimulatedCalls, Transfer, network_time_ns
from ...converter.targets import LEAST_BYTES, simulated_as
from ...schema.arguments import ASTRA_SIM, Target
from ...schema.columns import ABSENT, Bool, Int64, Keys, NodeNumbers, asof_backward, group_sums, groupby, rows_by_number
from ...schema.comm_groups import RankList, number_groups
from ...schema.graph import Change, CollectiveType, ExecutionGraph, NodeType


class RankCommunication(NamedTuple):
    """What the second step needs of a graph: its groups, and for simulators its communication, else its calls."""

    groups: list[RankList]
    summary: SimulatedCalls | None
    calls: Calls


class RankPlan(NamedTuple):
    """What one rank's graph has to keep: attributes by id, the last value of which counts, and an order for replay."""

    numbers: dict[RankList, int]
    unpartnered: list[int]
    values: list[tuple[str, dict[int, int]]]
    order: list[int]
    start_offset_ns: int
    collectives_ns: int
    changes: dict[Change, int]


def look_up(graph: ExecutionGraph, target: Target) -> RankCommunication:
    """Returns what other ranks need to know of a graph; for simulators the graph is already one of the job's ranks."""
    summary = across_ranks.communication_summary(graph) if target == ASTRA_SIM else None
    rows = NodeNumbers(np.flatnonzero(graph.type == NodeType.COMM_COLL))
    calls = across_ranks.graph_calls(graph, rows, graph.number("rank", -1))
    # there may be thousands of ranks
    unused = calls.columns.keys() - {"type", "group", "kind", "size", "sequence", "start_ns", "end_ns", "on_host"}
    none: dict[str, Any] = dict.fromkeys(unused, np.zeros(len(calls), np.int64))
    return RankCommunication(across_ranks.recorded_groups(graph).lists, summary, replace(calls, **none))


def decisions_on(communication_of: Mapping[int, RankCommunication]) -> list[str]:
    """Returns how calls of ranks are matched, if not by sequence numbers, and which clocks contradict each other."""
    ranks = sorted(communication_of)
    calls = across_ranks.match([communication_of[rank].calls for rank in ranks])
    return [*calls.decisions, *across_ranks.clock_contradictions(calls.met(), ranks)]


def plan_job(
    communication_of: Mapping[int, RankCommunication], *, replay: bool, excess_time: bool
) -> tuple[dict[int, RankPlan], Network]:
    """Returns each rank's plan, and the network that what was measured fits. Raises DataError for contradictions."""
    numbers = number_groups(group for rank in communication_of.values() for group in rank.groups)
    present = sorted(communication_of)
    summaries = [summary for rank in present if (summary := communication_of[rank].summary) is not None]
    if not summaries:
        return dict.fromkeys(present, RankPlan(numbers, [], [], [], 0, 0, {})), Network()
    issued = across_ranks.matched_calls(summaries)
    is_lacking = across_ranks.lacks_members(issued)
    calls = issued.without(is_lacking)
    positions = across_ranks.common_positions(across_ranks.with_deferred_ends(calls))
    sizes = across_ranks.common_sizes(calls)
    position, ready_tag = across_ranks.simulated_order(calls, positions)
    transfers = complete_transfers(calls, ready_tag != ABSENT)
    network = across_ranks.fitted_network([*transfers.values()], len(present))
    columns: list[tuple[str, Change | None, Int64, Bool]] = [("comm_size", Change.RESIZED, sizes, sizes != calls.size)]
    taken_ns = np.zeros(len(present), np.int64)
    if not replay:
        columns += [("comm_order", None, position, position >= 0), ("ready_tag", None, ready_tag, ready_tag != ABSENT)]
        shared_id = across_ranks.shared_ids(calls, positions)
        columns.append(("shared_id", None, shared_id, shared_id > 0))
    if not replay and excess_time:
        timed = transfers if network.transfers else {}
        excess_ns, smaller, is_hidden, taken_ns = excess_times(calls, positions, timed, network)
        # ASTRA-sim runs a broadcast for its measured time
        broadcast = np.full(len(calls), int(CollectiveType.BROADCAST))
        columns += [
            ("comm_size", Change.SHRUNK, smaller, smaller > 0),
            ("comm_type", Change.HIDDEN, broadcast, is_hidden),
            ("excess_ns", None, excess_ns, excess_ns > 0),
        ]
    of_nodes = [(name, change, calls.by_node(values, chosen)) for name, change, values, chosen in columns]
    unpartnered, order = issued.by_node(issued.node, is_lacking), across_ranks.common_order(calls) if replay else []
    plans = {}
    for place, rank in enumerate(present):
        changes = {change: len(of_node[place]) for _, change, of_node in of_nodes if change is not None}
        changes[Change.WITHOUT_PARTNER] = len(unpartnered[place])
        values = [(name, of_node[place]) for name, _, of_node in of_nodes]
        times_ns = int(calls.offset_ns[place]), int(taken_ns[place])
        in_order = order[place] if replay else []
        plans[rank] = RankPlan(numbers, [*unpartnered[place]], values, in_order, *times_ns, changes)
    return plans, network


def complete_transfers(calls: SimulatedCalls, is_awaited: Bool) -> dict[int, Transfer]:
    """Returns, by match, the transfers in which all members took part; each lasts as long as its last member."""
    matches = groupby(calls.matched)
    count, members = matches.count(), calls.members[matches.first]
    kind = np.where(calls.kind >= 0, calls.kind, np.where(is_awaited, AWAITED_MESSAGE, MESSAGE))[matches.first]
    ranks, end = calls.rank[np.argsort(matches.number, kind="stable")].tolist(), np.cumsum(count)
    is_complete = count == np.where(members > 0, members, len(calls.offset_ns))
    chosen = np.argsort(matches.first)
    chosen = chosen[is_complete[chosen]]
    sizes, lengths = matches.largest(calls.size), matches.smallest(calls.transfer_ns)
    columns = (calls.matched[matches.first], kind, count, sizes, lengths, end)
    return {
        number: Transfer(kind, count, size, length, tuple(ranks[end - count : end]))
        for number, kind, count, size, length, end in zip(*(column[chosen].tolist() for column in columns), strict=True)
    }


def excess_times(
    calls: SimulatedCalls, positions: Int64, transfers: Mapping[int, Transfer], network: Network
) -> tuple[Int64, Int64, Bool, Int64]:
    """Returns for each call by how many ns it took longer than the network gives it; its bytes, if it ran beside others
    and the network would take longer than it took alone, else 0; and whether the latency alone would take longer. Also
    returns how long the collectives of each rank took. O(n log n) in the calls.

    `positions` are those of the calls in the order that all ranks share. What the network gives a collective too much
    is taken off the excess of the group's next ones, so that all of them together take the measured time.
    """
    ranks, count = len(calls.offset_ns), int(calls.matched.max(initial=-1)) + 1
    collectives = {number: transfer for number, transfer in transfers.items() if transfer.kind >= 0}
    is_played = np.isin(calls.matched, [*collectives])
    on_hosts, least_ns = np.ones(count, np.bool_), np.full(count, np.iinfo(np.int64).max)
    np.logical_and.at(on_hosts, calls.matched, calls.on_host)
    alone_ns = _alone_ns(calls, positions, is_played, collectives, on_hosts[calls.matched])
    np.minimum.at(least_ns, calls.matched[is_played], alone_ns[is_played])
    # the simulator numbers the collectives of a rank, so what one rank leaves out all have to
    hidden, smaller, given_ns = set[int](), dict[int, int](), dict[int, int]()
    for number, transfer in collectives.items():
        size, least = transfer.size, int(least_ns[number])
        if not on_hosts[number] and least < transfer.ns:
            if transfer.members == ranks and (network_time_ns(network, _simulated(transfer, 0)) or 0.0) > least:
                hidden.add(number)
                continue
            size = _size_for(network, transfer, least)
            if size < transfer.size:
                smaller[number] = size
        if (given := network_time_ns(network, _simulated(transfer, size))) is not None:
            given_ns[number] = round(given)
    is_timed = np.isin(calls.matched, [*given_ns])
    kept_ns = np.where(on_hosts[calls.matched], alone_ns, least_ns[calls.matched])
    columns = (column[is_timed].tolist() for column in (calls.rank, calls.matched, kept_ns))
    excess = np.zeros(len(calls), np.int64)
    excess[is_timed] = across_ranks.carried_excess(
        ((rank, collectives[number].ranks), taken - given_ns[number])
        for rank, number, taken in zip(*columns, strict=True)
    )
    sizes = np.array([smaller.get(number, 0) for number in calls.matched.tolist()], np.int64)
    taken_ns = group_sums(calls.rank[is_timed], kept_ns[is_timed], ranks)
    return excess, sizes, np.isin(calls.matched, [*hidden]), taken_ns


def _alone_ns(
    calls: SimulatedCalls, positions: Int64, is_played: Bool, collectives: Mapping[int, Transfer], on_hosts: Bool
) -> Int64:
    """Returns how long each collective took after those before it in the common order had ended on its rank.

    The last member to come took the shortest, and all end together; but host threads end each by itself.
    """
    rows = np.flatnonzero(is_played)
    alone, taken = np.zeros(len(calls), np.int64), np.zeros(len(calls), np.int64)
    taken[rows] = [collectives[number].ns for number in calls.matched[rows].tolist()]
    hosts = np.flatnonzero(on_hosts)
    hosts = hosts[np.lexsort((calls.start_ns[hosts], calls.matched[hosts]))]
    matched, start, end = calls.matched[hosts], calls.start_ns[hosts], calls.end_ns[hosts]
    taken[hosts] = end - start[asof_backward(Keys(matched, start), Keys(matched, end))]
    for of_rank in rows_by_number(rows, calls.rank).values():
        of_rank = of_rank[np.argsort(positions[of_rank], kind="stable")]
        end, begin = calls.end_ns[of_rank], calls.end_ns[of_rank] - taken[of_rank]
        ended = np.maximum.accumulate(np.append(begin[:1], end[:-1]))
        alone[of_rank] = np.maximum(end - np.maximum(begin, ended), 0)
    return alone


def _size_for(network: Network, transfer: Transfer, taken_ns: int) -> int:
    """Returns the bytes for which the network takes so long, but not more than the transfer has."""
    given_ns, latency_ns = (network_time_ns(network, _simulated(transfer, size)) for size in (transfer.size, 0))
    if given_ns is None or latency_ns is None or given_ns <= taken_ns:
        return transfer.size
    share = max(taken_ns - latency_ns, 0) / (given_ns - latency_ns) if given_ns > latency_ns else 1.0
    return max(round(transfer.size * share), min(LEAST_BYTES, transfer.size))


def _simulated(transfer: Transfer, size: int) -> Transfer:
    """Returns the transfer of so many bytes as the type that the simulator runs."""
    return transfer._replace(kind=simulated_as(transfer.kind), size=size)
