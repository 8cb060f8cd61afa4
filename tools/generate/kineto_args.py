"""The `args` of Kineto rows for ops and collectives, as the JSON text between the braces."""

import json
from collections.abc import Callable

from .instructions import Collective, Opaque, Tensor, Value

C10_TYPES = {"float": "Float", "long int": "Long"}
LISTED = 30
"""Longer lists of ranks and split sizes are cut."""


def input_args(inputs: tuple[Value, ...]) -> str:
    """Returns what `record_shapes` adds to an op; empty for an op without arguments."""
    if not inputs:
        return ""
    columns: dict[str, Callable[[Value], object]] = {
        "Concrete Inputs": _concrete,
        "Input type": _type,
        "Input Strides": lambda value: _field_values(value, "strides"),
        "Input Dims": lambda value: _field_values(value, "shape"),
    }
    return "".join(f'"{name}": {json.dumps([of(value) for value in inputs])}, ' for name, of in columns.items())


def _is_tensors(value: Value) -> bool:
    return (
        isinstance(value, tuple)
        and not isinstance(value, Tensor | Opaque)
        and isinstance(next(iter(value), None), Tensor)
    )


def _field_values(value: Value, field: str) -> object:
    if isinstance(value, Tensor):
        return getattr(value, field)
    return [getattr(item, field) for item in value] if isinstance(value, tuple) and _is_tensors(value) else []


def _type(value: Value) -> str:
    if isinstance(value, Tensor):
        return value.dtype
    if value is None or isinstance(value, Opaque | str):
        return ""
    if isinstance(value, tuple):
        return "TensorList" if _is_tensors(value) else "ScalarList"
    return "Scalar"


def _concrete(value: Value) -> str:
    if _type(value) == "ScalarList" and isinstance(value, tuple):
        return str(list(value))
    return str(value) if _type(value) == "Scalar" else ""


def collective_args(collective: Collective, sequence: int) -> str:
    """Returns what Kineto says of a collective, on its op and on its kernel."""
    group = collective.group
    args: dict[str, object] = {
        "Collective name": collective.name,
        "In msg nelems": collective.in_elements,
        "Out msg nelems": collective.out_elements,
        "Group size": max(1, len(group.ranks)),
        "dtype": collective_dtype(collective),
        "In split size": _shortened(collective.in_splits),
        "Out split size": _shortened(collective.out_splits),
        "Process Group Ranks": _shortened(group.ranks),
        "Rank": collective.rank,
        "Seq": sequence,
        "Is asynchronized op": collective.asynchronous,
    }
    if group.name:
        args |= {"Process Group Name": group.name, "Process Group Description": group.description}
        args |= {"Global rank start": group.ranks[0], "Global rank stride": stride(group.ranks)}
    if collective.is_p2p:
        args["Dst Rank" if collective.name == "send" else "Src Rank"] = group.ranks[collective.rank]
    return json.dumps(args)[1:-1] + ", "


def collective_dtype(collective: Collective) -> str:
    """Returns the type of the first tensor's elements, Byte without one."""
    return C10_TYPES[collective.tensors[0].dtype] if collective.tensors else "Byte"


def stride(ranks: tuple[int, ...]) -> int:
    """Returns the distance between the ranks of a group, 1 for one rank."""
    return ranks[1] - ranks[0] if len(ranks) > 1 else 1


def _shortened(numbers: tuple[int, ...]) -> str:
    listed = [*map(str, numbers[:LISTED]), *["..."][: len(numbers) > LISTED]]
    return f"[{', '.join(listed)}]"
