"""The attributes of communication nodes, from the recorded arguments; tags by which both ends of a message know it."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schema.columns import ABSENT, Categorical, Int64, Ragged
from ...schema.comm_groups import ADDRESS, natural
from ...schema.graph import CollectiveType, Column, NodeType
from ...schema.linked import Communication, LinkedTrace
from .communication import Meaning, is_known_dtype, meaning, peers

INTEGERS = ("comm_type", "comm_size", "comm_seq", "comm_src", "comm_dst", "comm_tag")
COALESCED = {name: name.replace("comm", "coalesced") for name in ("comm_src", "comm_dst", "comm_tag", "comm_size")}
"""Where several messages go with one kernel: the list that holds of all of them what the other attribute holds of one.
"""


class CommunicationNode(NamedTuple):
    """A node that communicates: its position, the communication's row, the kernel's name."""

    node: int
    row: int
    kernel: str


class Message(NamedTuple):
    """A send or receive; messages of one channel from one rank to another arrive in the order in which they are sent."""

    node: int
    type: NodeType
    source: int
    target: int
    size: int
    channel: "Channel"


Channel = tuple[tuple[int, ...], tuple[int, str], bool, int]
"""Ranks and name of the group, which sort alike on all ranks, whether sent together with others, which takes another
way, and the recorded tag.
"""


@dataclass(slots=True)
class CommunicationColumns:
    """What becomes of the communication of a trace of `count` nodes, and how much of it is of unknown type or dtype."""

    count: int
    types: npt.NDArray[np.uint8]
    integers: dict[str, Int64] = field(default_factory=dict)
    attributes: dict[str, Column] = field(default_factory=dict)
    unknown_types: int = 0
    unknown_dtypes: int = 0


def communication_columns(linked: LinkedTrace, count: int, places: Sequence[CommunicationNode]) -> CommunicationColumns:
    """Returns node types and attributes of `places`, which are in the order of their positions; other nodes are
    computation. Linear, but for tags.

    Kernels that one communication took share its bytes.
    """
    columns = CommunicationColumns(count, np.full(count, NodeType.COMP, np.uint8))
    columns.integers = {name: np.full(count, ABSENT, np.int64) for name in INTEGERS}
    kernels, nth = Counter(place.row for place in places), Counter[int]()
    group, members = np.full(count, -1, np.int32), np.zeros(count, np.int64)
    splits: dict[int, list[int]] = {}
    described = np.full(count, -1, np.int32)
    names, purposes, ranks, messages = dict[str, int](), dict[str, int](), list[int](), list[Message]()
    labels: defaultdict[tuple[int, ...], dict[str, str]] = defaultdict(dict)
    for place in places:
        recorded = linked.communications[place.row]
        found = meaning(recorded, place.kernel)
        if found is None:
            columns.unknown_types += 1
            continue
        columns.unknown_dtypes += found.size > 0 and not is_known_dtype(recorded.dtype)
        columns.types[place.node] = found.node
        share = _Share(nth[place.row], kernels[place.row])
        nth[place.row] += 1
        if found.type is None:
            messages += _messages(recorded, found, place, linked.info.rank, share, labels)
        else:
            _collective(columns, place.node, recorded, found, share)
            if split := split_bytes(recorded, found, share.of(found.size)):
                splits[place.node] = split
        if recorded.sequence >= 0:
            columns.integers["comm_seq"][place.node] = recorded.sequence
        group[place.node] = names.setdefault(recorded.group, len(names))
        if recorded.description:
            described[place.node] = purposes.setdefault(recorded.description, len(purposes))
        members[place.node] = len(recorded.ranks)
        ranks += recorded.ranks
    lists = _message_attributes(columns, messages)
    recorded_names = Categorical(group, list(names))
    columns.attributes = {**columns.integers, "pg_name": recorded_names, "pg_recorded": recorded_names, **lists}
    if purposes:
        columns.attributes["pg_desc"] = Categorical(described, list(purposes))
    if ranks:
        starts = np.concatenate(([0], np.cumsum(members))).astype(np.int64)
        columns.attributes["pg_ranks"] = Ragged(starts, np.array(ranks, np.int64))
    if splits:
        node = np.repeat(list(splits), [len(split) for split in splits.values()])
        values = np.array([size for split in splits.values() for size in split], np.int64)
        columns.attributes["comm_split"] = Ragged.grouped(node, values, count)
    return columns


def split_bytes(recorded: Communication, found: Meaning, size: int) -> list[int]:
    """Returns how many of `size` bytes an all-to-all sends to each member of its group; empty where that is not known.
    O(members).
    """
    split, rows = recorded.in_split, sum(recorded.in_split)
    if found.type is not CollectiveType.ALL_TO_ALL or len(split) != len(recorded.ranks) or min(split, default=-1) < 0:
        return []
    # splits may count rows
    return [size * part // rows for part in split] if rows else [0] * len(split)


class _Share(NamedTuple):
    """The part of a communication that the `nth` of several kernels does."""

    nth: int
    kernels: int

    def of(self, size: int) -> int:
        return size // self.kernels + (self.nth < size % self.kernels)


def _collective(
    columns: CommunicationColumns, node: int, recorded: Communication, found: Meaning, share: _Share
) -> None:
    """Type and size; the root of a collective that has one is its source or destination."""
    columns.integers["comm_type"][node] = ABSENT if found.type is None else found.type
    columns.integers["comm_size"][node] = share.of(found.size)
    for name, rank in (("comm_src", recorded.source), ("comm_dst", recorded.target)):
        if rank >= 0:
            columns.integers[name][node] = rank


def _messages(
    recorded: Communication,
    found: Meaning,
    place: CommunicationNode,
    own: int,
    share: _Share,
    labels: dict[tuple[int, ...], dict[str, str]],
) -> list[Message]:
    parts = [(part, meaning(part, "") or found) for part in recorded.parts]
    messages = []
    for part, meant in parts:
        known, label = labels[tuple(part.ranks)], part.group
        if ADDRESS.fullmatch(label):
            label = known.setdefault(label, f"at address {len(known) + 1}")
        channel = (tuple(part.ranks), natural(label), bool(recorded.coalesced), part.tag)
        source, target = peers(part, meant.node, own)
        messages.append(Message(place.node, meant.node, source, target, share.of(meant.size), channel))
    # the sends first: a simulator that runs them in turn must not wait before it has sent
    return sorted(messages, key=lambda message: message.type is NodeType.COMM_RECV)


def _message_attributes(columns: CommunicationColumns, messages: Sequence[Message]) -> dict[str, Column]:
    """Writes what is known of each node's messages: of the last one as of any, of several in lists."""
    facts = {
        "comm_src": [message.source for message in messages],
        "comm_dst": [message.target for message in messages],
        "comm_tag": tags(messages),
        "comm_size": [message.size for message in messages],
    }
    node = np.array([message.node for message in messages], np.int64)
    several = np.bincount(node, minlength=columns.count)[node] > 1
    lists: dict[str, Column] = {}
    for name, values in facts.items():
        column = np.array(values, np.int64)
        columns.integers[name][node] = column
        if several.any():
            lists[COALESCED[name]] = Ragged.grouped(node[several], column[several], columns.count)
    return lists


def tags(messages: Sequence[Message]) -> list[int]:
    """Returns a tag for each message of a rank, in the order in which they are issued, so that both ends give it the
    same.

    Messages from one rank to another are counted by channel, which both ends can do alone; where several channels join
    two ranks, each has tags of its own.
    """
    channels: defaultdict[tuple[int, int], set[Channel]] = defaultdict(set)
    for message in messages:
        channels[message.source, message.target].add(message.channel)
    place = {pair: {channel: at for at, channel in enumerate(sorted(found))} for pair, found in channels.items()}
    seen, found = Counter[tuple[int, int, Channel]](), list[int]()
    for message in messages:
        pair = message.source, message.target
        key = (*pair, message.channel)
        found.append(seen[key] * len(place[pair]) + place[pair][message.channel])
        seen[key] += 1
    return found
