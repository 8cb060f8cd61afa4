"""What two ranks that disagree did differently first, in words, from their communications in order."""

from collections.abc import Callable, Iterator, Sequence

from ...converter.ranks import Call, Calls, Group, match, ranks_of
from ...schema.graph import CollectiveType, NodeType
from .cross_rank import Disagreement
from .issued import Issued
from .rank_comms import SHARD, identity, kind_of, shares

Side = Issued | None


def first_difference(disagreement: Disagreement, issued_by: Callable[[int], Sequence[Issued]]) -> str:
    """Returns the first collective in which two ranks differ, with both sides; else what their summaries say."""
    if not disagreement.groups:
        return disagreement.what
    left, right = (
        [call for call in issued_by(rank) if call.group in disagreement.groups] for rank in disagreement.ranks
    )
    differences = (
        _order_differences(disagreement, left, right)
        if len(disagreement.groups) > 1
        else _group_differences(disagreement, left, right)
    )
    return next(differences, disagreement.what)


def _order_differences(disagreement: Disagreement, left: Sequence[Issued], right: Sequence[Issued]) -> Iterator[str]:
    for position, sides in enumerate(zip(left, right, strict=False), 1):
        if sides[0].group != sides[1].group:
            issued = (
                f"rank {rank} issued {_words(side)} in {side.group.text}"
                for rank, side in zip(disagreement.ranks, sides, strict=True)
                if side.group
            )
            yield f"collective {position} of both: {', '.join(issued)}"


def _group_differences(disagreement: Disagreement, left: Sequence[Issued], right: Sequence[Issued]) -> Iterator[str]:
    pairs = list(_pairs(left, right))
    for difference in (_common_difference, _split_difference, _shard_difference):
        for label, *sides in pairs:
            if what := difference(disagreement, *sides):
                yield f"{label}: {what}"


def _pairs(left: Sequence[Issued], right: Sequence[Issued]) -> Iterator[tuple[str, Side, Side]]:
    """Yields the two sides of each collective, whatever they did in it."""
    group, sides = Group("", ""), (left, right)
    calls = [
        Calls.of(Call(row, NodeType.COMM_COLL, group, sequence=call.recorded.sequence) for row, call in enumerate(side))
        for side in sides
    ]
    matches = match(calls)
    left_calls, right_calls = (
        dict(zip(rows.tolist(), side, strict=True)) for rows, side in zip(matches.matched, sides, strict=True)
    )
    for matched, (number, occurrence) in enumerate(
        zip(matches.sequence.tolist(), matches.occurrence.tolist(), strict=True)
    ):
        label = f"collective {occurrence + 1}" if number < 0 else f"collective with number {number}"
        yield label, left_calls.get(matched), right_calls.get(matched)


def _common_difference(disagreement: Disagreement, left: Side, right: Side) -> str:
    same = left is not None and right is not None and identity(left.recorded) == identity(right.recorded)
    return "" if same else _both_sides(disagreement, left, right)


def _split_difference(disagreement: Disagreement, left: Side, right: Side) -> str:
    """Returns what one sends to the other against what that one expects, either way."""
    if left is None or right is None or kind_of(left.recorded) is not CollectiveType.ALL_TO_ALL:
        return ""
    members = ranks_of(disagreement.groups[0].ranks)
    ways = zip((left, right), (right, left), disagreement.ranks, disagreement.ranks[::-1], strict=True)
    for sender, receiver, source, target in ways:
        sends = shares(sender.recorded, len(members), sent=True)
        expects = shares(receiver.recorded, len(members), sent=False)
        if sends is not None and expects is not None:
            out, expected = int(sends[members.index(target)]), int(expects[members.index(source)])
            if out != expected:
                return (
                    f"in {sender.recorded.name} rank {source} sends {out} elements to rank {target}, which expects "
                    f"{expected}"
                )
    return ""


def _shard_difference(disagreement: Disagreement, left: Side, right: Side) -> str:
    field = SHARD.get(kind_of(left.recorded)) if left is not None else None
    if left is None or right is None or not field or getattr(left.recorded, field) == getattr(right.recorded, field):
        return ""
    return f"{_both_sides(disagreement, left, right)}; {disagreement.what}"


def _both_sides(disagreement: Disagreement, *sides: Side) -> str:
    return ", ".join(f"rank {rank} issued {_words(side)}" for rank, side in zip(disagreement.ranks, sides, strict=True))


def _words(side: Side) -> str:
    if side is None:
        return "none"
    comm = side.recorded
    out = f" to {comm.out_elements}" if comm.out_elements not in (-1, comm.in_elements) else ""
    return f"{comm.name} of {comm.in_elements}{out} {comm.dtype}" + (f" by {side.op}" if side.op else "")
