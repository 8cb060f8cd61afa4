"""Communications that ran on the host (gloo): the annotation around the transfer, with the arguments of the c10d op that asked for it.

gloo records no arguments of its own and no group; the default group is assumed where several exist, and that is counted.
"""

import re
from bisect import bisect_right

import msgspec
import numpy as np

from ..schema.columns import ABSENT, Int64
from ..schema.host import TensorLists
from ..schema.linked import Communication, Ops, ProcessGroup
from .communication import TENSOR, TENSOR_TYPE

TRANSFER = "gloo:"
REQUEST = "c10d::"

# which argument of a c10d op holds what this rank puts in
_INPUT_ARGUMENT = {
    "allreduce": 0, "broadcast": 0, "reduce": 0, "send": 0, "recv": 0, "recvanysource": 0, "barrier": 0,
    "allgather": 1, "allgatherbase": 1, "reducescatter": 1, "reducescatterbase": 1, "alltoall": 1, "alltoallbase": 1,
    "gather": 1, "scatter": 1,
}  # fmt: skip


def host_communications(ops: Ops, groups: list[ProcessGroup]) -> tuple[list[Communication], Int64]:
    """The communications of the host, and for each op the position of its own, -1 for none. O(n log n)."""
    position = np.full(len(ops), -1, np.int64)
    transfers = _timed(ops, TRANSFER)
    requests = _timed(ops, REQUEST)
    starts = ops.start[requests].tolist()
    found: list[Communication] = []
    for op in transfers[np.argsort(ops.start[transfers], kind="stable")].tolist():
        name = _plain(ops.name[op].removeprefix(TRANSFER))
        before = requests[: bisect_right(starts, int(ops.start[op]))]
        request = next(
            (
                int(row)
                for row in before[::-1][:64]
                if _plain(ops.name[int(row)].removeprefix(REQUEST)).startswith(name)
            ),
            -1,
        )
        arguments = _requested(ops, request) if request >= 0 else Communication()
        position[op] = len(found)
        found.append(_in_group(arguments, name, groups))
    return found, position


def _timed(ops: Ops, prefix: str) -> Int64:
    named = np.array([name.startswith(prefix) for name in ops.name.table] + [False], np.bool_)
    rows = np.flatnonzero(named[ops.name.codes] & (ops.start != ABSENT))
    return rows[np.argsort(ops.start[rows], kind="stable")].astype(np.int64)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def _requested(ops: Ops, row: int) -> Communication:
    """Elements, dtype and peer from the arguments of a c10d op."""
    lists = msgspec.json.decode(ops.inputs[row], type=TensorLists)
    values = msgspec.json.decode(lists.values, type=list[msgspec.Raw])
    types = msgspec.json.decode(lists.types, type=list[str])
    name = _plain(ops.name[row].removeprefix(REQUEST))
    place = _INPUT_ARGUMENT.get(name, 0)
    if place >= len(values):
        return Communication()
    elements = sum(int(tensor.group(3)) for tensor in TENSOR.finditer(bytes(values[place])))
    dtype = TENSOR_TYPE.search(types[place])
    numbers = [int(bytes(value)) for value, kind in zip(values, types, strict=False) if kind == "Int"]
    peer = numbers[0] if numbers else -1
    return Communication(
        dtype=dtype.group(1) if dtype else "",
        in_elements=0 if name == "barrier" else elements,
        out_elements=sum(int(tensor.group(3)) for tensor in TENSOR.finditer(ops.outputs[row])),
        source=peer if name.startswith("recv") else -1,
        target=peer if name.startswith("send") else -1,
    )


def _in_group(arguments: Communication, name: str, groups: list[ProcessGroup]) -> Communication:
    group = groups[0] if groups else ProcessGroup("")
    return msgspec.structs.replace(
        arguments, name=name, group=group.name, description=group.description, group_size=group.size, ranks=group.ranks
    )
