"""Do the ranks of a job agree? Small per-rank summaries in, disagreements out.

Of every process group a rank keeps how many collectives it issued and a digest of their types, dtypes and sizes; of uneven ones, per
peer, digests of what it sends and what it expects. Only for a disagreement are the ranks' communications looked at again.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import msgspec
import numpy as np

from ..schema.linked import Activities, Communication, LinkedTrace

SEND, RECEIVE = ("send", "isend"), ("recv", "irecv")
STEP_MARK = "ProfilerStep#"


class GroupSummary(msgspec.Struct, frozen=True):
    """What one rank issued in one group: `digest` is of all of it in order, `sends` and `expects` per member of the uneven ones."""

    ranks: list[int]
    collectives: int
    digest: str
    sends: dict[int, str] = {}
    expects: dict[int, str] = {}


class RankComms(msgspec.Struct, frozen=True):
    """What verification needs to know of a rank. `messages` counts sends and receives by (sender, receiver, elements, dtype)."""

    groups: list[GroupSummary] = []
    sent: dict[str, int] = {}
    received: dict[str, int] = {}
    unplaced: int = 0
    steps: int = 0
    kernels: int = 0
    devices: int = 0
    streams: int = 0


class Disagreement(NamedTuple):
    """Two ranks that differ in a group; `what` says how."""

    ranks: tuple[int, int]
    group: tuple[int, ...]
    what: str


class Findings(NamedTuple):
    """Disagreements that a simulator would hang or lie on, and what is merely absent."""

    disagreements: list[Disagreement]
    notes: list[str]


def summarise_rank(linked: LinkedTrace) -> RankComms:
    """The summary of one linked rank; linear in its communications times the size of their groups."""
    by_group: dict[tuple[int, ...], list[Communication]] = defaultdict(list)
    sent, received, unplaced = Counter[str](), Counter[str](), 0
    for found in in_order(linked):
        message = _message(found, linked.info.rank)
        if message is not None:
            (sent if found.name.startswith(SEND) else received)[message] += 1
        elif found.ranks:
            by_group[tuple(found.ranks)].append(found)
        else:
            unplaced += 1
    activities = linked.activities
    names = [linked.ops.name.table[code] for code in np.unique(linked.ops.name.codes).tolist()]
    return RankComms(
        groups=[_group_summary(ranks, issued) for ranks, issued in sorted(by_group.items())],
        sent=dict(sent),
        received=dict(received),
        unplaced=unplaced,
        steps=sum(name.startswith(STEP_MARK) for name in names),
        kernels=int((activities.category.codes == _code(activities, "kernel")).sum()),
        devices=len(np.unique(activities.device)),
        streams=len(np.unique(np.stack((activities.device, activities.stream)), axis=1).T),
    )


def in_order(linked: LinkedTrace) -> list[Communication]:
    """A rank's communications in the order in which they started, each once however many kernels it took."""
    activities, ops = linked.activities, linked.ops
    rows = [np.flatnonzero(table.communication_row >= 0) for table in (activities, ops)]
    number = np.concatenate((activities.communication_row[rows[0]], ops.communication_row[rows[1]]))
    start = np.concatenate((activities.start[rows[0]], ops.start[rows[1]]))
    return [linked.communications[place] for place in number[np.argsort(start, kind="stable")].tolist()]


def verify(ranks: Mapping[int, RankComms], world_size: int) -> Findings:
    """What the ranks' summaries disagree on. O(ranks × groups), and members squared only for uneven collectives."""
    members: dict[tuple[int, ...], dict[int, GroupSummary]] = defaultdict(dict)
    for rank, comms in ranks.items():
        for group in comms.groups:
            members[tuple(group.ranks)][rank] = group
    found: list[Disagreement] = []
    for group_ranks, summaries in sorted(members.items()):
        found += _group_disagreements(group_ranks, summaries, ranks)
    found += _unmatched_messages(ranks)
    return Findings(found, _notes(ranks, members, world_size))


def first_difference(disagreement: Disagreement, communications: Callable[[int], Sequence[Communication]]) -> str:
    """The first collective of the group on which two ranks differ, with both sides, from their communications in order."""
    left, right = disagreement.ranks
    sides = [
        [
            c
            for c in communications(rank)
            if tuple(c.ranks) == disagreement.group and not c.name.startswith((*SEND, *RECEIVE))
        ]
        for rank in (left, right)
    ]
    for number, (mine, other) in enumerate(zip_longest(*sides)):
        if mine is None or other is None or _identity(mine) != _identity(other):
            return f"collective {number} of the group: rank {left} {_words(mine)}, rank {right} {_words(other)}"
        if mine.in_split or other.in_split:
            sends = _share(mine.in_split, mine.in_elements, disagreement.group, right)
            expects = _share(other.out_split, other.out_elements, disagreement.group, left)
            if sends != expects:
                what = f"rank {left} sends {sends} elements to rank {right}, which expects {expects}"
                return f"collective {number} of the group ({mine.name}): {what}"
    return disagreement.what


def _code(activities: Activities, category: str) -> int:
    return activities.category.table.index(category) if category in activities.category.table else -2


def _message(found: Communication, own: int) -> str | None:
    """A send or receive as "sender>receiver elements dtype", None for a collective."""
    if found.name.startswith(SEND):
        peer, elements = found.target, found.in_elements
    elif found.name.startswith(RECEIVE):
        peer, elements = found.source, max(found.out_elements, found.in_elements)
    else:
        return None
    peer = found.ranks[peer] if 0 <= peer < len(found.ranks) else peer
    pair = f"{own}>{peer}" if found.name.startswith(SEND) else f"{peer}>{own}"
    return f"{pair} {elements} {found.dtype.lower()}"


def _group_summary(ranks: tuple[int, ...], issued: list[Communication]) -> GroupSummary:
    uneven = [found for found in issued if found.in_split or found.out_split]
    sides = [
        {
            peer: _digest(_share(getattr(found, split), getattr(found, elements), ranks, peer) for found in uneven)
            for peer in (ranks if uneven else ())
        }
        for split, elements in (("in_split", "in_elements"), ("out_split", "out_elements"))
    ]
    return GroupSummary(list(ranks), len(issued), _digest(map(_identity, issued)), *sides)


def _identity(found: Communication) -> tuple[str, str, int]:
    """What all members of a collective must agree on; the size of an uneven one differs by nature."""
    name = found.name.lower().replace("_", "")
    uneven = bool(found.in_split or found.out_split) or name.startswith(("scatter", "gather", "alltoallv"))
    return name, found.dtype.lower(), -1 if uneven else found.in_elements


def _share(split: list[int], elements: int, ranks: tuple[int, ...], peer: int) -> int:
    """How much of an uneven collective's buffer is for (or from) one member."""
    place = ranks.index(peer)
    return split[place] if place < len(split) else elements // len(ranks)


def _digest(items: Iterable[object]) -> str:
    return hashlib.blake2b(repr(list(items)).encode(), digest_size=8).hexdigest()


def _group_disagreements(
    group: tuple[int, ...], summaries: dict[int, GroupSummary], ranks: Mapping[int, RankComms]
) -> Iterable[Disagreement]:
    first, *others = sorted(summaries)
    for silent in sorted((set(group) & set(ranks)) - set(summaries)):
        yield Disagreement(
            (first, silent), group, f"rank {silent} issued no collective, rank {first} {summaries[first].collectives}"
        )
    for rank in others:
        mine, other = summaries[first], summaries[rank]
        if (mine.collectives, mine.digest) != (other.collectives, other.digest):
            yield Disagreement(
                (first, rank), group, f"{mine.collectives} and {other.collectives} collectives, types or sizes differ"
            )
    for rank in sorted(summaries):
        for peer in sorted(summaries):
            if summaries[rank].sends.get(peer) != summaries[peer].expects.get(rank):
                yield Disagreement((rank, peer), group, f"rank {rank} sends what rank {peer} does not expect")


def _unmatched_messages(ranks: Mapping[int, RankComms]) -> Iterable[Disagreement]:
    for rank, comms in sorted(ranks.items()):
        for sides, peer_at, what in ((("sent", "received"), 1, "sends"), (("received", "sent"), 0, "receives")):
            for message, count in sorted(getattr(comms, sides[0]).items()):
                peer = int(message.split(" ")[0].split(">")[peer_at])
                theirs = getattr(ranks[peer], sides[1]).get(message, 0) if peer in ranks else count
                if count > theirs:
                    yield Disagreement(
                        (rank, peer),
                        (),
                        f"rank {rank} {what} {count} times {message}, rank {peer} has {theirs} of them",
                    )


def _notes(
    ranks: Mapping[int, RankComms], members: dict[tuple[int, ...], dict[int, GroupSummary]], world_size: int
) -> list[str]:
    absent = sorted(set(range(world_size)) - set(ranks)) if world_size > 0 else []
    notes = [f"{len(absent)} of {world_size} ranks are absent: {_listing(absent)}"] if absent else []
    for group in sorted(members):
        missing = sorted(set(group) - set(ranks))
        if missing:
            notes.append(f"{len(missing)} of {len(group)} members of the group {_listing(group)} are absent")
    notes += [
        f"rank {rank}: {comms.unplaced} communications of unknown group"
        for rank, comms in sorted(ranks.items())
        if comms.unplaced
    ]
    return notes + _asymmetry(ranks)


def _asymmetry(ranks: Mapping[int, RankComms]) -> list[str]:
    """Ranks that recorded fewer kernels or other steps than the rest."""
    most = max((comms.kernels for comms in ranks.values()), default=0)
    notes = [
        f"rank {rank}: {mark_of(comms.kernels, most)}, {comms.kernels} kernels where another rank has {most}"
        for rank, comms in sorted(ranks.items())
        if mark_of(comms.kernels, most)
    ]
    steps = Counter(comms.steps for comms in ranks.values())
    if len(steps) > 1:
        usual = steps.most_common(1)[0][0]
        notes += [
            f"rank {rank}: {comms.steps} steps, other ranks {usual}"
            for rank, comms in sorted(ranks.items())
            if comms.steps != usual
        ]
    return notes


def mark_of(kernels: int, most: int) -> str:
    """MISSING for none, LOW under half of the largest rank's kernels, a note under four fifths."""
    share = kernels / most if most else 1.0
    return "MISSING" if share == 0 else "LOW" if share < 0.5 else "note" if share < 0.8 else ""


def _listing(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:12])) + (" …" if len(numbers) > 12 else "")


def _words(found: Communication | None) -> str:
    return f"{found.name} of {found.in_elements} {found.dtype}" if found is not None else "has none"
