"""Summarises what one rank communicated, in the order in which it issued it: enough to tell whether ranks agree.

For every process group a rank keeps digests: of what all members must have in common, of the shards in which they may
differ, of what it sends to each peer and expects of it, and of the order of two groups. Shards add up: with a weight
w(k) for collective k, the sum of w(k) · shard is that of w(k) · whole, almost surely only if all shards fit.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise, permutations
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...converter.communication import meaning, peers
from ...converter.ranks import Group, GroupNames, issued_at, ranks_of
from ...schema.columns import ABSENT, ROUNDING, Int64, RowMap, nearest, rows_by_number
from ...schema.graph import CollectiveType, NodeType
from ...schema.linked import STEP_MARK, Communication, LinkedTrace, op_parents

RECORD, ANNOTATION = "record_param_comms", "nccl:"
IN, OUT = "in_elements", "out_elements"
COMMON: dict[CollectiveType | None, str] = {
    CollectiveType.ALL_GATHER: OUT,
    CollectiveType.SCATTER: OUT,
    CollectiveType.ALL_TO_ALL: "",
}
"""The size that all members have in common, where it is not what goes in. All-to-alls have none."""
SHARD: dict[CollectiveType | None, str] = {CollectiveType.ALL_GATHER: IN, CollectiveType.REDUCE_SCATTER: OUT}
"""The size in which members may differ, as long as all of them together make up the common one."""
PRIME = (1 << 61) - 1
MULTIPLIER = 0x9E3779B97F4A7C15
"""Collective number k of a group, counted from 1, has the weight MULTIPLIER ** k modulo PRIME."""


class Issued(NamedTuple):
    """One collective or message of a rank and the op that asked for it; `group` is None for messages and if unknown."""

    node: NodeType
    group: Group | None
    recorded: Communication
    op: str
    start_ns: int = 0
    end_ns: int = 0
    on_host: bool = False


def issued_by(linked: LinkedTrace) -> list[Issued]:
    """Returns what a rank communicates in the order of issue, of starts where an activity has no launch call."""
    activities, ops = linked.activities, linked.ops
    on_device = np.flatnonzero(activities.communication_row >= 0)
    on_host = np.flatnonzero((ops.communication_row >= 0) & (ops.start != ABSENT))
    call = activities.call_row[on_device]
    submitted = linked.calls.start[call] if (call >= 0).all() else activities.start[on_device]
    number = np.concatenate((activities.communication_row[on_device], ops.communication_row[on_host]))
    # who asked is the nearest op around that is no mere record of communication
    is_record = ops.name.where(lambda name: name == RECORD or name.startswith(ANNOTATION))
    issuer = np.concatenate((activities.op_row[on_device], on_host))
    asked_by = RowMap(nearest(~is_record, op_parents(ops)))[issuer]
    asked = issued_at(ops.start[on_host], ops.rf_id[on_host])
    order = np.argsort(np.concatenate((submitted, asked)), kind="stable")
    start, end = (
        np.concatenate((getattr(activities, name)[on_device], getattr(ops, name)[on_host])) for name in ("start", "end")
    )
    # several kernels may do one communication
    first = np.sort(np.unique(number[order], return_index=True)[1])
    names, issued = GroupNames(), list[Issued]()
    for row in order[first].tolist():
        communication, op = linked.communications[int(number[row])], asked_by[row]
        for comm in communication.coalesced or [communication]:
            meant = meaning(comm, "")
            node = meant.node if meant else NodeType.COMM_COLL
            has_group = node is NodeType.COMM_COLL and comm.ranks
            group = names.group_of(comm.ranks, comm.group, comm.description) if has_group else None
            times = int(start[row]), int(end[row]), row >= len(on_device)
            issued.append(Issued(node, group, comm, ops.name[op] if op >= 0 else "", *times))
    return issued


class GroupSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a rank issued in a group: a digest of what members must have in common, in order, and one of their `shards`.

    `shard_sum` adds up over the members to `whole_sum` if shards fit. `sends` and `expects` are digests of all-to-alls,
    four bytes a member. `out_of_sequence` counts collectives numbered below the one before.
    """

    group: Group
    collectives: int
    common: str
    shards: str = ""
    shard_sum: int = 0
    whole_sum: int = 0
    sends: bytes = b""
    expects: bytes = b""
    out_of_sequence: int = 0


class RankComms(msgspec.Struct, frozen=True, omit_defaults=True):
    """What verification needs to know of a rank; messages are counted by "sender>receiver elements dtype" and the tag.

    `orders` are digests of the order of two groups, by their positions in `groups`. `overlapping` counts communications
    that began on a host thread before the previous one there had ended. `alone` is a digest of the names of ops
    and kernels where nothing shows that there are other ranks.
    """

    groups: list[GroupSummary] = []
    orders: list[tuple[int, int, str]] = []
    sent: dict[str, int] = {}
    received: dict[str, int] = {}
    unmatched: int = 0
    overlapping: int = 0
    steps: int = 0
    kernels: int = 0
    devices: int = 0
    streams: int = 0
    alone: str = ""


def summarise_rank(linked: LinkedTrace) -> RankComms:
    """Returns the summary of one linked rank; linear in its communications times the size of their groups."""
    issued, rank = issued_by(linked), linked.info.rank
    in_order = [(call.group, call.recorded) for call in issued if call.group]
    of_group: dict[Group, list[Communication]] = {group: [] for group in sorted({group for group, _ in in_order})}
    for group, communications in in_order:
        of_group[group].append(communications)
    unmatched = sum(
        call.group is None if call.node is NodeType.COMM_COLL else min(peers(call.recorded, call.node, rank)) < 0
        for call in issued
    )
    activities, ops = linked.activities, linked.ops
    on_host = np.flatnonzero((ops.communication_row >= 0) & (ops.start != ABSENT))
    on_host = on_host[np.lexsort((ops.start[on_host], ops.thread[on_host]))]
    thread, start, end = ops.thread[on_host], ops.start[on_host], ops.end[on_host]
    overlap_ns = np.minimum(end[:-1], end[1:]) - start[1:]
    names, kernels = ([of.table[code] for code in np.unique(of.codes).tolist()] for of in (ops.name, activities.name))
    is_alone = not issued and not linked.groups and linked.info.world_size < 2
    return RankComms(
        groups=[group_summary(group, communications) for group, communications in of_group.items()],
        orders=_orders([*of_group], [group for group, _ in in_order]), sent=_messages(issued, NodeType.COMM_SEND, rank),
        received=_messages(issued, NodeType.COMM_RECV, rank), unmatched=unmatched,
        overlapping=int(((thread[1:] == thread[:-1]) & (overlap_ns > ROUNDING)).sum()),
        steps=sum(name.startswith(STEP_MARK) for name in names), kernels=int(activities.category.equal("kernel").sum()),
        devices=len(np.unique(activities.device)),
        streams=len(np.unique(np.stack((activities.device, activities.stream)), axis=1).T),
        alone=_digest(sorted({*names, *kernels})) if is_alone else "",
    )  # fmt: skip


def identity(comm: Communication) -> tuple[str, str, int]:
    """Type, dtype and size: what all members of a collective must have in common. Size -1: not a single number."""
    kind = kind_of(comm)
    size = COMMON.get(kind, IN)
    name = kind.name.lower() if kind is not None else _plain(comm.name)
    return name, _plain(comm.dtype), getattr(comm, size) if size else -1


def kind_of(comm: Communication) -> CollectiveType | None:
    """Returns the type of a collective, None for messages and what is not known."""
    meant = meaning(comm, "")
    return meant.type if meant else None


def shares(comm: Communication, members: int, *, sent: bool) -> Int64 | None:
    """Returns the elements of an all-to-all for each member, or from each; None where that is not known.

    Splits may be recorded in rows: a split of 1 and 3 with 64 elements is one of 16 and 48.
    """
    split, elements = (comm.in_split, comm.in_elements) if sent else (comm.out_split, comm.out_elements)
    if not split:
        return np.full(members, elements // members) if elements >= 0 else None
    if len(split) != members:
        return None
    rows = sum(split)
    return np.array(split, np.int64) * (elements // rows if rows and elements > 0 and elements % rows == 0 else 1)


def group_summary(group: Group, issued: Sequence[Communication]) -> GroupSummary:
    """Returns the summary of what a rank issued in one group, in order."""
    shards, shard_sum, whole_sum = [], 0, 0
    for number, comm in enumerate(issued):
        field, whole = SHARD.get(kind_of(comm)), identity(comm)[2]
        if field and min(whole, getattr(comm, field)) >= 0:
            weight = pow(MULTIPLIER, number + 1, PRIME)
            shards.append(getattr(comm, field))
            shard_sum += weight * shards[-1]
            whole_sum += weight * whole
    members = len(ranks_of(group.ranks))
    numbers = [comm.sequence for comm in issued if comm.sequence >= 0]
    exchanges = [comm for comm in issued if kind_of(comm) is CollectiveType.ALL_TO_ALL]
    return GroupSummary(
        group=group, collectives=len(issued), common=_digest(map(identity, issued)),
        shards=_digest(shards) if shards else "", shard_sum=shard_sum % PRIME, whole_sum=whole_sum % PRIME,
        sends=_peer_digests([shares(comm, members, sent=True) for comm in exchanges]),
        expects=_peer_digests([shares(comm, members, sent=False) for comm in exchanges]),
        out_of_sequence=sum(later < number for number, later in pairwise(numbers)),
    )  # fmt: skip


def _peer_digests(exchanged: Sequence[Int64 | None]) -> bytes:
    """Returns for each member four bytes that tell what was exchanged with it, in order."""
    elements_of_all = [elements for elements in exchanged if elements is not None]
    if not elements_of_all or len(elements_of_all) < len(exchanged):
        return b""
    digest = np.zeros(len(elements_of_all[0]), np.uint64)
    for elements in elements_of_all:
        digest = (digest + elements.astype(np.uint64) + np.uint64(1)) * np.uint64(MULTIPLIER)
        digest ^= digest >> np.uint64(32)
    digests: npt.NDArray[np.uint32] = digest.astype("<u4")
    return digests.tobytes()


def _orders(groups: Sequence[Group], in_order: Sequence[Group]) -> list[tuple[int, int, str]]:
    """Digests of the order of every two groups that share several ranks, which have to wait for each other in both.

    Of groups of the same ranks there are two: which is the first the rank alone cannot know.
    """
    if len(groups) < 2:
        return []
    number_of = {group: number for number, group in enumerate(groups)}
    sequence = np.array([number_of[group] for group in in_order], np.int64)
    calls, none = rows_by_number(np.arange(len(sequence)), sequence), np.empty(0, np.int64)
    orders = []
    for first, second in _sharing_ranks([{*ranks_of(group.ranks)} for group in groups]):
        if first < second or groups[first].ranks == groups[second].ranks:
            of_first, of_second = calls.get(first, none), calls.get(second, none)
            in_turn = np.argsort(np.concatenate((of_first, of_second)))
            orders.append((first, second, _digest((in_turn < len(of_first)).tolist())))
    return orders


def _sharing_ranks(members: Sequence[set[int]]) -> list[tuple[int, int]]:
    """Returns every two groups, by number, that share several ranks. Linear in the members."""
    groups_of = defaultdict[int, list[int]](list)
    for number, ranks in enumerate(members):
        for rank in ranks:
            groups_of[rank].append(number)
    # ranks that are in the same groups stand for each other; the rank itself, which is in all, tells nothing of which
    # share another one
    groups_of.pop(max(groups_of, key=lambda rank: len(groups_of[rank]), default=-1), None)
    pairs = {pair for groups in {*map(tuple, groups_of.values())} for pair in permutations(groups, 2)}
    return sorted((left, right) for left, right in pairs if len(members[left] & members[right]) > 1)


def _messages(issued: Iterable[Issued], node: NodeType, rank: int) -> dict[str, int]:
    counts = Counter[str]()
    for call in issued:
        if call.node is node:
            comm, (source, target) = call.recorded, peers(call.recorded, node, rank)
            elements = comm.in_elements if node is NodeType.COMM_SEND else max(comm.out_elements, comm.in_elements)
            tag = f" tag {comm.tag}" if comm.tag > 0 else ""
            counts[f"{source}>{target} {elements} {_plain(comm.dtype)}{tag}"] += 1
    return dict(counts)


def _plain(text: str) -> str:
    """Returns a dtype or name, however it is written: `bfloat16` for `c10::BFloat16`."""
    return re.sub(r"c10::|[^a-z0-9]", "", text.lower())


def _digest(items: Iterable[object]) -> str:
    return hashlib.blake2b(repr(list(items)).encode(), digest_size=8).hexdigest()
