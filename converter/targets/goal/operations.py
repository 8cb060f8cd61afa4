"""Operations of a rank as GOAL knows them, and their lines."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

NETWORK, NODE, OWN = 0, 1, 2
"""The nics: to other nodes, within the node, and of the rank's messages to itself."""


class Operation(NamedTuple):
    """A line of a rank: "calc" of so many ns, or "send" and "recv" of so many bytes; `after` are the operations that
    must be over before.

    One that follows at the start of others follows them as soon as they begin.
    """

    verb: str
    amount: int
    cpu: int
    after: tuple[int, ...] = ()
    peer: int = -1
    tag: int = 0
    nic: int = NETWORK
    at_start: bool = False


def lines(rank: int, operations: Sequence[Operation]) -> Iterator[str]:
    """Yields the text of a rank; labels are l and the operation's number."""
    yield f"rank {rank} {{\n"
    for number, one in enumerate(operations):
        if one.verb == "calc":
            yield f"l{number}: calc {one.amount} cpu {one.cpu}\n"
        else:
            way = "to" if one.verb == "send" else "from"
            yield f"l{number}: {one.verb} {one.amount}b {way} {one.peer} tag {one.tag} cpu {one.cpu} nic {one.nic}\n"
        word = "irequires" if one.at_start else "requires"
        for before in one.after:
            yield f"l{number} {word} l{before}\n"
    yield "}\n"


def in_order(numbers: Iterable[int]) -> tuple[int, ...]:
    """Returns each number once, in ascending order."""
    return tuple(sorted(set(numbers)))
