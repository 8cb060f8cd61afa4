"""Collectives as the messages of an algorithm: for each member what it sends and receives, and what of that must be
over before.

Members are known by their places, 0 to n − 1. Both ends list the messages between two members in one order. A message
waits only for messages of earlier rounds, and both its ends are of the same round, so that nobody waits for ever,
whether sends wait for their receives or not. What a reduction computes takes no time of its own.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

Sizes = tuple[int, ...]


class Step(NamedTuple):
    """A message of `size` bytes that a member sends to or receives from its `peer`, after its steps of the numbers
    `after`.
    """

    sends: bool
    peer: int
    size: int
    after: tuple[int, ...] = ()


class CollectiveMember(NamedTuple):
    """A member's part: of so many `members` it is the one at `place`; bytes that each puts in, that each sends to each
    in an all-to-all, the place of the root, and the longest message.
    """

    place: int
    members: int
    sizes: Sizes
    shares: tuple[Sizes, ...] = ()
    root: int = 0
    chunk: int = 1 << 62


def pieces(size: int, chunk: int) -> Sizes:
    """So many bytes as messages of `chunk` bytes, and one of the rest; none for no bytes.

    >>> pieces(10, 4), pieces(0, 4)
    ((4, 4, 2), ())
    """
    return (chunk,) * (size // chunk) + ((size % chunk,) if size % chunk else ())


def blocks(size: int, count: int) -> Sizes:
    """So many bytes as blocks that are alike but for one byte.

    >>> blocks(10, 4)
    (3, 3, 2, 2)
    """
    return tuple(size // count + (place < size % count) for place in range(count))


def all_reduce_ring(part: CollectiveMember) -> list[Step]:
    """Blocks go round the ring twice but for one round each: n − 1 rounds add them up, n − 1 hand the sums on."""
    return _ring(part, 2 * (part.members - 1), 0, blocks(max(part.sizes), part.members))


def reduce_scatter_ring(part: CollectiveMember) -> list[Step]:
    """Blocks go round in n − 1 rounds and are added up, so that each member's own comes last to it."""
    return _ring(part, part.members - 1, -1, blocks(max(part.sizes), part.members))


def all_gather_ring(part: CollectiveMember) -> list[Step]:
    """Returns what each member puts in goes round in n − 1 rounds."""
    return _ring(part, part.members - 1, 0, part.sizes)


def broadcast_ring(part: CollectiveMember) -> list[Step]:
    """Pieces go along the ring from the root to the member before it, each handed on as soon as it is there."""
    place = (part.place - part.root) % part.members
    source = _neighbour(part, -1) if place else None
    return _handed_on(part, source, _neighbour(part, 1) if place < part.members - 1 else None, part.sizes[part.root])


def reduce_ring(part: CollectiveMember) -> list[Step]:
    """Returns a broadcast backwards: pieces are added up along the ring, from the member before the root to the root."""
    place = (part.place - part.root) % part.members
    source = _neighbour(part, 1) if place < part.members - 1 else None
    return _handed_on(part, source, _neighbour(part, -1) if place else None, max(part.sizes))


def gather_direct(part: CollectiveMember) -> list[Step]:
    """Returns every member sends what it puts in to the root."""
    if part.place != part.root:
        return _in_turn([(True, part.root, part.sizes[part.place])], part.chunk)
    return _in_turn([(False, peer, part.sizes[peer]) for peer in _others(part)], part.chunk)


def scatter_direct(part: CollectiveMember) -> list[Step]:
    """Returns the root sends every member its block of what it puts in."""
    block = blocks(part.sizes[part.root], part.members)
    if part.place != part.root:
        return _in_turn([(False, part.root, block[part.place])], part.chunk)
    return _in_turn([(True, peer, block[peer]) for peer in _others(part)], part.chunk)


def all_to_all_pairwise(part: CollectiveMember) -> list[Step]:
    """Returns in round k each member sends to the one k places on and receives from the one k places back."""
    steps: list[Step] = []
    before: tuple[int, ...] = ()
    for distance in range(1, part.members):
        last: list[int] = []
        to, source = _neighbour(part, distance), _neighbour(part, -distance)
        for sends, peer, size in (
            (True, to, part.shares[part.place][to]),
            (False, source, part.shares[source][part.place]),
        ):
            after = before
            for piece in pieces(size, part.chunk):
                steps.append(Step(sends, peer, piece, after))
                after = (len(steps) - 1,)
            last += after if size else ()
        before = tuple(last) or before
    return steps


def barrier_dissemination(part: CollectiveMember) -> list[Step]:
    """Returns in round k each member sends a byte 2^k places on: after ⌈log2 n⌉ rounds all know that all have come."""
    steps: list[Step] = []
    after: tuple[int, ...] = ()
    distance = 1
    while distance < part.members:
        steps.append(Step(True, _neighbour(part, distance), 1, after))
        steps.append(Step(False, _neighbour(part, -distance), 1, after))
        after = (len(steps) - 1,)
        distance *= 2
    return steps


def all_reduce_doubling(part: CollectiveMember) -> list[Step]:
    """Returns in round k each member of 2^m swaps all it has with the one whose place differs in bit k."""
    steps: list[Step] = []
    held: list[int] = []
    whole = pieces(max(part.sizes), part.chunk)
    for bit in _bits(part.members):
        held = _round(steps, part.place ^ bit, part.place ^ bit, whole, whole, held)
    return steps


def all_gather_doubling(part: CollectiveMember) -> list[Step]:
    """Returns the same; what is swapped doubles each time."""
    steps: list[Step] = []
    last: list[int] = []
    for bit in _bits(part.members):
        peer = part.place ^ bit
        given, taken = (
            pieces(sum(part.sizes[place & -bit : (place & -bit) + bit]), part.chunk) for place in (part.place, peer)
        )
        last = _round(steps, peer, peer, given, taken, last[-1:] * len(given))
        last = last or [number for number, step in enumerate(steps) if not step.sends]
    return steps


def message(part: CollectiveMember) -> list[Step]:
    """Returns from member 0 to member 1."""
    return _in_turn([(part.place == 0, 1 - part.place, part.sizes[0])], part.chunk)


ALGORITHMS: dict[str, Callable[[CollectiveMember], list[Step]]] = {
    "all-reduce by ring": all_reduce_ring,
    "all-reduce by recursive doubling": all_reduce_doubling,
    "all-gather by ring": all_gather_ring,
    "all-gather by recursive doubling": all_gather_doubling,
    "reduce-scatter by ring": reduce_scatter_ring,
    "broadcast along the ring": broadcast_ring,
    "reduce along the ring": reduce_ring,
    "gather, each to the root": gather_direct,
    "scatter, from the root to each": scatter_direct,
    "all-to-all pairwise": all_to_all_pairwise,
    "barrier by dissemination": barrier_dissemination,
    "message": message,
}
"""By what the report calls them."""


@lru_cache(maxsize=256)
def steps_of(algorithm: str, part: CollectiveMember) -> tuple[list[Step], list[int]]:
    """Returns a member's steps, and the numbers of those that no other one of them waits for: its part is over when
    they are.
    """
    steps = ALGORITHMS[algorithm](part)
    awaited = {number for step in steps for number in step.after}
    return steps, [number for number in range(len(steps)) if number not in awaited]


def _ring(part: CollectiveMember, rounds: int, first: int, sizes: Sizes) -> list[Step]:
    """Returns in round k each member sends the block `first` − k places from its own one on, and gets the one before
    that.
    """
    cut = [pieces(size, part.chunk) for size in sizes]
    steps: list[Step] = []
    held: list[int] = []
    for number in range(rounds):
        block = (part.place + first - number) % part.members
        right, left = _neighbour(part, 1), _neighbour(part, -1)
        held = _round(steps, right, left, cut[block], cut[block - 1], held)
    return steps


def _round(steps: list[Step], to: int, source: int, given: Sizes, taken: Sizes, held: Sequence[int]) -> list[int]:
    """Adds a round in which pieces are sent, each after the receive of it in `held`, and others received in turn; the
    numbers of these.
    """
    for number, size in enumerate(given):
        steps.append(Step(True, to, size, tuple(held[number : number + 1])))
    received: list[int] = []
    before = tuple(held[-1:])
    for size in taken:
        received.append(len(steps))
        steps.append(Step(False, source, size, before))
        before = (received[-1],)
    return received


def _handed_on(part: CollectiveMember, source: int | None, to: int | None, size: int) -> list[Step]:
    steps: list[Step] = []
    received: tuple[int, ...] = ()
    for piece in pieces(size, part.chunk):
        if source is not None:
            steps.append(Step(False, source, piece, received))
            received = (len(steps) - 1,)
        if to is not None:
            steps.append(Step(True, to, piece, received))
    return steps


def _in_turn(messages: Sequence[tuple[bool, int, int]], chunk: int) -> list[Step]:
    """Returns the pieces of each message one after the other; different messages at once."""
    steps: list[Step] = []
    for sends, peer, size in messages:
        after: tuple[int, ...] = ()
        for piece in pieces(size, chunk):
            steps.append(Step(sends, peer, piece, after))
            after = (len(steps) - 1,)
    return steps


def _neighbour(part: CollectiveMember, distance: int) -> int:
    return (part.place + distance) % part.members


def _others(part: CollectiveMember) -> list[int]:
    return [place for place in range(part.members) if place != part.place]


def _bits(count: int) -> list[int]:
    return [1 << bit for bit in range(count.bit_length() - 1)]
