"""What two ranks that disagree did differently first, in words, from their communications in order."""

from collections.abc import Callable, Iterator, Sequence

from ...converter.ranks import Call, Calls, Group, match, ranks_of
from ...schema.graph import CollectiveType, NodeType
from .cross_rank import Disagreement
from .issued import Issued
from .rank_comms import SHARD, identity, kind_of, shares

Side = Issued | None


def first_difference(found: Disagreement, issued_by: Callable[[int], Sequence[Issued]]) -> str:
    """Returns the first collective on which two ranks differ, with both sides; what the summaries say where none is
    found.
    """
    if not found.groups:
        return found.what
    left, right = ([one for one in issued_by(rank) if one.group in found.groups] for rank in found.ranks)
    told = _in_order(found, left, right) if len(found.groups) > 1 else _in_group(found, left, right)
    return next(told, found.what)


def _in_order(found: Disagreement, left: Sequence[Issued], right: Sequence[Issued]) -> Iterator[str]:
    for place, both in enumerate(zip(left, right, strict=False), 1):
        if both[0].group != both[1].group:
            issued = (
                f"rank {rank} issued {_words(one)} in {one.group.text}"
                for rank, one in zip(found.ranks, both, strict=True)
                if one.group
            )
            yield f"collective {place} of both: {', '.join(issued)}"


def _in_group(found: Disagreement, left: Sequence[Issued], right: Sequence[Issued]) -> Iterator[str]:
    pairs = list(_pairs(left, right))
    for difference in (_in_common, _in_splits, _in_shards):
        for label, *both in pairs:
            if what := difference(found, *both):
                yield f"{label}: {what}"


def _pairs(left: Sequence[Issued], right: Sequence[Issued]) -> Iterator[tuple[str, Side, Side]]:
    """Yields the two sides of each collective, whatever they did in it."""
    group, sides = Group("", ""), (left, right)
    calls = [
        Calls.of(Call(row, NodeType.COMM_COLL, group, sequence=one.recorded.sequence) for row, one in enumerate(side))
        for side in sides
    ]
    met = match(calls)
    mine, other = (dict(zip(own.tolist(), side, strict=True)) for own, side in zip(met.matched, sides, strict=True))
    for matched, (number, place) in enumerate(zip(met.sequence.tolist(), met.repetition.tolist(), strict=True)):
        label = f"collective {place + 1}" if number < 0 else f"collective with number {number}"
        yield label, mine.get(matched), other.get(matched)


def _in_common(found: Disagreement, mine: Side, other: Side) -> str:
    same = mine is not None and other is not None and identity(mine.recorded) == identity(other.recorded)
    return "" if same else _both(found, mine, other)


def _in_splits(found: Disagreement, mine: Side, other: Side) -> str:
    """Returns what one sends to the other against what that one expects, either way."""
    if mine is None or other is None or kind_of(mine.recorded) is not CollectiveType.ALL_TO_ALL:
        return ""
    members = ranks_of(found.groups[0].ranks)
    ways = zip((mine, other), (other, mine), found.ranks, found.ranks[::-1], strict=True)
    for sender, receiver, source, target in ways:
        sends = shares(sender.recorded, len(members), sent=True)
        expects = shares(receiver.recorded, len(members), sent=False)
        if sends is not None and expects is not None:
            out, come = int(sends[members.index(target)]), int(expects[members.index(source)])
            if out != come:
                return f"in {sender.recorded.name} rank {source} sends {out} elements to rank {target}, which expects {come}"
    return ""


def _in_shards(found: Disagreement, mine: Side, other: Side) -> str:
    field = SHARD.get(kind_of(mine.recorded)) if mine is not None else None
    if mine is None or other is None or not field or getattr(mine.recorded, field) == getattr(other.recorded, field):
        return ""
    return f"{_both(found, mine, other)}; {found.what}"


def _both(found: Disagreement, *sides: Side) -> str:
    return ", ".join(f"rank {rank} issued {_words(one)}" for rank, one in zip(found.ranks, sides, strict=True))


def _words(side: Side) -> str:
    if side is None:
        return "none"
    found = side.recorded
    out = f" to {found.out_elements}" if found.out_elements not in (-1, found.in_elements) else ""
    return f"{found.name} of {found.in_elements}{out} {found.dtype}" + (f" by {side.op}" if side.op else "")
