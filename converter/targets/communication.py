"""Communication as ASTRA-sim runs it: types, sizes, peers, groups and one order on which it neither stops nor hangs. It
sends a message when its node is ready, and a late receive takes no time. Where the measured send waited for its
receiver, the receiver's kernel sends a few bytes back as soon as it can start, for which the send waits.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from ...schema.columns import ABSENT, Bool, Categorical, Int32, Int64, NodeIds, Ragged, group_ids, is_group_start
from ...schema.comm_groups import INT32_MAX, LARGEST_JOB, RankList, number_groups
from ...schema.errors import DataError
from ...schema.graph import Change, CollectiveType, DependencyKind, ExecutionGraph, NodeType
from ..communication import COALESCED
from ..edges import Edges, deduplicated
from ..ranks import Groups, recorded_groups
from ..rewiring import control_edges, data_edges, edited_graph, lanes_of, rows_of_graph, set_rows, with_added_nodes
from .times import Lowering

PLAYED = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.ALL_TO_ALL,
    CollectiveType.BROADCAST,  # for its measured duration
)

LOWERED = {
    # a pipelined reduction sends the buffer once over each link of the ring, as reduce-scatter does
    CollectiveType.REDUCE: CollectiveType.REDUCE_SCATTER,
    # the root's link carries everybody's shard, as every link of an all-gather does
    CollectiveType.GATHER: CollectiveType.ALL_GATHER,
    # the reverse of a gather: the root's link carries all shards but its own
    CollectiveType.SCATTER: CollectiveType.REDUCE_SCATTER,
    CollectiveType.REDUCE_SCATTER_BLOCK: CollectiveType.REDUCE_SCATTER,
    # as in NCCL: no member has the sum before all have arrived
    CollectiveType.BARRIER: CollectiveType.ALL_REDUCE,
}
"""For each type that the simulator refuses, the type with the most similar load of the network; sizes stay."""

LEAST_BYTES = 128
"""An all-gather of fewer bytes than the simulated system splits a data set into (usually 4 to 64) never ends."""
LARGEST_NUMBER = 2_147
"""The simulator's stream numbers begin at a million times the group's number, in 32 bits."""
ALL_RANKS = ""
BEFORE = ("gap_ns", "host_delay_ns")
"""Times before the first message. The last message has the kernel's duration, the others none."""
READY, AWAITED = "ready to receive", "receiver is ready"
"""The names of the nodes that send and receive ready messages."""
READY_BYTES = 64
PLAN = ("comm_order", "ready_tag")
"""What the ranks agreed on, at the nodes that it concerns."""
MESSAGES = (NodeType.COMM_SEND, NodeType.COMM_RECV)
Reasons = list[tuple[str, Bool]]


def separate_messages(graph: ExecutionGraph) -> ExecutionGraph:
    """Returns the graph with a node for each message, in sequence, sends first; the same graph if none is coalesced."""
    lists = {name: graph.attributes.get(several) for name, several in COALESCED.items()}
    sizes = lists["comm_size"]
    if not isinstance(sizes, Ragged) or not len(sizes.values):
        return graph
    kernel = sizes.rows()
    is_first = is_group_start(kernel)
    is_last = np.append(is_first[1:], True)
    # the last message of a kernel keeps the kernel's row and duration, those added are copies of it without one
    added = len(graph) + np.arange(len(kernel) - is_last.sum())
    row = kernel.copy()
    row[~is_last] = added
    attributes = {name: column for name, column in graph.attributes.items() if name not in COALESCED.values()}
    copies = np.concatenate((np.arange(len(graph)), kernel[~is_last]))
    separate = rows_of_graph(dataclasses.replace(graph, attributes=attributes), copies)
    separate.attributes["duration_ns"] = set_rows(separate.duration_ns, added, 0)
    entry = np.arange(len(graph))
    entry[kernel[is_first]] = row[is_first]
    for name in [name for name in BEFORE if name in separate.attributes]:
        column = separate.integers(name)
        before = column[kernel[is_first]]
        column[row] = ABSENT
        separate.attributes[name] = set_rows(column, row[is_first], before)
    for name, values in lists.items():
        if isinstance(values, Ragged):
            separate.attributes[name] = set_rows(separate.integers(name), row, values.values)
    is_send = separate.integers("comm_src")[row] == graph.number("rank", -1)
    separate.type[row] = np.where(is_send, *MESSAGES)
    follows = ~is_first[1:]
    chain = Edges.of(row[:-1][follows], row[1:][follows], DependencyKind.STREAM_ORDER)
    data, control = (edges.renumbered(target=entry) for edges in (data_edges(graph), control_edges(graph)))
    return edited_graph(separate, Edges.joined([data, chain]), control)


def simulated_as(kind: int) -> int:
    """Returns the CollectiveType as which the simulator runs one of this type; other numbers stay."""
    return int(LOWERED.get(CollectiveType(kind), kind)) if kind >= 0 else kind


def complete_messages(graph: ExecutionGraph, _: Lowering) -> ExecutionGraph:
    """Writes the own rank and tag 0 on sends and receives that lack them, in place: v3 stops at a missing attribute."""
    sends, receives = (graph.type == kind for kind in MESSAGES)
    rank = graph.number("rank", -1)
    for name, rows, value in (
        ("comm_src", sends, rank),
        ("comm_dst", receives, rank),
        ("comm_tag", sends | receives, 0),
    ):
        column = graph.integers(name)
        if rows.any():
            graph.attributes[name] = np.where(rows & (column == ABSENT), value, column)
    return graph


def lower_collectives(graph: ExecutionGraph, lowering: Lowering) -> ExecutionGraph:
    """Replaces types that the simulator refuses, in place."""
    collective, recorded = graph.type == NodeType.COMM_COLL, graph.integers("comm_type")
    lowered = recorded.copy()
    for kind, instead in LOWERED.items():
        rows = collective & (recorded == kind)
        lowered[rows] = instead
        reason = f"{kind.name} as {instead.name}".lower().replace("_", " ")
        lowering.add(Change.LOWERED, int(rows.sum()), reason)
    graph.attributes["comm_type"] = lowered
    _grow(graph, collective & (recorded == CollectiveType.BARRIER))
    return graph


def pad_all_gathers(graph: ExecutionGraph, lowering: Lowering) -> ExecutionGraph:
    """Gives all-gathers at least LEAST_BYTES, in place."""
    gathers = (graph.type == NodeType.COMM_COLL) & (graph.integers("comm_type") == CollectiveType.ALL_GATHER)
    lowering.add(Change.PADDED, _grow(graph, gathers))
    return graph


def _grow(graph: ExecutionGraph, rows: Bool) -> int:
    size = graph.integers("comm_size")
    small = rows & (size < LEAST_BYTES)
    graph.attributes["comm_size"] = np.where(small, LEAST_BYTES, size)
    return int(small.sum())


def compute_unplayable(graph: ExecutionGraph, lowering: Lowering) -> ExecutionGraph:
    """Makes communication on which the simulator would stop or hang COMP, in place, counted by the first reason."""
    rank, world, groups, counts = graph.number("rank", -1), all_ranks(graph), recorded_groups(graph), dict[str, int]()
    for reason, rows in _collective_reasons(graph, groups, rank, world) + _message_reasons(graph, rank, world):
        rows = rows & (graph.type != NodeType.COMP)
        graph.type[rows] = NodeType.COMP
        counts[reason] = counts.get(reason, 0) + int(rows.sum())
    for reason, count in counts.items():
        lowering.add(Change.AS_COMPUTATION, count, reason)
    return graph


def _collective_reasons(graph: ExecutionGraph, groups: Groups, rank: int, world: RankList | None) -> Reasons:
    collective, simulated = graph.type == NodeType.COMM_COLL, set(world or ())

    def in_group(facts: list[bool], unknown: bool) -> Bool:
        return np.asarray(collective & np.array([*facts, unknown])[groups.of_node])

    single, foreign = [len(ranks) < 2 for ranks in groups.lists], [-1 < rank not in ranks for ranks in groups.lists]
    outside = [world is not None and not simulated.issuperset(ranks) for ranks in groups.lists]
    return [
        ("in a group of one", in_group(single, world is not None and len(world) < 2)),
        ("in a group without this rank", in_group(foreign, False)),
        ("in a group with ranks that are not simulated", in_group(outside, False)),
        ("of an unknown type", collective & ~np.isin(graph.integers("comm_type"), PLAYED)),
        ("without data", collective & (graph.integers("comm_size") <= 0)),
    ]


def _message_reasons(graph: ExecutionGraph, rank: int, world: RankList | None) -> Reasons:
    is_send, is_receive = graph.type == NodeType.COMM_SEND, graph.type == NodeType.COMM_RECV
    message, tag = is_send | is_receive, graph.integers("comm_tag", 0)
    source, destination = graph.integers("comm_src"), graph.integers("comm_dst")
    # the side that is not recorded is the node's own rank
    own_side = np.where(is_send, source, destination)
    own_side = np.where(own_side == ABSENT, rank, own_side)
    peer = np.where(is_send, destination, source)
    simulated = np.ones(len(graph), np.bool_) if world is None else np.isin(peer, world)
    return [
        ("to or from a rank that is unknown or not simulated", message & ((peer < 0) | (own_side < 0))),
        ("of another rank", message & (own_side != rank)),
        ("to the rank itself", message & (peer == rank)),
        ("to or from a rank that is unknown or not simulated", message & ~simulated),
        ("with a tag out of range", message & ((tag < 0) | (tag > INT32_MAX))),
        ("without data", message & (graph.integers("comm_size") <= 0)),
    ]


def number_groups_of(graph: ExecutionGraph, lowering: Lowering) -> ExecutionGraph:
    """Names the groups of collectives by their numbers, in place, see `name_groups`."""
    groups = recorded_groups(graph)
    numbers = name_groups(graph, groups, lowering.groups, all_ranks(graph))
    unknown = int(((graph.type == NodeType.COMM_COLL) & (groups.of_node < 0)).sum())
    lowering.note(unknown, f"{unknown} collectives without recorded ranks are taken as ones of all ranks")
    is_beyond = max(numbers.values(), default=0) > LARGEST_NUMBER
    lowering.note(is_beyond, f"a group has a number above {LARGEST_NUMBER}, more than the simulator can bear")
    return graph


def name_groups(
    graph: ExecutionGraph, groups: Groups, numbers: Mapping[RankList, int] | None, world: RankList | None
) -> dict[RankList, int]:
    """Sets `pg_name` to the number of the group, "" for the world and unknown ones, and returns the numbers."""
    collective, messages = graph.type == NodeType.COMM_COLL, np.isin(graph.type, MESSAGES)
    used = [groups.lists[number] for number in np.unique(groups.of_node[collective]).tolist() if number >= 0]
    named = dict.fromkeys(ranks for ranks in used if ranks != world and ranks in number_groups([ranks]))
    numbers = number_groups(named) if numbers is None else numbers
    if lacking := [ranks for ranks in named if ranks not in numbers]:
        raise DataError(f"the communicator groups given lack the ranks {list(lacking[0])}; add that group to the file")
    if "pg_recorded" not in graph.attributes:
        graph.attributes["pg_recorded"] = graph.texts("pg_name")
    of_lists = (str(numbers[ranks]) if ranks in named else ALL_RANKS for ranks in groups.lists)
    names = Categorical.of([*of_lists, ALL_RANKS])
    has_number = np.array([*(ranks in named or ranks == world for ranks in groups.lists), True])[groups.of_node]
    which = np.where(collective, groups.of_node, -1)
    codes: Int32 = np.where((collective & has_number) | messages, names.codes[which], -1).astype(np.int32)
    graph.attributes["pg_name"] = Categorical(codes, names.table)
    return {ranks: numbers[ranks] for ranks in named}


def in_common_order(graph: ExecutionGraph, _: Lowering) -> ExecutionGraph:
    """Returns the graph with a dependency between each two consecutive sends and collectives by `comm_order`."""
    rows = _in_common_order(graph, graph.type != NodeType.COMM_RECV)
    if len(rows) < 2:
        return graph
    chain = Edges.of(rows[:-1], rows[1:], DependencyKind.COLLECTIVE)
    return edited_graph(graph, deduplicated(Edges.joined([data_edges(graph), chain]), len(graph)), control_edges(graph))


def _in_common_order(graph: ExecutionGraph, chosen: Bool) -> Int64:
    order = graph.integers("comm_order")
    rows = np.flatnonzero((order != ABSENT) & chosen)
    return rows[np.argsort(order[rows], kind="stable")]


def with_ready_messages(graph: ExecutionGraph, lowering: Lowering) -> ExecutionGraph:
    """Returns the graph with a node for each `ready_tag`: the receiver sends it before any later collective."""
    order, tags = graph.integers("comm_order"), graph.integers("ready_tag")
    receives, sends = (np.flatnonzero((tags != ABSENT) & (graph.type == kind)) for kind in reversed(MESSAGES))
    if not len(receives) and not len(sends):
        return _without_plan(graph)
    # the messages of a kernel begin together on its stream
    data, messages = data_edges(graph), np.flatnonzero(np.isin(graph.type, MESSAGES))
    kernel = group_ids(lanes_of(graph)[messages], graph.start_ns[messages])
    earliest = np.full(len(messages), len(graph))
    np.minimum.at(earliest, kernel, messages)
    first = earliest[kernel[np.searchsorted(messages, receives)]]
    ready, awaited = np.split(len(graph) + np.arange(len(receives) + len(sends)), [len(receives)])
    widened = _with_answers(_with_answers(graph, receives, first, READY), sends, sends, AWAITED)
    widened.type[ready], widened.type[awaited] = MESSAGES
    collectives = _in_common_order(graph, graph.type == NodeType.COMM_COLL)
    following = np.searchsorted(order[collectives], order[receives], side="right")
    edges = [
        data, _same_dependencies(data, first, ready, len(graph)), _same_dependencies(data, sends, awaited, len(graph)),
        Edges.of(ready, receives, DependencyKind.COLLECTIVE),
        Edges.of(ready, np.append(collectives, -1)[following], DependencyKind.COLLECTIVE),
        Edges.of(awaited, sends, DependencyKind.COLLECTIVE),
    ]  # fmt: skip
    lowering.add(Change.READY_MESSAGES, len(receives))
    joined = deduplicated(Edges.joined(edges), len(widened))
    return edited_graph(_without_plan(widened), joined, control_edges(graph))


def _without_plan(graph: ExecutionGraph) -> ExecutionGraph:
    attributes = {name: column for name, column in graph.attributes.items() if name not in PLAN}
    return dataclasses.replace(graph, attributes=attributes)


def _with_answers(graph: ExecutionGraph, messages: Int64, like: Int64, name: str) -> ExecutionGraph:
    """Returns the graph with a node for each message that goes the other way, at the start of rows `like`."""
    values = {
        "start_time_ns": graph.integers("start_time_ns")[like],
        "comm_src": graph.integers("comm_dst")[messages],
        "comm_dst": graph.integers("comm_src")[messages],
        "comm_tag": graph.integers("ready_tag")[messages],
        "comm_size": np.full(len(messages), READY_BYTES),
    }
    return with_added_nodes(graph, like, name, values)


def with_shared_ids(graph: ExecutionGraph, lowering: Lowering) -> ExecutionGraph:
    """Returns the graph with each `shared_id` as the id of its node, others counted on from the node before."""
    row, shared = np.arange(len(graph)), graph.integers("shared_id", 0)
    ids = NodeIds(np.maximum.accumulate(np.maximum(shared, 1) - row) + row)
    lost = int(((shared > 0) & ((ids != shared) | (ids > INT32_MAX))).sum())
    lowering.note(lost, f"{lost} collectives have ids for which ASTRA-sim finds no custom algorithm of their own")
    attributes = {name: column for name, column in graph.attributes.items() if name != "shared_id"}
    data, called = (Ragged(deps.starts, ids[deps.values - 1]) for deps in (graph.data_deps, graph.ctrl_deps))
    return dataclasses.replace(graph, id=ids, data_deps=data, ctrl_deps=called, attributes=attributes)


def all_ranks(graph: ExecutionGraph) -> RankList | None:
    """Returns the ranks of the job by the metadata, None if their number is not known or too large."""
    size = graph.number("world_size", -1)
    return (tuple(range(size)) if size <= LARGEST_JOB else None) or None


def _same_dependencies(data: Edges, like: Int64, rows: Int64, count: int) -> Edges:
    """Returns edges to the rows from what the rows `like` depend on, without the order of communication."""
    own_edges = data.where(data.kind != DependencyKind.COLLECTIVE)
    sources = Ragged.grouped(own_edges.target, own_edges.source, count).take(like)
    return Edges.of(sources.values, np.repeat(rows, sources.lengths()), DependencyKind.LAUNCH)
