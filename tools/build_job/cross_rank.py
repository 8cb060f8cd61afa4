"""Checks whether the ranks of a job agree, by a small summary of each: disagreements and absences."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from ...converter.ranks import Group, ranks_of, ranks_text, recognised
from ..rank_rows import absent_ranks
from .rank_comms import PRIME, GroupSummary, RankComms

Told = TypeVar("Told", bound=Hashable)
NAMED = 60
"""Characters of a list of ranks that are shown."""
UNRECEIVED = "rank {0} sends {2} × {3} that rank {1} does not receive"
UNSENT = "rank {1} receives {2} × {3} that rank {0} did not send"


class Disagreement(NamedTuple):
    """Two ranks that differ in a group, in the order of two groups, or (without one) in messages; `what` says how, and
    who else does.
    """

    ranks: tuple[int, int]
    groups: tuple[Group, ...]
    what: str


class Findings(NamedTuple):
    """Disagreements that a simulator would hang or lie on, what is merely absent, and what each rank calls the groups
    of the job.
    """

    disagreements: list[Disagreement]
    notes: list[str]
    known: dict[int, dict[Group, Group]]


def verify(ranks: Mapping[int, RankComms], world_size: int) -> Findings:
    """Returns what the ranks' summaries disagree on. Linear in the summaries; members squared, but by columns, only for
    all-to-alls.
    """
    members: dict[Group, dict[int, GroupSummary]] = defaultdict(dict)
    present = sorted(ranks)
    used = [{summary.group: summary.common for summary in ranks[rank].groups} for rank in present]
    known = dict(zip(present, recognised(used), strict=True))
    for rank in present:
        for summary in ranks[rank].groups:
            members[known[rank][summary.group]][rank] = summary
    found: list[Disagreement] = []
    for group, summaries in sorted(members.items()):
        found += _in_group(group, summaries, ranks)
    found += _orders(ranks, known, {group for one in found for group in one.groups})
    found += [*_messages(ranks), *_overlapping(ranks)]
    return Findings(found, _notes(ranks, members, world_size), known)


def _in_group(
    group: Group, summaries: Mapping[int, GroupSummary], ranks: Mapping[int, RankComms]
) -> list[Disagreement]:
    """Returns who is silent and whose collectives differ; where all are the same, whose order, or whose shards and
    splits do not fit.
    """
    found = list(_silent(group, summaries, ranks))
    issued = {rank: (one.collectives, one.common) for rank, one in summaries.items()}
    found += _deviating((group,), issued, lambda usual, other: f"{usual[0]} and {other[0]} collectives that differ")
    found = found or [*_against_numbers(group, summaries)]
    return found or [*_shards(group, summaries), *_splits(group, summaries)]


def _silent(
    group: Group, summaries: Mapping[int, GroupSummary], ranks: Mapping[int, RankComms]
) -> Iterator[Disagreement]:
    silent = sorted((set(ranks_of(group.ranks)) & set(ranks)) - set(summaries))
    if silent:
        rank, one = next(iter(summaries.items()))
        what = f"{named(silent)} issued no collective, rank {rank} {one.collectives}"
        yield Disagreement((rank, silent[0]), (group,), what)


def _deviating(
    groups: tuple[Group, ...], told: Mapping[int, Told], what: Callable[[Told, Told], str]
) -> Iterator[Disagreement]:
    """Yields one for each way in which ranks tell something else than most do."""
    telling: dict[Told, list[int]] = defaultdict(list)
    for rank, one in told.items():
        telling[one].append(rank)
    usual, *others = sorted(telling.items(), key=lambda item: (-len(item[1]), item[1]))
    for other, (rank, *alike) in others:
        as_well = f" (as for {named(alike)})" if alike else ""
        yield Disagreement((usual[1][0], rank), groups, what(usual[0], other) + as_well)


def _against_numbers(group: Group, summaries: Mapping[int, GroupSummary]) -> Iterator[Disagreement]:
    """Yields who issues collectives against their sequence numbers, while others do so in order."""
    counts = {rank: one.against_numbers for rank, one in summaries.items()}
    ordered = next((rank for rank, count in counts.items() if not count), None)
    if ordered is not None:
        for rank, count in counts.items():
            if count:
                what = f"rank {rank} issued {count} collectives against their sequence numbers, rank {ordered} all in order"
                yield Disagreement((ordered, rank), (group,), what)


def _shards(group: Group, summaries: Mapping[int, GroupSummary]) -> Iterator[Disagreement]:
    """Yields members whose shards differ are right if all shards together make up the whole, which takes all members to
    tell.
    """
    whole = next(iter(summaries.values())).whole_sum
    if len(summaries) < len(ranks_of(group.ranks)) or sum(one.shard_sum for one in summaries.values()) % PRIME == whole:
        return
    shards = {rank: one.shards for rank, one in summaries.items()}
    yield from _deviating((group,), shards, lambda usual, other: "their shards do not make up the whole")


def _splits(group: Group, summaries: Mapping[int, GroupSummary]) -> Iterator[Disagreement]:
    """Yields what each member sends to each against what that one expects."""
    place = {rank: number for number, rank in enumerate(ranks_of(group.ranks))}
    ranks = [rank for rank, one in summaries.items() if one.sends and one.expects and rank in place]
    if not ranks:
        return
    columns = [place[rank] for rank in ranks]
    sends, expects = (
        np.array([np.frombuffer(digests, "<u4")[columns] for digests in sides])
        for sides in zip(*((summaries[rank].sends, summaries[rank].expects) for rank in ranks), strict=True)
    )
    wrong = np.argwhere(sends != expects.T)
    if len(wrong):
        sender, receiver = (ranks[int(number)] for number in wrong[0])
        more = f", and so do {len(wrong) - 1} more pairs" if len(wrong) > 1 else ""
        what = f"rank {sender} sends what rank {receiver} does not expect{more}"
        yield Disagreement((sender, receiver), (group,), what)


def _orders(
    ranks: Mapping[int, RankComms], known: Mapping[int, Mapping[Group, Group]], apart: set[Group]
) -> Iterator[Disagreement]:
    """Yields members of two groups that issue the collectives of both in different orders; not those that already
    differ in one.
    """
    told: dict[tuple[Group, Group], dict[int, str]] = defaultdict(dict)
    for rank, comms in sorted(ranks.items()):
        for first, second, digest in comms.orders:
            told[known[rank][comms.groups[first].group], known[rank][comms.groups[second].group]][rank] = digest
    for groups, digests in sorted(told.items()):
        if groups[0] < groups[1] and not apart & set(groups):
            yield from _deviating(groups, digests, lambda usual, other: "issued in another order")


def _messages(ranks: Mapping[int, RankComms]) -> Iterator[Disagreement]:
    """Sends that are not received and receives that were not sent, between ranks that are there; one for each two of
    them.
    """
    sent, received = Counter[str](), Counter[str]()
    for comms in ranks.values():
        sent.update(comms.sent)
        received.update(comms.received)
    unmatched: dict[tuple[int, int], list[str]] = defaultdict(list)
    for left, what in ((sent - received, UNRECEIVED), (received - sent, UNSENT)):
        for message, count in sorted(left.items()):
            way, _, content = message.partition(" ")
            source, target = map(int, way.split(">"))
            unmatched[source, target].append(what.format(source, target, count, content))
    for pair, found in sorted(unmatched.items()):
        if set(pair) <= set(ranks):
            yield Disagreement(pair, (), "; ".join(found))


def _overlapping(ranks: Mapping[int, RankComms]) -> Iterator[Disagreement]:
    """Ranks whose host threads communicate several times at once: no order of that can be told, let alone one that other ranks share."""
    for rank, comms in ranks.items():
        other = next((other for other in ranks if other != rank), None)
        if comms.overlapping and other is not None:
            what = (
                f"rank {rank} began {comms.overlapping} communications while its host thread was still in another one, so that their order "
                "is not known; check the times in its traces"
            )
            yield Disagreement((rank, other), (), what)


def _notes(
    ranks: Mapping[int, RankComms], members: Mapping[Group, Mapping[int, GroupSummary]], world_size: int
) -> list[str]:
    absent = absent_ranks(ranks, world_size)
    notes = [f"{sum(absent.values())} of {world_size} ranks are absent: {_cut(', '.join(absent))}"] if absent else []
    for text in sorted({group.ranks for group in members}):
        missing = sorted(set(ranks_of(text)) - set(ranks))
        if missing:
            notes.append(f"{len(missing)} of {len(ranks_of(text))} members of the group {_cut(text)} are absent")
    notes += [
        f"rank {rank}: {comms.unplaced} communications of unknown group or peer"
        for rank, comms in sorted(ranks.items())
        if comms.unplaced
    ]
    return notes + _asymmetry(ranks)


def _asymmetry(ranks: Mapping[int, RankComms]) -> list[str]:
    """Returns ranks that recorded fewer kernels or other steps than the rest."""
    most = max((comms.kernels for comms in ranks.values()), default=0)
    notes = [
        f"rank {rank}: {mark_of(comms.kernels, most)}, {comms.kernels} kernels where another rank has {most}"
        for rank, comms in sorted(ranks.items())
        if mark_of(comms.kernels, most)
    ]
    steps = Counter(comms.steps for _, comms in sorted(ranks.items()))
    usual = steps.most_common(1)[0][0] if steps else 0
    return notes + [
        f"rank {rank}: {comms.steps} steps, other ranks {usual}"
        for rank, comms in sorted(ranks.items())
        if comms.steps != usual
    ]


def mark_of(kernels: int, most: int) -> str:
    """MISSING for none, LOW under half of the largest rank's kernels, a note under four fifths."""
    share = kernels / most if most else 1.0
    return "MISSING" if share == 0 else "LOW" if share < 0.5 else "note" if share < 0.8 else ""


def named(ranks: Sequence[int]) -> str:
    """Returns ranks in words, a long list cut.

    >>> named([3]), named([0, 1, 2, 5])
    ('rank 3', 'ranks 0-2, 5')
    """
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_listed(ranks)}"


def _listed(ranks: Sequence[int]) -> str:
    return _cut(ranks_text(ranks).replace(",", ", "))


def _cut(text: str) -> str:
    return text if len(text) <= NAMED else text[:NAMED] + "…"
