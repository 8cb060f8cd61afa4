"""Communication as ASTRA-sim runs it: types and sizes on which it neither stops nor hangs, one peer for each message,
groups by number, one order, and ready messages for sends that waited.

ASTRA-sim sends a message when its node is ready, and a receive that comes later takes no time. Where the measured send
waited for its receiver, the receiver's kernel sends a few bytes back as soon as it can start, and the send waits for
them. Sends and collectives take the place of communication, so they follow each other in the common order; a receive
takes none, and follows only what its kernel follows.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Categorical, Int32, Int64, NodeNumbers, Ragged, group_ids, is_group_start
from ...schema.comm_groups import INT32_MAX, RankList, number_groups
from ...schema.errors import DataError
from ...schema.graph import Change, CollectiveType, Column, DependencyKind, ExecutionGraph, NodeType
from ..communication import COALESCED
from ..edges import Edges, deduplicated
from ..ranks import Groups, recorded_groups
from ..rewiring import control_edges, data_edges, edited_graph, lanes_of, rows_of_graph, take_rows, with_added_nodes
from .lowering import Lowering, all_ranks

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


class _Messages(NamedTuple):
    """Coalesced messages: the row of the kernel, the message's own row, and whether it is the first or the last."""

    kernel: Int64
    row: Int64
    is_first: Bool
    is_last: Bool


def separate_messages(graph: ExecutionGraph) -> ExecutionGraph:
    """Returns the graph with a node for every message; the same graph if it has no coalesced messages. O((n + e) log
    n).

    Sends come first, and each message follows the previous one: as they run in sequence, a receive must not block a
    send for which its own sender waits.
    """
    lists = {name: graph.attributes.get(several) for name, several in COALESCED.items()}
    sizes = lists["comm_size"]
    if not isinstance(sizes, Ragged) or not len(sizes.values):
        return graph
    messages = _messages(sizes)
    row = messages.row
    separate = _with_rows_of(messages, graph)
    for name, column in lists.items():
        if isinstance(column, Ragged):
            values = separate.integers(name)
            values[row] = column.values
            separate.attributes[name] = values
    own_rank = graph.number("rank", -1)
    separate.type[row] = np.where(
        separate.integers("comm_src")[row] == own_rank, NodeType.COMM_SEND, NodeType.COMM_RECV
    )
    entry = np.arange(len(graph))
    entry[messages.kernel[messages.is_first]] = row[messages.is_first]
    follows = ~messages.is_first[1:]
    chain = Edges.of(NodeNumbers(row[:-1][follows]), NodeNumbers(row[1:][follows]), DependencyKind.STREAM_ORDER)
    data, control = (
        edges._replace(target=NodeNumbers(entry[edges.target])) for edges in (data_edges(graph), control_edges(graph))
    )
    return edited_graph(separate, NodeNumbers(np.arange(len(separate))), Edges.joined([data, chain]), control)


def _messages(sizes: Ragged) -> _Messages:
    """Returns the messages of the rows of `sizes`; the last message of a kernel keeps the kernel's row."""
    kernel = sizes.rows()
    is_last = np.zeros(len(kernel), np.bool_)
    is_last[sizes.starts[1:] - 1] = True
    row = np.where(is_last, kernel, len(sizes) + np.cumsum(~is_last) - 1)
    return _Messages(kernel, row, is_group_start(kernel), is_last)


def _with_rows_of(messages: _Messages, graph: ExecutionGraph) -> ExecutionGraph:
    """Returns the graph with a row for each message; those added are copies of the kernel's without a duration.

    The times before a kernel move to its first message.
    """
    copied, added = messages.kernel[~messages.is_last], messages.row[~messages.is_last]
    kernels, entries = messages.kernel[messages.is_first], messages.row[messages.is_first]
    # the lists of all messages of a kernel are not copied to each message
    coalesced = COALESCED.values()
    single = {name: column for name, column in graph.attributes.items() if name not in coalesced}
    bare = dataclasses.replace(graph, attributes=single)
    widened = rows_of_graph(bare, NodeNumbers(np.concatenate((np.arange(len(graph)), copied))))
    attributes: dict[str, Column] = {**widened.attributes}
    duration = widened.duration_ns
    duration[added] = 0
    attributes["duration_ns"] = duration
    for name in BEFORE:
        if name in attributes:
            column = widened.integers(name)
            before = column[kernels]
            column[added], column[kernels] = ABSENT, ABSENT
            column[entries] = before
            attributes[name] = column
    return dataclasses.replace(widened, attributes=attributes)


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
    """Sets the type of communication on which the simulator would stop or hang to COMP, in place, so that it takes its
    measured time; counted by the first reason that applies. Without a known world no rank counts as outside it.
    """
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
    lowering.note(
        max(numbers.values(), default=0) > LARGEST_NUMBER,
        f"a group has a number above {LARGEST_NUMBER}, more than the simulator can bear",
    )
    return graph


def name_groups(
    graph: ExecutionGraph, groups: Groups, numbers: Mapping[RankList, int] | None, world: RankList | None
) -> dict[RankList, int]:
    """Sets `pg_name` of collectives to the number of their group, "" for the whole world or an unknown group; returns
    the numbers.

    Collectives of groups with one member, or with a missing member, get no name. `pg_recorded` keeps the recorded name.
    Without `numbers` the graph's own groups are numbered. Raises DataError for a group that `numbers` lacks.
    """
    collective, messages = (
        graph.type == NodeType.COMM_COLL,
        np.isin(graph.type, (NodeType.COMM_SEND, NodeType.COMM_RECV)),
    )
    used = [groups.lists[number] for number in np.unique(groups.of_node[collective]).tolist() if number >= 0]
    named = dict.fromkeys(ranks for ranks in used if ranks != world and ranks in number_groups([ranks]))
    numbers = number_groups(named) if numbers is None else numbers
    if lacking := [ranks for ranks in named if ranks not in numbers]:
        raise DataError(f"the communicator groups given lack the ranks {list(lacking[0])}; add that group to the file")
    if "pg_recorded" not in graph.attributes:
        graph.attributes["pg_recorded"] = graph.texts("pg_name")
    names = [*(str(numbers[ranks]) if ranks in named else ALL_RANKS for ranks in groups.lists), ALL_RANKS]
    has_number = np.array([*(ranks in named or ranks == world for ranks in groups.lists), True])[groups.of_node]
    which = np.where(collective, groups.of_node, -1)
    graph.attributes["pg_name"] = _names_of_nodes(names, which, (collective & has_number) | messages)
    return {ranks: numbers[ranks] for ranks in named}


def _names_of_nodes(names: list[str], which: Int64, present: Bool) -> Categorical:
    group_names = Categorical.of(names)
    codes: Int32 = np.where(present, group_names.codes[which], -1).astype(np.int32)
    return Categorical(codes, group_names.table)


def in_common_order(graph: ExecutionGraph, _: Lowering) -> ExecutionGraph:
    """Returns the graph with a dependency between each two consecutive sends and collectives by `comm_order`."""
    order = graph.integers("comm_order")
    rows = np.flatnonzero((order != ABSENT) & (graph.type != NodeType.COMM_RECV))
    rows = rows[np.argsort(order[rows], kind="stable")]
    if len(rows) < 2:
        return graph
    chain = Edges.of(NodeNumbers(rows[:-1]), NodeNumbers(rows[1:]), DependencyKind.COLLECTIVE)
    data = deduplicated(Edges.joined([data_edges(graph), chain]), len(graph))
    return edited_graph(graph, NodeNumbers(np.arange(len(graph))), data, control_edges(graph))


def with_ready_messages(graph: ExecutionGraph, lowering: Lowering) -> ExecutionGraph:
    """Returns the graph with a node for each `ready_tag`.

    A receive's node sends it after what its kernel depends on, and before the first collective that comes after the
    message in the common order: that one takes the place of communication until all members are there, and one of them
    may wait for the message. A send's node receives it.
    """
    order, tags = graph.integers("comm_order"), graph.integers("ready_tag")
    receives, sends = (np.flatnonzero((tags != ABSENT) & (graph.type == kind)) for kind in reversed(MESSAGES))
    if not len(receives) and not len(sends):
        return _without_plan(graph)
    data, first, count = data_edges(graph), _first_messages(graph)[receives], len(graph)
    added = count + np.arange(len(receives) + len(sends))
    ready, awaited = NodeNumbers(added[: len(receives)]), NodeNumbers(added[len(receives) :])
    widened = _with_answers(_with_answers(graph, receives, first, READY), sends, sends, AWAITED)
    widened.type[ready], widened.type[awaited] = MESSAGES
    edges = [
        data,
        _same_dependencies(data, first, ready, count),
        _same_dependencies(data, sends, awaited, count),
        Edges.of(ready, NodeNumbers(receives), DependencyKind.COLLECTIVE),
        Edges.of(ready, _next_collectives(graph, order, receives), DependencyKind.COLLECTIVE),
        Edges.of(awaited, NodeNumbers(sends), DependencyKind.COLLECTIVE),
    ]
    rows, joined = NodeNumbers(np.arange(len(widened))), deduplicated(Edges.joined(edges), len(widened))
    lowering.add(Change.READY_MESSAGES, len(receives))
    return edited_graph(_without_plan(widened), rows, joined, control_edges(graph))


def _without_plan(graph: ExecutionGraph) -> ExecutionGraph:
    attributes = {name: column for name, column in graph.attributes.items() if name not in PLAN}
    return dataclasses.replace(graph, attributes=attributes)


def _with_answers(graph: ExecutionGraph, messages: Int64, like: Int64, name: str) -> ExecutionGraph:
    """Returns the graph with a node for each of the messages that goes the other way, at the start of the rows
    `like`.
    """
    values = {
        "is_cpu_op": np.zeros(len(messages), np.int64),
        "start_time_ns": graph.integers("start_time_ns")[like],
        "comm_src": graph.integers("comm_dst")[messages],
        "comm_dst": graph.integers("comm_src")[messages],
        "comm_tag": graph.integers("ready_tag")[messages],
        "comm_size": np.full(len(messages), READY_BYTES),
    }
    return with_added_nodes(graph, NodeNumbers(like), name, values)


def _next_collectives(graph: ExecutionGraph, order: Int64, messages: Int64) -> NodeNumbers:
    """Returns the first collective after each of the messages in the common order, -1 where none follows."""
    rows = np.flatnonzero((order != ABSENT) & (graph.type == NodeType.COMM_COLL))
    rows = rows[np.argsort(order[rows], kind="stable")]
    following = np.searchsorted(order[rows], order[messages], side="right")
    return NodeNumbers(np.append(rows, -1)[following])


def _first_messages(graph: ExecutionGraph) -> Int64:
    """Returns for each row of a message the first message of its kernel, which begin together on its stream."""
    rows, first = np.flatnonzero(np.isin(graph.type, MESSAGES)), np.arange(len(graph))
    kernel = group_ids(lanes_of(graph)[rows], graph.start_ns[rows])
    earliest = np.full(len(rows), len(graph))
    np.minimum.at(earliest, kernel, rows)
    first[rows] = earliest[kernel]
    return first


def _same_dependencies(data: Edges, like: Int64, rows: NodeNumbers, count: int) -> Edges:
    """Returns edges to the rows from what the rows `like` depend on, without the order of communication."""
    own_edges = data.where(data.kind != DependencyKind.COLLECTIVE)
    sources = take_rows(Ragged.grouped(own_edges.target, own_edges.source, count), like)
    targets = np.repeat(rows, sources.lengths())
    return Edges.of(NodeNumbers(sources.values), NodeNumbers(targets), DependencyKind.LAUNCH)
