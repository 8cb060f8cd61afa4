"""GOAL operations of a rank, and their text."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

NETWORK, NODE, WITHIN_RANK, READY = 0, 1, 2, 3
"""The nics for messages to other nodes, within the node, of the rank to itself, and for bytes that say that a receiver
is ready: these do not wait behind others. Each further link has two nics, as the first has `NETWORK` and `NODE`.
"""


def network_nic(link: int) -> int:
    """Returns the nic of a link for messages to other nodes; the next one is for those within the node.

    >>> network_nic(0), network_nic(1), network_nic(2)
    (0, 4, 6)
    """
    return NETWORK if link == 0 else 2 * link + 2


class Operation(NamedTuple):
    """A "calc" of `amount` ns, or a "send" or "recv" of `amount` bytes.

    `after` are the operations that must be over before it, `after_begin` those that must have begun.
    """

    verb: str
    amount: int
    cpu: int
    after: tuple[int, ...] = ()
    peer: int = -1
    tag: int = 0
    nic: int = NETWORK
    after_begin: tuple[int, ...] = ()


def lines(rank: int, operations: Sequence[Operation]) -> Iterator[str]:
    """Yields the lines of a rank; the label of an operation is l and its number."""
    yield f"rank {rank} {{\n"
    for number, operation in enumerate(operations):
        verb, amount, cpu, after, peer, tag, nic, after_begin = operation
        if verb == "calc":
            yield f"l{number}: calc {amount} cpu {cpu}\n"
        else:
            way = "to" if verb == "send" else "from"
            yield f"l{number}: {verb} {amount}b {way} {peer} tag {tag} cpu {cpu} nic {nic}\n"
        for word, sources in (("requires", after), ("irequires", after_begin)):
            for source in sources:
                yield f"l{number} {word} l{source}\n"
    yield "}\n"


def in_order(numbers: Iterable[int]) -> tuple[int, ...]:
    """Returns each number once, in ascending order."""
    return tuple(sorted(set(numbers)))
