"""Finds the arguments of communications that ran on the host (gloo), from transfers and their requests.

gloo records no group: the default one is assumed, which is reported where there are several.
"""

import re

import msgspec
import numpy as np

from ...schema.columns import Int64
from ...schema.linked import Communication, Ops, ProcessGroup
from ...schema.traces import argument_lists, integer, kineto, listed
from ..communication import dtype_of, elements, from_device
from .host_transfers import REQUEST, Transfers, plain

ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Requests whose first number is the root; that of a message is its peer, and the second its tag."""

UNKNOWN = Communication()


def host_communications(transfers: Transfers, groups: list[ProcessGroup]) -> tuple[list[Communication], Int64]:
    """Returns the communications of the host, and for each op the position of its own, -1 for none. O(n)."""
    ops, recorded = transfers.ops, transfers.recorded
    position = np.full(len(ops), -1, np.int64)
    position[transfers.op] = np.arange(len(transfers))
    columns = (transfers.op.tolist(), transfers.node.tolist(), transfers.request.tolist(), transfers.names)
    found: list[Communication] = []
    for op, node, request, name in zip(*columns, strict=True):
        told = _from_tensors(ops, node) or (from_device(recorded[op]) if op in recorded else UNKNOWN)
        told = _completed(told, ops, request, name, recorded.get(request)) if request >= 0 else told
        found.append(_in_group(told, name, groups))
    return found, position


def _from_tensors(ops: Ops, node: int) -> Communication | None:
    """Returns what goes in by the tensors of a transfer's host node; None where it has none."""
    count = elements(ops.inputs[node]) if ops.recorded_by_host[node] else -1
    return Communication(dtype=dtype_of(ops.inputs[node].decode()), in_elements=count) if count >= 0 else None


def _completed(told: Communication, ops: Ops, request: int, name: str, args: kineto.Args | None) -> Communication:
    """Returns the arguments of a transfer, completed by the op that asked for it: peer or root, tag, and what comes
    out.
    """
    asked = plain(ops.name[request].removeprefix(REQUEST))
    numbers = _numbers_of(ops, request, args)
    message, rooted = asked.startswith(("send", "recv")), asked.startswith(ROOTED) and asked.startswith(name)
    return msgspec.structs.replace(
        told,
        out_elements=elements(ops.outputs[request]),
        place=numbers[0] if numbers and (message or rooted) else -1,
        tag=numbers[1] if message and len(numbers) > 1 else -1,
    )


def _numbers_of(ops: Ops, request: int, args: kineto.Args | None) -> list[int]:
    """Returns the whole numbers among a request's arguments, in order."""
    if ops.recorded_by_host[request]:
        values, types = argument_lists(ops.inputs[request], "values", "types")
        return [integer(value, -1) for value, kind in zip(values, types, strict=False) if kind == "Int"]
    concrete = listed(args.concrete_inputs) if args else []
    return [integer(text, -1) for text in concrete if isinstance(text, str) and re.fullmatch(r"-?\d+", text)]


def _in_group(told: Communication, name: str, groups: list[ProcessGroup]) -> Communication:
    group = groups[0] if groups else ProcessGroup("")
    return msgspec.structs.replace(
        told,
        name=name,
        in_elements=0 if name == "barrier" else told.in_elements,
        group=group.name,
        description=group.description,
        group_size=group.size,
        ranks=group.ranks,
    )
