"""Finds the arguments of communications that ran on the host (gloo), from transfers and their requests.

gloo does not record groups: the default group is assumed, which is reported where there are several.
"""

import re

import msgspec
import numpy as np

from ...schema.columns import CommunicationRows
from ...schema.linked import Communication, Ops, ProcessGroup, argument_lists, integer, kineto, listed
from .host_transfers import REQUEST, Transfers, plain
from .recorded_arguments import dtype_of, elements, from_device

ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Requests whose first number is the root. Of a message the first number is its peer, the second its tag."""

UNKNOWN = Communication()


def host_communications(
    transfers: Transfers, groups: list[ProcessGroup]
) -> tuple[list[Communication], CommunicationRows]:
    """Returns the communications of the host, and for each op the row of its own, -1 for none. O(n)."""
    ops, recorded = transfers.ops, transfers.recorded
    row = CommunicationRows(np.full(len(ops), -1, np.int64))
    row[transfers.op] = np.arange(len(transfers))
    columns = (transfers.op.tolist(), transfers.node.tolist(), transfers.request.tolist(), transfers.names)
    communications: list[Communication] = []
    for op, node, request, name in zip(*columns, strict=True):
        of_transfer = _from_tensors(ops, node) or (from_device(recorded[op]) if op in recorded else UNKNOWN)
        if request >= 0:
            of_transfer = _with_request(of_transfer, ops, request, name, recorded.get(request))
        communications.append(_in_group(of_transfer, name, groups))
    return communications, row


def _from_tensors(ops: Ops, node: int) -> Communication | None:
    """Returns dtype and elements of the tensors of a transfer's host node; None where it has none."""
    count = elements(ops.inputs[node]) if ops.recorded_by_host[node] else -1
    return Communication(dtype=dtype_of(ops.inputs[node]), in_elements=count) if count >= 0 else None


def _with_request(
    transfer: Communication, ops: Ops, request: int, name: str, args: kineto.Args | None
) -> Communication:
    """Returns the arguments of a transfer, completed by its request: peer or root, tag, and output elements."""
    kind = plain(ops.name[request].removeprefix(REQUEST))
    numbers = _numbers_of(ops, request, args)
    message, rooted = kind.startswith(("send", "recv")), kind.startswith(ROOTED) and kind.startswith(name)
    return msgspec.structs.replace(
        transfer,
        out_elements=elements(ops.outputs[request]),
        group_rank=numbers[0] if numbers and (message or rooted) else -1,
        tag=numbers[1] if message and len(numbers) > 1 else -1,
    )


def _numbers_of(ops: Ops, request: int, args: kineto.Args | None) -> list[int]:
    """Returns the whole numbers among a request's arguments, in order."""
    if ops.recorded_by_host[request]:
        values, types = argument_lists(ops.inputs[request], "values", "types")
        return [integer(value, -1) for value, kind in zip(values, types, strict=False) if kind == "Int"]
    concrete = listed(args.concrete_inputs) if args else []
    return [integer(text, -1) for text in concrete if isinstance(text, str) and re.fullmatch(r"-?\d+", text)]


def _in_group(transfer: Communication, name: str, groups: list[ProcessGroup]) -> Communication:
    group = groups[0] if groups else ProcessGroup("")
    return msgspec.structs.replace(
        transfer,
        name=name,
        in_elements=0 if name == "barrier" else transfer.in_elements,
        group=group.name,
        description=group.description,
        group_size=group.size,
        ranks=group.ranks,
    )
