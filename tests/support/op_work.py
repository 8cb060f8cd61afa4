"""The work of an op by its arguments, for tests of the table of ops."""

from collections.abc import Sequence
from typing import Any

from execgraph.converter.work import RecordedOp, Tensor, Work, work_of

HALF, FLOAT, LONG = 2, 4, 8
"""Bytes of an element."""


def tensors(*shapes: Sequence[int], item: int = FLOAT) -> list[Tensor]:
    """Tensors each in memory of its own."""
    return [Tensor.of(tuple(shape), item, number) for number, shape in enumerate(shapes)]


def work(name: str, inputs: list[Any], results: list[Tensor] | None, schema: str = "") -> Work:
    return work_of(RecordedOp(name, schema, inputs, None if results is None else list(results)))


def ordered(names: str, **values: Any) -> list[Any]:
    """Arguments in the order of their names, None where no value is given."""
    return [values.get(name) for name in names.split()]
