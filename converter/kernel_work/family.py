"""What a family of ops has in common, and the rule by which the work of an op follows from what was recorded of it."""

from collections.abc import Callable
from typing import NamedTuple

from .recorded_op import RecordedOp, Tensor, Unknown


class Family(NamedTuple):
    """A family in words: how its operations are counted, where that is from, and which bytes it moves."""

    name: str
    operations: str
    source: str
    bytes: str = "tensors read and written"


class Rule(NamedTuple):
    """How the work of an op is told. `steps` are its operations for each element, where the family counts so.

    `results` are those that follow from the arguments, for ops whose results were not recorded. All raise Unknown.
    """

    family: Family
    operations: Callable[[RecordedOp], int]
    moved: Callable[[RecordedOp], int]
    results: Callable[[RecordedOp], list[Tensor]]
    steps: int = 0


def everything(op: RecordedOp) -> int:
    """Returns bytes of the tensors that the op reads and of those that it writes, each once. Raises Unknown."""
    return moved(op.read, op.written)


def moved(read: list[Tensor], written: list[Tensor]) -> int:
    """Returns bytes of the tensors read and of those written, of the same memory once each. Raises Unknown."""
    return sum(sum({tensor.memory: tensor.bytes for tensor in tensors}.values()) for tensors in (read, written))


def nothing(op: RecordedOp) -> int:
    """No operations."""
    return 0


def not_told(op: RecordedOp) -> list[Tensor]:
    """Raises Unknown: the arguments alone do not tell the results."""
    raise Unknown("results")


def like_first(op: RecordedOp) -> list[Tensor]:
    """Returns one result like the first argument; of an in-place op that itself."""
    first = op.tensor(0)
    in_place = op.name.endswith("_") and not op.name.endswith("__")
    return [first] if in_place else [Tensor.of(first.shape, first.item, NEW, first.dtype)]


NEW = 1 << 30
"""Numbers from here on are of memory that no argument has."""
