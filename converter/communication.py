"""Communication in a graph: what a recorded one means, and the attributes of its nodes.

Node type, collective type and bytes follow from tables of names and dtypes; tags identify a message at both ends.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..schema.columns import ABSENT, Categorical, Int64, Ragged
from ..schema.comm_groups import ADDRESS, natural
from ..schema.graph import CollectiveType, Column, NodeType
from ..schema.linked import Communication, LinkedTrace

LARGEST = (1 << 63) - 1
INTEGERS = ("comm_type", "comm_size", "comm_seq", "comm_src", "comm_dst", "comm_tag")
COALESCED = {name: name.replace("comm", "coalesced") for name in ("comm_src", "comm_dst", "comm_tag", "comm_size")}
"""For several messages of one kernel: the attribute that lists the values of all of them for each attribute of one."""
Channel = tuple[tuple[int, ...], tuple[int, str], bool, int]
"""Ranks and name of the group, which sort alike on all ranks; whether the message is coalesced with others, which takes
another path; and the recorded tag.
"""


class Meaning(NamedTuple):
    """What a communication is. `type` is None for send and receive; `size` is in bytes."""

    node: NodeType
    type: CollectiveType | None
    size: int


# by the recorded name without case, underscores and library; the first that the name starts with
_COLLECTIVES = (
    ("allreduce", CollectiveType.ALL_REDUCE),
    ("reducescatter", CollectiveType.REDUCE_SCATTER),
    ("allgather", CollectiveType.ALL_GATHER),
    ("alltoall", CollectiveType.ALL_TO_ALL),
    ("broadcast", CollectiveType.BROADCAST),
    ("gather", CollectiveType.GATHER),
    ("scatter", CollectiveType.SCATTER),
    ("reduce", CollectiveType.REDUCE),
    ("barrier", CollectiveType.BARRIER),
)
_MESSAGES = (
    ("send", NodeType.COMM_SEND),
    ("isend", NodeType.COMM_SEND),
    ("recv", NodeType.COMM_RECV),
    ("irecv", NodeType.COMM_RECV),
)
# in a kernel's name, where "gather" or "send" may mean anything
_IN_KERNEL = (
    *_COLLECTIVES[:5],
    ("crossdevicereduce", CollectiveType.ALL_REDUCE),
    ("kernelreduce", CollectiveType.REDUCE),
    ("ncclreduce", CollectiveType.REDUCE),
)

_BYTES = {
    16: "complex128 complexdouble",
    8: "double float64 long longint longlong int64 int64t uint64 uint64t unsignedlong unsignedlonglong unsignedlongint"
    " complexfloat complex64",
    4: "float float32 int int32 int32t uint32 uint32t unsignedint complexhalf complex32 qint32",
    2: "half float16 bfloat16 short shortint int16 int16t uint16 uint16t unsignedshort unsignedshortint bits16",
    1: "byte char bool int8 int8t uint8 uint8t signedchar unsignedchar qint8 quint8 quint4x2 quint2x4 bits1x8 bits2x4 "
    "bits4x2 bits8"
    " float8e4m3fn float8e5m2 float8e4m3fnuz float8e5m2fnuz float8e8m0fnu float4e2m1fnx2"
    " int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7",
}
BYTES_OF_DTYPE = {name: size for size, names in _BYTES.items() for name in names.split()}


def bytes_per_element(dtype: str, unknown: int = 1) -> int:
    """Returns the size of a dtype by any of the names that PyTorch writes; `unknown` for another name.

    >>> bytes_per_element("c10::BFloat16"), bytes_per_element("Float8_e4m3fn"), bytes_per_element("long int")
    (2, 1, 8)
    """
    return BYTES_OF_DTYPE.get(re.sub(r"c10::|torch\.|[^a-z0-9]", "", dtype.lower()), unknown)


def peers(recorded: Communication, node: NodeType, own_rank: int) -> tuple[int, int]:
    """Returns the global (source, destination) ranks of a send or receive, -1 where not recorded."""
    return (own_rank, recorded.target) if node is NodeType.COMM_SEND else (recorded.source, own_rank)


def meaning(recorded: Communication, kernel: str) -> Meaning | None:
    """Returns the meaning of a communication by its recorded name, or else by the kernel's name; None if neither tells.

    Coalesced messages are described by the first receive, or else the first send.
    """
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
    kinds = (kind for prefix, kind in (*_MESSAGES, *_COLLECTIVES) if plain.startswith(prefix))
    return next(kinds, None)


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
    """Node types and communication attributes of a graph, and how many types and dtypes are unknown."""

    types: npt.NDArray[np.uint8]
    attributes: dict[str, Column]
    unknown_types: int
    unknown_dtypes: int


class _Known(NamedTuple):
    """A node whose communication is known: its row, and which of so many kernels of the communication it is."""

    row: int
    recorded: Communication
    decoded: Meaning
    nth: int
    kernels: int

    def share(self, size: int) -> int:
        """Returns the node's share of so many bytes."""
        return size // self.kernels + (self.nth < size % self.kernels)


def communication_columns(linked: LinkedTrace, count: int, nodes: Sequence[CommunicationNode]) -> CommunicationColumns:
    """Returns node types and attributes of `nodes`, which are in graph order; other nodes are computation.

    Kernels of one communication share its bytes. Linear, apart from tags.
    """
    kernels, seen, known = Counter(node.communication for node in nodes), Counter[int](), list[_Known]()
    for row, number, kernel in nodes:
        recorded = linked.communications[number]
        if (decoded := meaning(recorded, kernel)) is not None:
            known.append(_Known(row, recorded, decoded, seen[number], kernels[number]))
            seen[number] += 1
    types = np.full(count, NodeType.COMP, np.uint8)
    types[[node.row for node in known]] = [node.decoded.node for node in known]
    unknown_dtypes = sum(node.decoded.size > 0 and not bytes_per_element(node.recorded.dtype, 0) for node in known)
    attributes = _attributes(known, linked.info.rank, count)
    return CommunicationColumns(types, attributes, len(nodes) - len(known), unknown_dtypes)


def _attributes(nodes: list[_Known], own_rank: int, count: int) -> dict[str, Column]:
    integers = {name: np.full(count, ABSENT, np.int64) for name in INTEGERS}
    splits: dict[int, list[int]] = {}
    messages: list[Message] = []
    labels: defaultdict[tuple[int, ...], dict[str, str]] = defaultdict(dict)
    for node in nodes:
        row, recorded, decoded, *_ = node
        if recorded.sequence >= 0:
            integers["comm_seq"][row] = recorded.sequence
        if decoded.type is None:
            messages += _messages(node, own_rank, labels)
            continue
        size = node.share(decoded.size)
        integers["comm_type"][row], integers["comm_size"][row] = decoded.type, size
        # a root is the source or destination of the collective
        for name, rank in (("comm_src", recorded.source), ("comm_dst", recorded.target)):
            if rank >= 0:
                integers[name][row] = rank
        split, parts = recorded.in_split, sum(recorded.in_split)
        is_split = decoded.type is CollectiveType.ALL_TO_ALL and split and min(split) >= 0
        if is_split and len(split) == len(recorded.ranks):
            # the unit of splits may be rows
            splits[row] = [size * part // parts for part in split] if parts else [0] * len(split)
    lists = _message_attributes(integers, messages, count)
    names = _texts({node.row: node.recorded.group for node in nodes}, count)
    purposes = {node.row: node.recorded.description for node in nodes if node.recorded.description}
    ranks = {node.row: node.recorded.ranks for node in nodes if node.recorded.ranks}
    return {
        **integers,
        "pg_name": names,
        "pg_recorded": names,
        **lists,
        **({"pg_desc": _texts(purposes, count)} if purposes else {}),
        **({"pg_ranks": _lists(ranks, count)} if ranks else {}),
        **({"comm_split": _lists(splits, count)} if splits else {}),
    }


def _texts(texts: dict[int, str], count: int) -> Categorical:
    """Returns a column with these texts by row."""
    codes, named = np.full(count, -1, np.int32), Categorical.of(texts.values())
    codes[[*texts]] = named.codes
    return Categorical(codes, named.table)


def _lists(lists: Mapping[int, Sequence[int]], count: int) -> Ragged:
    """Returns a column with these lists by row, whose rows ascend."""
    row = np.repeat(np.array([*lists], np.int64), [*map(len, lists.values())])
    return Ragged.grouped(row, np.fromiter(chain.from_iterable(lists.values()), np.int64, len(row)), count)


def _messages(node: _Known, own_rank: int, labels: dict[tuple[int, ...], dict[str, str]]) -> list[Message]:
    messages = []
    for part in node.recorded.parts:
        decoded = meaning(part, "") or node.decoded
        label_of_address, label = labels[tuple(part.ranks)], part.group
        if ADDRESS.fullmatch(label):
            label = label_of_address.setdefault(label, f"at address {len(label_of_address) + 1}")
        channel = (tuple(part.ranks), natural(label), bool(node.recorded.coalesced), part.tag)
        source, target = peers(part, decoded.node, own_rank)
        messages.append(Message(node.row, decoded.node, source, target, node.share(decoded.size), channel))
    # sends first: a simulator that runs them in sequence must not wait before it has sent
    return sorted(messages, key=lambda message: message.type is NodeType.COMM_RECV)


def _message_attributes(integers: dict[str, Int64], messages: Sequence[Message], count: int) -> dict[str, Column]:
    """Writes the attributes of each node's messages: of the last message, and lists for a node with several."""
    facts = {
        "comm_src": [message.source for message in messages],
        "comm_dst": [message.target for message in messages],
        "comm_tag": tags(messages),
        "comm_size": [message.size for message in messages],
    }
    node = np.array([message.node for message in messages], np.int64)
    several = np.bincount(node, minlength=count)[node] > 1
    lists: dict[str, Column] = {}
    for name, values in facts.items():
        column = np.array(values, np.int64)
        integers[name][node] = column
        if several.any():
            lists[COALESCED[name]] = Ragged.grouped(node[several], column[several], count)
    return lists


def tags(messages: Sequence[Message]) -> list[int]:
    """Returns a tag for each message of a rank, in the order of issue, which is the same at both ends.

    Messages from one rank to another are counted by channel, which both ends can do independently. If several channels
    join two ranks, each has its own tags.
    """
    channels: defaultdict[tuple[int, int], set[Channel]] = defaultdict(set)
    for message in messages:
        channels[message.source, message.target].add(message.channel)
    channel_number = {
        pair: {channel: number for number, channel in enumerate(sorted(used))} for pair, used in channels.items()
    }
    counts, message_tags = Counter[tuple[int, int, Channel]](), list[int]()
    for message in messages:
        pair = message.source, message.target
        key = (*pair, message.channel)
        message_tags.append(counts[key] * len(channel_number[pair]) + channel_number[pair][message.channel])
        counts[key] += 1
    return message_tags
