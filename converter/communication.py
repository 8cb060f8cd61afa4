"""Communication in a graph: what a recorded one means, and the attributes of its nodes."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..schema.columns import ABSENT, Categorical, Ragged
from ..schema.comm_groups import ADDRESS, natural
from ..schema.dtypes import bytes_per_element
from ..schema.graph import CollectiveType, Column, NodeType
from ..schema.linked import Communication, LinkedTrace

LARGEST = (1 << 63) - 1
COALESCED = {name: name.replace("comm", "coalesced") for name in ("comm_src", "comm_dst", "comm_tag", "comm_size")}
"""For several messages of one kernel: the attribute that lists the values of all of them for each attribute of one."""
Channel = tuple[tuple[int, ...], tuple[int, str], bool, int]
"""Ranks and name of the group, whether the message is coalesced with others, and the recorded tag."""


class Meaning(NamedTuple):
    """What a communication is. `type` is None for send and receive; `size` is in bytes."""

    node: NodeType
    type: CollectiveType | None
    size: int


# by the recorded name without case, underscores and library; the first that the name starts with
_COLLECTIVES = (
    ("allreduce", CollectiveType.ALL_REDUCE), ("reducescatter", CollectiveType.REDUCE_SCATTER),
    ("allgather", CollectiveType.ALL_GATHER), ("alltoall", CollectiveType.ALL_TO_ALL),
    ("broadcast", CollectiveType.BROADCAST), ("gather", CollectiveType.GATHER), ("scatter", CollectiveType.SCATTER),
    ("reduce", CollectiveType.REDUCE), ("barrier", CollectiveType.BARRIER),
)  # fmt: skip
_MESSAGES = ((("send", "isend"), NodeType.COMM_SEND), (("recv", "irecv"), NodeType.COMM_RECV))
# in a kernel's name, where "gather" or "send" may mean anything
_IN_KERNEL = (
    *_COLLECTIVES[:5], ("crossdevicereduce", CollectiveType.ALL_REDUCE), ("kernelreduce", CollectiveType.REDUCE),
    ("ncclreduce", CollectiveType.REDUCE),
)  # fmt: skip


def peers(recorded: Communication, node: NodeType, own_rank: int) -> tuple[int, int]:
    """Returns the global (source, destination) ranks of a send or receive, -1 where not recorded."""
    return (own_rank, recorded.target) if node is NodeType.COMM_SEND else (recorded.source, own_rank)


def meaning(recorded: Communication, kernel: str) -> Meaning | None:
    """Returns what a communication means by its recorded name, else by the kernel's name; None if neither tells."""
    if recorded.coalesced:
        parts = [part for part in (meaning(part, "") for part in recorded.coalesced) if part]
        return max(parts, key=lambda part: part.node is NodeType.COMM_RECV, default=None)
    kind = _kind(recorded.name)
    if kind is None:
        # else by the part of a kernel's name before its parameters
        name = re.split(r"[(<]", kernel.removeprefix("void "), maxsplit=1)[0]
        plain = re.sub(r"[^a-z0-9]", "", name.lower())
        kind = _kind(name) if "::" in name else None
        kind = next((kind for text, kind in _IN_KERNEL if text in plain), None) if kind is None else kind
    if kind is None:
        return None
    size = min(_elements(recorded, kind) * bytes_per_element(recorded.dtype), LARGEST)
    return Meaning(kind, None, size) if isinstance(kind, NodeType) else Meaning(NodeType.COMM_COLL, kind, size)


def _kind(name: str) -> NodeType | CollectiveType | None:
    """Returns the type for a name such as allreduce, _allgather_base, all_to_allv, nccl:recv or xccl::broadcast."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower().rpartition(":")[2]).removeprefix("nccl")
    message = next((kind for prefixes, kind in _MESSAGES if plain.startswith(prefixes)), None)
    return message or next((kind for prefix, kind in _COLLECTIVES if plain.startswith(prefix)), None)


def _elements(recorded: Communication, kind: NodeType | CollectiveType) -> int:
    """Returns how many elements the rank sends, which decide the time; by those received where that is not recorded."""
    sent, received = max(recorded.in_elements, 0), max(recorded.out_elements, 0)
    members = len(recorded.ranks) or max(recorded.group_size, 1)
    if kind is NodeType.COMM_RECV:
        return received or sent
    if kind in (CollectiveType.ALL_GATHER, CollectiveType.GATHER):
        return sent or received // members
    if kind in (CollectiveType.REDUCE_SCATTER, CollectiveType.SCATTER):
        return sent or received * members
    return sent or received


class CommunicationNode(NamedTuple):
    """A node that communicates: its row in the graph, the row of its communication, and the name of its kernel."""

    row: int
    communication: int
    kernel: str


class Message(NamedTuple):
    """A send or receive; those of a channel from one rank to another arrive in the order in which they are sent."""

    node: int
    type: NodeType
    source: int
    target: int
    size: int
    channel: "Channel"


class CommunicationColumns(NamedTuple):
    """Node types of a graph, communication attributes that nodes have, and how many types and dtypes are unknown."""

    types: npt.NDArray[np.uint8]
    attributes: dict[str, Column]
    unknown_types: int
    unknown_dtypes: int


def communication_columns(linked: LinkedTrace, count: int, nodes: Sequence[CommunicationNode]) -> CommunicationColumns:
    """Returns node types and attributes of `nodes`, in graph order; kernels of one communication share its bytes."""
    kernels, seen = Counter(node.communication for node in nodes), Counter[int]()
    types, unknown_dtypes = np.full(count, NodeType.COMP, np.uint8), 0
    values, messages = defaultdict[str, dict[int, Any]](dict), list[Message]()
    labels = defaultdict[tuple[int, ...], dict[str, str]](dict)
    for row, number, kernel in nodes:
        recorded = linked.communications[number]
        if (decoded := meaning(recorded, kernel)) is None:
            continue
        types[row] = decoded.node
        unknown_dtypes += decoded.size > 0 and not bytes_per_element(recorded.dtype, 0)
        share = partial(_share, part=seen[number], parts=kernels[number])
        seen[number] += 1
        if decoded.type is None:
            sent = _messages(row, recorded, decoded, linked.info.rank, labels)
            messages += [message._replace(size=share(message.size)) for message in sent]
        else:
            values["comm_type"][row], values["comm_size"][row] = decoded.type, share(decoded.size)
        for name, value in _recorded_attributes(recorded, decoded.type, share(decoded.size)).items():
            values[name][row] = value
    messages_of_node = Counter(message.node for message in messages)
    for message, tag in zip(messages, tags(messages), strict=True):
        for name, value in zip(COALESCED, (message.source, message.target, tag, message.size), strict=True):
            values[name][message.node] = value
            if messages_of_node[message.node] > 1:
                values[COALESCED[name]].setdefault(message.node, []).append(value)
    attributes = {name: _column(by_row, count) for name, by_row in values.items()}
    if "pg_name" in attributes:
        attributes["pg_recorded"] = attributes["pg_name"]
    return CommunicationColumns(types, attributes, len(nodes) - seen.total(), unknown_dtypes)


def _share(size: int, part: int, parts: int) -> int:
    """Returns the share of so many bytes that one of several parts has; together they have all."""
    return size // parts + (part < size % parts)


def _recorded_attributes(recorded: Communication, kind: CollectiveType | None, size: int) -> dict[str, Any]:
    """Returns the attributes of a communication that are recorded; `size` is in bytes."""
    split, split_count = recorded.in_split, sum(recorded.in_split)
    is_split = kind is CollectiveType.ALL_TO_ALL and split and min(split) >= 0 and len(split) == len(recorded.ranks)
    # a root is the source or destination of the collective, the unit of splits may be rows
    facts = (
        ("comm_seq", recorded.sequence, recorded.sequence >= 0),
        ("comm_src", recorded.source, kind is not None and recorded.source >= 0),
        ("comm_dst", recorded.target, kind is not None and recorded.target >= 0),
        ("comm_split", [size * part // (split_count or 1) for part in split], is_split),
        ("pg_name", recorded.group, True), ("pg_desc", recorded.description, recorded.description),
        ("pg_ranks", recorded.ranks, recorded.ranks),
    )  # fmt: skip
    return {name: value for name, value, is_known in facts if is_known}


def _column(values: Mapping[int, Any], count: int) -> Column:
    """Returns a column with these integers, texts or lists by row; the rows ascend."""
    rows, first = np.array([*values], np.int64), next(iter(values.values()))
    if isinstance(first, list):
        row = np.repeat(rows, [*map(len, values.values())])
        return Ragged.grouped(row, np.fromiter(chain.from_iterable(values.values()), np.int64, len(row)), count)
    if isinstance(first, str):
        codes, named = np.full(count, -1, np.int32), Categorical.of(values.values())
        codes[rows] = named.codes
        return Categorical(codes, named.table)
    column = np.full(count, ABSENT, np.int64)
    column[rows] = [*values.values()]
    return column


def _messages(
    row: int, recorded: Communication, decoded: Meaning, own_rank: int, labels: dict[tuple[int, ...], dict[str, str]]
) -> list[Message]:
    messages = []
    for part in recorded.parts:
        kind, _, size = meaning(part, "") or decoded
        label_of_address, label = labels[tuple(part.ranks)], part.group
        if ADDRESS.fullmatch(label):
            label = label_of_address.setdefault(label, f"at address {len(label_of_address) + 1}")
        channel = (tuple(part.ranks), natural(label), bool(recorded.coalesced), part.tag)
        messages.append(Message(row, kind, *peers(part, kind, own_rank), size, channel))
    # sends first: a simulator that runs them in sequence must not wait before it has sent
    return sorted(messages, key=lambda message: message.type is NodeType.COMM_RECV)


def tags(messages: Sequence[Message]) -> list[int]:
    """Returns a tag for each message of a rank, counted by channel in the order of issue, as the other end does."""
    channels = defaultdict[tuple[int, int], set[Channel]](set)
    for message in messages:
        channels[message.source, message.target].add(message.channel)
    numbers = {
        pair: {channel: number for number, channel in enumerate(sorted(used))} for pair, used in channels.items()
    }
    sent, message_tags = Counter[tuple[int, int, Channel]](), list[int]()
    for message in messages:
        numbers_of_pair = numbers[message.source, message.target]
        key = message.source, message.target, message.channel
        message_tags.append(sent[key] * len(numbers_of_pair) + numbers_of_pair[message.channel])
        sent[key] += 1
    return message_tags
