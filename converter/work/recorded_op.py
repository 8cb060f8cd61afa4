"""An op with its arguments and results, and the rules that compute its work; what does not follow is `Unknown`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, repeat
from math import prod
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from ...schema.columns import Interner
from ...schema.dtypes import bytes_per_element
from ...schema.linked import RecordedArguments, RecordedTensor, declared_arguments

HOST_DEVICE = "cpu"
MOST_LISTED = 4096
"""The host trace truncates longer lists."""
LARGEST = 1 << 62
"""Numbers above this are damage."""
FLOATING = ("double", "float", "c10::Half", "c10::BFloat16")
UNKNOWN_SIZE = -1
Shape: TypeAlias = tuple[int, ...]
NO_TYPE = ("", "Scalar", "ScalarList")
LIST = "TensorList"
Fact = TypeVar("Fact")
Value: TypeAlias = "Tensor | list[Value] | int | float | str | None"
NEW = 1 << 30
"""Memory numbers from here on belong to no argument."""


class Unknown(Exception):
    """The recorded arguments do not determine the work of an op."""


class Tensor(NamedTuple):
    """A tensor: extents, bytes of an element, distinct elements, and the number of its memory, which views share."""

    shape: Shape
    item: int
    stored: int
    memory: int
    on_host: bool = False
    dtype: str = ""

    @property
    def elements(self) -> int:
        """The number of its elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Its bytes in memory; an element that an expanded dimension repeats counts once. Raises Unknown."""
        if self.item == UNKNOWN_SIZE:
            raise Unknown("an element's size")
        return self.stored * self.item

    @staticmethod
    def of(shape: Shape, item: int, memory: int, dtype: str = "") -> "Tensor":
        """Returns a tensor that is dense in memory."""
        return Tensor(shape, item, prod(shape), memory, dtype=dtype)

    def like(self, shape: Shape, number: int = 0) -> "Tensor":
        """Returns the result of this number with elements of the same size."""
        return Tensor.of(shape, self.item, NEW + number)


class RecordedOp:
    """A recorded op; its results are None if they were not recorded. Access to what is missing raises Unknown."""

    def __init__(self, name: str, schema: str, inputs: list[Value], results: Sequence[Value] | None) -> None:
        self.name, self.schema, self.inputs = name, schema, inputs
        self.recorded_results = results

    @property
    def results(self) -> list[Tensor]:
        """The tensors that the op returns. Raises Unknown."""
        if self.recorded_results is None:
            raise Unknown("results")
        return list(_tensors(self.recorded_results))

    @property
    def in_place(self) -> bool:
        """Whether its name says that it writes its first argument."""
        return self.name.endswith("_") and not self.name.endswith("__")

    def argument(self, index: int) -> Value:
        """Returns the argument at this position. Raises Unknown."""
        if index >= len(self.inputs):
            raise Unknown(f"argument {index}")
        return self.inputs[index]

    def named(self, name: str, index: int | None = None) -> Value:
        """Returns the argument of this name by the schema, or at `index` without a schema; None if there is none."""
        if self.schema:
            names = declared_arguments(self.schema).names
            index = names.index(name) if name in names else None
        return None if index is None else self.argument(index)

    def tensor(self, index: int) -> Tensor:
        """Returns the tensor at this position. Raises Unknown."""
        value = self.argument(index)
        if not isinstance(value, Tensor):
            raise Unknown(f"tensor {index}")
        return value

    def shape(self, index: int, dimensions: int | None = None) -> Shape:
        """Returns the extents of the tensor at this position. Raises Unknown, also for other `dimensions`."""
        shape = self.tensor(index).shape
        if dimensions is not None and len(shape) != dimensions:
            raise Unknown(f"{dimensions} dimensions of tensor {index}")
        return shape

    def tensors(self, index: int) -> list[Tensor]:
        """Returns the tensors of the list at this position; one tensor is a list of one. Raises Unknown."""
        value = self.argument(index)
        if isinstance(value, Tensor):
            return [value]
        if not isinstance(value, list):
            raise Unknown(f"tensors {index}")
        return list(_tensors(value))

    def integers(self, index: int) -> tuple[int, ...]:
        """Returns the list of integers at this position; one integer is a list of one. Raises Unknown."""
        value = self.argument(index)
        values = value if isinstance(value, list) else [value]
        numbers = tuple(item for item in values if isinstance(item, int))
        if len(numbers) < len(values):
            raise Unknown(f"integers {index}")
        return numbers

    @cached_property
    def read(self) -> list[Tensor]:
        """The arguments that the op may read: all but those that only take results. Raises Unknown."""
        taking = declared_arguments(self.schema).only_written
        return self._moved([value for index, value in enumerate(self.inputs) if index not in taking])

    @cached_property
    def written(self) -> list[Tensor]:
        """The results, and the arguments that the schema marks as written. Raises Unknown."""
        # arguments that take results are among the results, where they have their new shapes
        _, written, only_written = declared_arguments(self.schema)
        marked = set(written) - set(only_written)
        return self._moved([*self.results, *(value for index, value in enumerate(self.inputs) if index in marked)])

    def _moved(self, values: Sequence[Value]) -> list[Tensor]:
        """Returns the tensors among the values; host tensors of an op on a device are only launch arguments."""
        every = _tensors([*self.inputs, *(self.recorded_results or ())])
        on_device = any(not tensor.on_host for tensor in every)
        return [tensor for tensor in _tensors(values) if not (on_device and tensor.on_host)]


def _tensors(values: Sequence[Value]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list):
            if len(value) > MOST_LISTED:
                raise Unknown("the rest of a long list")
            yield from _tensors(value)


def recorded_by_host(name: str, schema: str, inputs: RecordedArguments, outputs: RecordedArguments) -> RecordedOp:
    """Returns an op of the host trace, given its arguments and results. Raises Unknown."""
    memory, sides = Interner[tuple[int, ...]](), []
    for recorded in (inputs, outputs):
        if not recorded.are_lists:
            raise Unknown("arguments that are no lists")
        # arguments that the launch added have no shapes: then those of the others are not sure
        has_shapes = len(recorded.shapes) >= len(recorded.values)
        sides.append([_host_value(value, memory, has_shapes) for value in recorded.values])
    return RecordedOp(name, schema, *sides)


def _host_value(value: Any, memory: Interner[tuple[int, ...]], has_shapes: bool) -> Value:
    if isinstance(value, dict):
        raise Unknown("a value that is no tensor")
    if isinstance(value, list):
        return [_host_value(each, memory, has_shapes) for each in value]
    if not isinstance(value, RecordedTensor):
        return value if isinstance(value, int | float | str) and value != "<None>" else None
    shape, strides, stored = value.shape, value.strides, value.elements
    if not value.device and not stored and not (has_shapes and shape):
        return None
    if not has_shapes or not _are_extents(shape) or prod(shape) != stored:
        raise Unknown("a tensor's shape")
    number = memory[value.storage, value.offset, value.elements]
    if stored and _are_extents(strides) and len(strides) == len(shape):
        stored = prod(extent for extent, step in zip(shape, strides, strict=True) if step)
    return Tensor(tuple(shape), value.size, stored, number, value.device == HOST_DEVICE)


def recorded_by_device(name: str, inputs: RecordedArguments) -> RecordedOp:
    """Returns an op that only the device trace has, given its arguments; results are not recorded. Raises Unknown."""
    if not inputs.are_lists or not inputs.shapes or len(inputs.shapes) != len(inputs.types):
        raise Unknown("shapes")
    parts = enumerate(zip(chain(inputs.literals, repeat(None)), inputs.shapes, inputs.types, strict=False))
    return RecordedOp(name, "", [_device_value(index, *part) for index, part in parts], None)


def _device_value(index: int, value: Any, shape: Any, kind: Any) -> Value:
    if kind == LIST:
        if not isinstance(shape, list) or not all(map(_are_extents, shape)):
            raise Unknown("a list's shapes")
        # the type is not recorded, nor which tensors share memory
        return [Tensor.of(tuple(extents), UNKNOWN_SIZE, -1 - number) for number, extents in enumerate(shape)]
    if kind in NO_TYPE:
        return value if isinstance(value, int | float | list) else None
    if not _are_extents(shape) or not isinstance(kind, str):
        raise Unknown("a tensor's shape")
    return Tensor.of(tuple(shape), bytes_per_element(kind, UNKNOWN_SIZE), index, kind)


def _are_extents(shape: Any) -> bool:
    return isinstance(shape, list) and all(isinstance(extent, int) and 0 <= extent < LARGEST for extent in shape)


Operations: TypeAlias = Callable[[RecordedOp], int]
Results: TypeAlias = Callable[[RecordedOp], list[Tensor]]


Family = Literal[
    "element-wise", "element-wise on lists", "reduction", "scan", "softmax", "normalisation", "loss", "pooling", "copy",
    "set", "gather", "scatter", "embedding bag", "optimizer", "matrix product", "convolution", "attention",
]  # fmt: skip
"""Ops whose work is counted in one way; docs/kernel-work.md says how."""


def rules_by_name(table: Mapping[str, Fact]) -> dict[str, Fact]:
    """Returns what a table has for lists of names, by the names of ops, which are PyTorch's where they have no library.

    >>> rules_by_name({"mm bmm": 1, "quantized::linear": 2})
    {'aten::mm': 1, 'aten::bmm': 1, 'quantized::linear': 2}
    """
    return {name if "::" in name else f"aten::{name}": fact for names, fact in table.items() for name in names.split()}


def everything(op: RecordedOp) -> int:
    """Returns the bytes of the tensors that the op reads, and of those that it writes. Raises Unknown."""
    return moved(op.read, op.written)


def moved(read: list[Tensor], written: list[Tensor]) -> int:
    """Returns the bytes read and written; the same memory counts once for each. Raises Unknown."""
    return sum(sum({tensor.memory: tensor.bytes for tensor in tensors}.values()) for tensors in (read, written))


def unknown_results(op: RecordedOp) -> list[Tensor]:
    """Raises Unknown: the results do not follow from the arguments."""
    raise Unknown("results")


class Rule(NamedTuple):
    """How to compute an op's operations, bytes, and results that were not recorded; all functions raise Unknown."""

    family: Family
    operations: Operations
    moved: Operations = everything
    results: Results = unknown_results
    steps: int = 0


def like_first(op: RecordedOp) -> list[Tensor]:
    """Returns one result like the first argument, which is that argument for an in-place op."""
    first = op.tensor(0)
    return [first] if op.in_place else [first.like(first.shape)]


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Returns the broadcast shape. Raises Unknown.

    >>> broadcast([(3, 1), (4,)])
    (3, 4)
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise Unknown("shapes that fit") from error
