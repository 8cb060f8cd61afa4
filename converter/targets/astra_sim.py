"""Makes a graph that both generations of ASTRA-sim run to the end, by a list of passes, and counts what changed."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from ...schema.arguments import ASTRA_SIM, GOAL, WHOLE_JOB, Target
from ...schema.columns import Bool, Int64, Ragged, previous_in_group
from ...schema.comm_groups import RankList
from ...schema.errors import DataError
from ...schema.graph import Change, DependencyKind, ExecutionGraph, NodeType, TargetChanges
from ...schema.linked import FOREVER
from ..edges import Edges
from ..ranks import recorded_groups
from ..rewiring import COMMUNICATION, SILENT, control_edges, data_edges, edited_graph, lanes_of, spliced, used
from . import communication, times
from .times import Lowering

WIDE = 2_000
"""From this many ready nodes on a simulation takes seconds where a chained graph takes milliseconds."""


def played_nodes(graph: ExecutionGraph, lowering: Lowering) -> ExecutionGraph:
    """Returns the graph without the nodes that no simulator runs. Raises DataError where there are no others."""
    silent = np.isin(graph.type, SILENT)
    if silent.all():
        raise DataError("the graph has no node that a simulator runs; was the trace recorded while the model ran?")
    data, control = spliced(data_edges(graph), silent), spliced(control_edges(graph), silent)
    data = data._replace(kind=data.kind & ~int(DependencyKind.CALL_ORDER))
    lowering.add(Change.REMOVED, int(silent.sum()))
    played = edited_graph(graph, data, control, np.flatnonzero(~silent))
    played.metadata["target"] = ASTRA_SIM
    return played


def off_the_host(graph: ExecutionGraph, _: Lowering) -> ExecutionGraph:
    """Makes all communication that of the device, in place, and drops attributes that no node has any more."""
    graph.attributes["is_cpu_op"] = np.where(np.isin(graph.type, COMMUNICATION), 0, graph.integers("is_cpu_op", 0))
    graph.attributes = used(graph.attributes.items()) | {"data_dep_kinds": graph.attributes["data_dep_kinds"]}
    return graph


def without_own_control(graph: ExecutionGraph, lowering: Lowering) -> ExecutionGraph:
    """Removes control dependencies that data dependencies do not imply, in place."""
    control = control_edges(graph)
    is_kept = implied(control, data_edges(graph), lanes_of(graph))
    graph.ctrl_deps = Ragged.grouped(control.target[is_kept], control.source[is_kept] + 1, len(graph))
    lowering.add(Change.CONTROL_REMOVED, int((~is_kept).sum()))
    return graph


def count_ready_nodes(graph: ExecutionGraph, lowering: Lowering) -> ExecutionGraph:
    """Counts how many nodes at most are ready at once by the measured clock, and changes nothing."""
    end, edges = graph.start_ns + graph.duration_ns, data_edges(graph)
    released = np.full(len(graph), graph.start_ns.min())
    np.maximum.at(released, edges.target, end[edges.source])
    time = np.concatenate((released, np.maximum(end, released + 1)))
    change = np.repeat((1, -1), len(graph))
    most = int(np.cumsum(change[np.lexsort((change, time))]).max())
    lowering.add(Change.MOST_READY, most)
    lowering.note(
        most > WIDE, f"up to {most} nodes are ready at once; the time to simulate grows with the square of that"
    )
    return graph


def note_own_numbers(graph: ExecutionGraph, lowering: Lowering) -> ExecutionGraph:
    """Says that groups are numbered as one rank knows them, and changes nothing."""
    is_numbered = (graph.type == NodeType.COMM_COLL) & graph.texts("pg_name").where(bool)
    lowering.note(
        lowering.groups is None and is_numbered.any(),
        "groups are numbered as this rank knows them; build all ranks together, or give each one file of groups",
    )
    return graph


PASSES: tuple[Callable[[ExecutionGraph, Lowering], ExecutionGraph], ...] = (
    lambda graph, _: communication.separate_messages(graph),  # a send or receive has one peer
    played_nodes,  # metadata runs nowhere
    communication.complete_messages,  # v3 stops at a missing attribute
    communication.lower_collectives,  # some types are refused
    communication.compute_unplayable,  # what has no partner or no known type would stop or hang
    communication.pad_all_gathers,  # an all-gather of few bytes never ends
    communication.number_groups_of,  # a group is found by its number
    off_the_host,  # what runs on the host does not communicate
    times.with_delay_nodes,  # the simulator computes the duration of communication and known work anew
    communication.in_common_order,  # members that come in different orders deadlock
    times.serialise,  # one node of a kind runs at a time
    communication.with_ready_messages,  # a send does not wait for its receiver
    times.with_excess_time,  # the network gives collectives less than they took
    times.in_order_of_ends,  # of several ready nodes the lowest id goes first
    times.with_node_after_messages,  # v3 stops where a rank ends with a message
    times.with_start_offset,  # all ranks start at once
    without_own_control,  # some simulators obey control dependencies, others do not
    count_ready_nodes,  # the time to simulate grows with the square of them
    times.with_known_work,  # roofline mode stops at nodes without work
    note_own_numbers,  # ranks that are built one by one number their groups differently
    communication.with_shared_ids,  # a custom algorithm of one collective is found by an id for all ranks
)
"""What is done to a graph in turn, and why; each may change the graph in place."""


def lower_for_target(
    graph: ExecutionGraph,
    target: Target,
    groups: Mapping[RankList, int] | None = None,
    roofline: times.Roofline | None = None,
    start_offset_ns: int = 0,
) -> ExecutionGraph:
    """Returns a graph for one of TARGETS, with the changes that were made for it; the one passed in stays as it is.
    With `groups`, the number of each rank list, collectives name their group by number. With `roofline` peaks,
    computation takes the time of its work. Raises DataError if the target cannot use the graph, or `groups` lacks one
    of its groups.
    """
    if target == GOAL:
        raise DataError(*WHOLE_JOB)
    if target == ASTRA_SIM:
        lowering, played = Lowering(groups, roofline, start_offset_ns), graph
        for run in PASSES:
            played = run(played, lowering)
        return dataclasses.replace(played, report=graph.report, changes=lowering.changes)
    graph = dataclasses.replace(graph, attributes=dict(graph.attributes), changes=TargetChanges())
    if groups is not None:
        communication.name_groups(graph, recorded_groups(graph), groups, None)
    return graph


def implied(control: Edges, data: Edges, lane: Int64) -> Bool:
    """Returns the control edges that follow from a data edge, or from the chain of a single lane."""

    def keys(source: Int64, target: Int64) -> Int64:
        # -1 for a pair whose source is missing (-1)
        return np.where(source >= 0, target * len(lane) + source, -1)

    # a key above all others ends the sorted ones, so that each pair has a position among them
    pairs = np.append(np.sort(keys(data.source, data.target)), FOREVER)

    def is_edge(source: Int64, target: Int64) -> Bool:
        pair = keys(source, target)
        return np.asarray(pairs[np.searchsorted(pairs, pair)] == pair)

    order = np.argsort(lane, kind="stable")
    before = previous_in_group(order, lane)[data.target]
    # neighbours on a lane are of one chain if one depends on the other, directly or through one node
    chained, chain = np.zeros(len(lane), np.bool_), np.empty(len(lane), np.int64)
    chained[data.target[(data.source == before) | is_edge(before, data.source)]] = True
    chain[order] = np.cumsum(~chained[order])
    along = (chain[control.source] == chain[control.target]) & (control.source < control.target)
    return np.asarray(along | is_edge(control.source, control.target))
