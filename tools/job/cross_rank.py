"""Checks by a small summary of each rank whether ranks of a job agree: disagreements, absences, first differences."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple, TypeVar

import numpy as np

from ...converter.ranks import Call, Calls, Group, match, ranks_of, ranks_text, recognised
from ...schema.graph import CollectiveType, NodeType
from ..terminal import absent_ranks
from .rank_comms import PRIME, SHARD, GroupSummary, Issued, RankComms, identity, kind_of, shares

Recorded = TypeVar("Recorded", bound=Hashable)
LONGEST_LIST = 60
"""Characters of a list of ranks that are shown."""
MAX_FIRST_DIFFERENCES = 8
"""Disagreements of which both sides' first differing collective is shown; each costs linking two ranks again."""
FEWER = "fewer"
"""The mark of few kernels that may be as it should."""
UNRECEIVED = "rank {0} sends {2} × {3} that rank {1} does not receive"
UNSENT = "rank {1} receives {2} × {3} that rank {0} did not send"
Side = Issued | None


class Disagreement(NamedTuple):
    """Two ranks that differ in a group, the order of two groups, or (without a group) in messages; `what` says how.
    Further ranks are as the second.
    """

    ranks: tuple[int, int]
    groups: tuple[Group, ...]
    what: str
    further: Sequence[int] = ()


def compare_ranks(
    ranks: Mapping[int, RankComms], world_size: int, issued_by: Callable[[int], Sequence[Issued]]
) -> tuple[list[str], list[str]]:
    """Returns what ranks disagree on, which stops or misleads a simulator, and notes on what is absent.

    Linear in the ranks' summaries; for all-to-alls quadratic in the members. `issued_by` reads a rank's traces again.
    """
    present = sorted(ranks)
    used = [{summary.group: summary.common for summary in ranks[rank].groups} for rank in present]
    group_names = dict(zip(present, recognised(used), strict=True))
    members: dict[Group, dict[int, GroupSummary]] = defaultdict(dict)
    for rank in present:
        for summary in ranks[rank].groups:
            members[group_names[rank][summary.group]][rank] = summary
    disagreements = list[Disagreement]()
    for group, summaries in sorted(members.items()):
        disagreements += _disagreements_in_group(group, summaries, ranks)
    disagreeing = {group for disagreement in disagreements for group in disagreement.groups}
    disagreements += [*_orders(ranks, group_names, disagreeing), *_messages(ranks), *_overlapping(ranks)]

    @lru_cache(maxsize=2)
    def issued(rank: int) -> list[Issued]:
        names = group_names[rank]
        return [call._replace(group=call.group and names.get(call.group)) for call in issued_by(rank)]

    texts = []
    for number, disagreement in enumerate(disagreements):
        groups = " and ".join(group.text for group in disagreement.groups)
        detail = _first_difference(disagreement, issued) if number < MAX_FIRST_DIFFERENCES else disagreement.what
        detail += f" (as for {ranks_in_words(disagreement.further)})" if disagreement.further else ""
        texts.append(f"{groups}: {detail}" if groups else detail)
    return texts, _notes(ranks, members, world_size)


def _overlapping(ranks: Mapping[int, RankComms]) -> Iterator[Disagreement]:
    """Yields ranks whose host threads run several communications at once, so that the order is unknown."""
    for rank, comms in ranks.items():
        if comms.overlapping and len(ranks) > 1:
            what = f"rank {rank} began {comms.overlapping} communications while its host thread was still in another"
            advice = "so that their order is not known; check the times in its traces"
            yield Disagreement((rank, rank), (), f"{what} one, {advice}")


def _disagreements_in_group(
    group: Group, summaries: Mapping[int, GroupSummary], ranks: Mapping[int, RankComms]
) -> list[Disagreement]:
    """Returns the first kind of difference: silent ranks and other collectives, another order, or shards and splits."""
    disagreements, groups = list[Disagreement](), (group,)
    if silent := sorted((set(ranks_of(group.ranks)) & set(ranks)) - set(summaries)):
        rank, summary = next(iter(summaries.items()))
        what = f"rank {silent[0]} issued no collective, rank {rank} {summary.collectives}"
        disagreements.append(Disagreement((rank, silent[0]), groups, what, silent[1:]))
    issued = {rank: (summary.collectives, summary.common) for rank, summary in summaries.items()}
    differing = "{0[0]} and {1[0]} collectives that differ".format
    disagreements += _deviating(groups, issued, differing)
    counts = {rank: summary.out_of_sequence for rank, summary in summaries.items()}
    ordered = next((rank for rank, count in counts.items() if not count), None)
    if not disagreements and ordered is not None:
        for rank, count in counts.items():
            what = f"rank {rank} issued {count} collectives against their sequence numbers, rank {ordered} all in order"
            disagreements += [Disagreement((ordered, rank), groups, what)] if count else []
    if disagreements:
        return disagreements
    has_all = len(summaries) >= len(ranks_of(group.ranks))
    whole_sum = next(iter(summaries.values())).whole_sum
    if has_all and sum(summary.shard_sum for summary in summaries.values()) % PRIME != whole_sum:
        shards = {rank: summary.shards for rank, summary in summaries.items()}
        disagreements += _deviating(groups, shards, lambda common, deviating: "their shards do not make up the whole")
    return [*disagreements, *_splits(group, summaries)]


def _deviating(
    groups: tuple[Group, ...], recorded_by_rank: Mapping[int, Recorded], what: Callable[[Recorded, Recorded], str]
) -> Iterator[Disagreement]:
    """Yields one for each way in which ranks tell something else than most do."""
    ranks_by_value: dict[Recorded, list[int]] = defaultdict(list)
    for rank, value in recorded_by_rank.items():
        ranks_by_value[value].append(rank)
    common_value, *deviating_values = sorted(ranks_by_value.items(), key=lambda item: (-len(item[1]), item[1]))
    for deviating, (rank, *alike) in deviating_values:
        yield Disagreement((common_value[1][0], rank), groups, what(common_value[0], deviating), alike)


def _splits(group: Group, summaries: Mapping[int, GroupSummary]) -> Iterator[Disagreement]:
    """Yields what each member sends to each against what that one expects."""
    column_of = {rank: number for number, rank in enumerate(ranks_of(group.ranks))}
    ranks = [rank for rank, summary in summaries.items() if summary.sends and summary.expects and rank in column_of]
    if not ranks:
        return
    columns = [column_of[rank] for rank in ranks]
    both = zip(*((summaries[rank].sends, summaries[rank].expects) for rank in ranks), strict=True)
    sends, expects = (np.array([np.frombuffer(digests, "<u4")[columns] for digests in side]) for side in both)
    wrong = np.argwhere(sends != expects.T)
    if len(wrong):
        sender, receiver = (ranks[int(number)] for number in wrong[0])
        more = f", and so do {len(wrong) - 1} more pairs" if len(wrong) > 1 else ""
        what = f"rank {sender} sends what rank {receiver} does not expect{more}"
        yield Disagreement((sender, receiver), (group,), what)


def _orders(
    ranks: Mapping[int, RankComms], group_names: Mapping[int, Mapping[Group, Group]], disagreeing: set[Group]
) -> Iterator[Disagreement]:
    """Yields ranks that issue the collectives of two groups in another order; not of groups that differ already."""
    digests_by_groups: dict[tuple[Group, Group], dict[int, str]] = defaultdict(dict)
    for rank, comms in sorted(ranks.items()):
        names = [group_names[rank][summary.group] for summary in comms.groups]
        for first, second, digest in comms.orders:
            digests_by_groups[names[first], names[second]][rank] = digest
    for groups, digests in sorted(digests_by_groups.items()):
        if groups[0] < groups[1] and not disagreeing & set(groups):
            yield from _deviating(groups, digests, lambda common, deviating: "issued in another order")


def _messages(ranks: Mapping[int, RankComms]) -> Iterator[Disagreement]:
    """Yields one disagreement per pair of present ranks with sends or receives that have no counterpart."""
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
    for pair, sentences in sorted(unmatched.items()):
        if set(pair) <= set(ranks):
            yield Disagreement(pair, (), "; ".join(sentences))


def _notes(
    ranks: Mapping[int, RankComms], members: Mapping[Group, Mapping[int, GroupSummary]], world_size: int
) -> list[str]:
    absent = absent_ranks(ranks, world_size)
    notes = why_no_job(ranks)
    notes += [f"{sum(absent.values())} of {world_size} ranks are absent: {_cut(', '.join(absent))}"] if absent else []
    for text in sorted({group.ranks for group in members}):
        missing = sorted(set(ranks_of(text)) - set(ranks))
        if missing:
            notes.append(f"{len(missing)} of {len(ranks_of(text))} members of the group {_cut(text)} are absent")
    in_order = sorted(ranks.items())
    most = max((comms.kernels for comms in ranks.values()), default=0)
    steps = usual_steps(comms.steps for _, comms in in_order)
    notes += [
        f"rank {rank}: {comms.unmatched} communications of unknown group or peer"
        for rank, comms in in_order
        if comms.unmatched
    ]
    notes += [
        f"rank {rank}: {comms.steps} steps, other ranks {steps}" for rank, comms in in_order if comms.steps != steps
    ]
    few: dict[tuple[str, int], list[int]] = defaultdict(list)
    for rank, comms in in_order:
        if mark := mark_of(comms.kernels, most):
            few["" if mark == FEWER else f"{mark}, ", comms.kernels].append(rank)
    return notes + [
        f"{ranks_in_words(alike)}: {mark}{kernels} kernels where another rank has {most}"
        for (mark, kernels), alike in few.items()
    ]


def why_no_job(ranks: Mapping[int, RankComms]) -> list[str]:
    """Returns a note where nothing shows that the ranks are of one job, and they run different ops."""
    if len({comms.alone for comms in ranks.values()}) < 2 or not all(comms.alone for comms in ranks.values()):
        return []
    what = "record no process group, collective or number of ranks, and ran different ops"
    return [f"{ranks_in_words(sorted(ranks))} {what}: nothing shows that they are of one job"]


def usual_steps(steps: Iterable[int]) -> int:
    """Returns how many steps most ranks recorded; 0 where there are no ranks."""
    return next((count for count, _ in Counter(steps).most_common(1)), 0)


def mark_of(kernels: int, most_kernels: int) -> str:
    """MISSING for none, LOW under half of the largest rank's kernels, FEWER under four fifths."""
    share = kernels / most_kernels if most_kernels else 1.0
    return "MISSING" if share == 0 else "LOW" if share < 0.5 else FEWER if share < 0.8 else ""


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Returns ranks in words, such as `ranks 0-2, 5`, a long list cut."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_cut(ranks_text(ranks).replace(',', ', '))}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_LIST else text[:LONGEST_LIST] + "…"


def _first_difference(disagreement: Disagreement, issued_by: Callable[[int], Sequence[Issued]]) -> str:
    """Returns the first collective in which two ranks differ, with both sides; else what their summaries say."""
    ranks, groups, what, _ = disagreement
    if not groups:
        return what
    left, right = ([call for call in issued_by(rank) if call.group in groups] for rank in ranks)
    if len(groups) == 1:
        return next(_differences(disagreement, left, right), what)
    for position, sides in enumerate(zip(left, right, strict=False), 1):
        if sides[0].group != sides[1].group:
            issued = _both_sides(disagreement, sides, [f" in {side.group.text}" for side in sides if side.group])
            return f"collective {position} of both: {issued}"
    return what


def _differences(disagreement: Disagreement, left: Sequence[Issued], right: Sequence[Issued]) -> Iterator[str]:
    """Yields how two ranks differ in the collectives of a group, first in what all members must have in common."""
    pairs = list(_pairs(left, right))
    for label, first, second in pairs:
        if first is None or second is None or identity(first.recorded) != identity(second.recorded):
            yield f"{label}: {_both_sides(disagreement, (first, second))}"
    both = [(label, (first, second)) for label, first, second in pairs if first and second]
    members = ranks_of(disagreement.groups[0].ranks)
    for label, sides in both:
        if kind_of(sides[0].recorded) is not CollectiveType.ALL_TO_ALL:
            continue
        for (source, sender), (target, receiver) in permutations(zip(disagreement.ranks, sides, strict=True)):
            sends = shares(sender.recorded, len(members), sent=True)
            expects = shares(receiver.recorded, len(members), sent=False)
            if sends is not None and expects is not None:
                out, expected = sends[members.index(target)], expects[members.index(source)]
                if out != expected:
                    what = f"in {sender.recorded.name} rank {source} sends {out} elements to rank {target}"
                    yield f"{label}: {what}, which expects {expected}"
    for label, (first, second) in both:
        shard = SHARD.get(kind_of(first.recorded))
        if shard and getattr(first.recorded, shard) != getattr(second.recorded, shard):
            yield f"{label}: {_both_sides(disagreement, (first, second))}; {disagreement.what}"


def _pairs(left: Sequence[Issued], right: Sequence[Issued]) -> Iterator[tuple[str, Side, Side]]:
    """Yields the two sides of each collective, whatever they did in it."""
    group, sides = Group("", ""), (left, right)
    calls = [
        Calls.of(Call(row, NodeType.COMM_COLL, group, sequence=call.recorded.sequence) for row, call in enumerate(side))
        for side in sides
    ]
    for members in match(calls).matches():
        pair = {call.rank: sides[call.rank][call.row] for call in members}
        number, occurrence = members[0].sequence, members[0].occurrence
        label = f"collective {occurrence + 1}" if number < 0 else f"collective with number {number}"
        yield label, pair.get(0), pair.get(1)


def _both_sides(disagreement: Disagreement, sides: tuple[Side, Side], where: Sequence[str] = ("", "")) -> str:
    issued = []
    for rank, side, of_group in zip(disagreement.ranks, sides, where, strict=True):
        words = "none"
        if side is not None:
            comm = side.recorded
            out = f" to {comm.out_elements}" if comm.out_elements not in (-1, comm.in_elements) else ""
            by = f" by {side.op}" if side.op else ""
            words = f"{comm.name} of {comm.in_elements}{out} {comm.dtype}{by}"
        issued.append(f"rank {rank} issued {words}{of_group}")
    return ", ".join(issued)
