"""Arguments of ops as the host trace writes them: value, shape, type and strides of each, as JSON values."""

import json
from collections.abc import Iterable
from typing import NamedTuple

from .instructions import ITEM_BYTES, Collective, Opaque, Tensor, Value
from .kineto_args import stride

ID = "%d"


class Argument(NamedTuple):
    """An argument as the host trace has it: JSON values and the name of the type."""

    value: object
    shape: object
    type: str
    strides: object


def argument(value: Value) -> Argument:
    """Returns an argument of an op, with ID for the numbers of a tensor and of its storage."""
    if isinstance(value, Tensor):
        where = [ID, ID, value.offset, value.numel, ITEM_BYTES[value.dtype], value.device]
        return Argument(where, value.shape, f"Tensor({value.dtype})", value.strides)
    if isinstance(value, Opaque):
        return Argument(f"<{value.type}>", [], value.type, [])
    if isinstance(value, tuple):
        return listed("GenericList", [argument(item) for item in value])
    if value is None:
        return Argument("<None>", [], "None", [])
    return Argument(value, [], {bool: "Bool", int: "Int", float: "Double", str: "String"}[type(value)], [])


def listed(kind: str, items: list[Argument]) -> Argument:
    """Returns a list or tuple; it has one type for each element."""
    return Argument(
        [item.value for item in items],
        [item.shape for item in items],
        f"{kind}[{','.join(item.type for item in items)}]",
        [item.strides for item in items],
    )


def text(arguments: Iterable[Argument]) -> str:
    """Returns the arguments as a JSON object of four lists, to be formatted with the numbers of its tensors."""
    values, shapes, types, strides = ([*column] for column in zip(*arguments, strict=True)) if arguments else ([],) * 4
    lists = json.dumps({"values": values, "shapes": shapes, "types": types, "strides": strides})
    return lists.replace("%", "%%").replace(f'"%{ID}"', ID)


def collective_arguments(collective: Collective, sequence: int) -> list[Argument]:
    """Returns the positional inputs of record_param_comms behind its tensor."""
    group = collective.group

    def of(*values: Value) -> list[Argument]:
        return [argument(value) for value in values]

    return [
        listed("Tuple", of(sequence, collective.is_p2p)),
        listed("Tuple", of(group.name, group.description)),
        *of(collective.rank, collective.name, collective.in_splits, collective.out_splits),
        *of(group.ranks[0] if group.ranks else -1, stride(group.ranks) if group.ranks else -1),
        *of(max(1, len(group.ranks)), collective.asynchronous),
    ]
