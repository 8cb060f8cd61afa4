"""Families of ops, and the rules that compute the work of an op from its recorded arguments."""

from collections.abc import Callable
from typing import NamedTuple

from .recorded_op import RecordedOp, Tensor, Unknown


class Family(NamedTuple):
    """A family in words: how its operations are counted, the source of that, and which bytes it moves."""

    name: str
    operations: str
    source: str
    bytes: str = "tensors read and written"


class Rule(NamedTuple):
    """How to compute the work of an op. `steps` are its operations per element, where the family counts so.

    `results` computes results from the arguments, for ops whose results were not recorded. All functions raise Unknown.
    """

    family: Family
    operations: Callable[[RecordedOp], int]
    moved: Callable[[RecordedOp], int]
    results: Callable[[RecordedOp], list[Tensor]]
    steps: int = 0


def everything(op: RecordedOp) -> int:
    """Returns the bytes of the tensors that the op reads, and of those that it writes. Raises Unknown."""
    return moved(op.read, op.written)


def moved(read: list[Tensor], written: list[Tensor]) -> int:
    """Returns the bytes of tensors read and of tensors written; the same memory counts once for each.
    Raises Unknown.
    """
    return sum(sum({tensor.memory: tensor.bytes for tensor in tensors}.values()) for tensors in (read, written))


def nothing(op: RecordedOp) -> int:
    """Returns 0: no operations."""
    return 0


def unknown_results(op: RecordedOp) -> list[Tensor]:
    """Raises Unknown: the results do not follow from the arguments."""
    raise Unknown("results")


def like_first(op: RecordedOp) -> list[Tensor]:
    """Returns one result like the first argument, which is that argument for an in-place op."""
    first = op.tensor(0)
    in_place = op.name.endswith("_") and not op.name.endswith("__")
    return [first] if in_place else [Tensor.of(first.shape, first.item, NEW, first.dtype)]


NEW = 1 << 30
"""Memory numbers from here on belong to no argument."""
