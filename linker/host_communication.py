"""Communications that ran on the host (gloo): the annotation around a transfer, and the c10d op that asked for it.

gloo records no group: the default one is assumed, which is reported where there are several.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from ..schema.columns import ABSENT, Int64
from ..schema.host import TensorLists
from ..schema.linked import Communication, Ops, ProcessGroup
from ..schema.numbers import integer
from .categories import Role
from .device_trace import DeviceTrace
from .recorded_arguments import dtype_of, elements, from_device

TRANSFER = "gloo:"
REQUEST = "c10d::"
LOOKED_BACK = 64
ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Requests whose first number is the root; that of a message is its peer, and the second its tag."""


def host_communications(
    ops: Ops, device: DeviceTrace, device_op: Int64, groups: list[ProcessGroup]
) -> tuple[list[Communication], Int64]:
    """The communications of the host, and for each op the position of its own, -1 for none. O(n log n).

    `device_op` holds the row in `ops` of each op row of the device trace.
    """
    position = np.full(len(ops), -1, np.int64)
    transfers = _timed(ops, TRANSFER)
    if not len(transfers):
        return [], position
    rows = {int(device_op[row]): args for (role, row), args in device.communication.items() if role is Role.OP}
    arguments = {op: from_device(args) for op, args in rows.items()}
    counterparts, requests = _unmatched_counterparts(ops, transfers), _Requests(ops, rows)
    found: list[Communication] = []
    for op in transfers.tolist():
        node = counterparts.get(op, op)
        name = _plain(ops.name[op].removeprefix(TRANSFER))
        told = _from_tensors(ops, node) or arguments.get(op, Communication())
        position[op] = len(found)
        found.append(_in_group(requests.complete(told, op, node, name), name, groups))
    return found, position


def _timed(ops: Ops, prefix: str) -> Int64:
    """The ops of such names that the device trace holds, by their start."""
    rows = _named(ops, prefix)
    rows = rows[ops.start[rows] != ABSENT]
    return np.asarray(rows[np.argsort(ops.start[rows], kind="stable")])


def _named(ops: Ops, prefix: str) -> Int64:
    named = np.array([name.startswith(prefix) for name in ops.name.table] + [False], np.bool_)
    return np.flatnonzero(named[ops.name.codes])


def _unmatched_counterparts(ops: Ops, transfers: Int64) -> dict[int, int]:
    """The host trace's node of each transfer that nothing but order joins to one.

    Up to 2.3 the host trace has it on the thread that asked, the device trace on the one that worked. Transfers start in the order in
    which they were asked for.
    """
    nodes: dict[str, list[int]] = defaultdict(list)
    lone: dict[str, list[int]] = defaultdict(list)
    for op in _named(ops, TRANSFER).tolist():
        if ops.recorded_by_host[op] and ops.start[op] == ABSENT:
            nodes[ops.name[op]].append(op)
    for op in transfers.tolist():
        if not ops.recorded_by_host[op]:
            lone[ops.name[op]].append(op)
    found: dict[int, int] = {}
    for name, started in lone.items():
        if len(nodes[name]) == len(started):
            found.update(zip(started, sorted(nodes[name], key=lambda op: int(ops.id[op])), strict=True))
    return found


def _from_tensors(ops: Ops, node: int) -> Communication | None:
    """What goes in by the tensors of a transfer's host node; None where it has none."""
    count = elements(ops.inputs[node]) if ops.recorded_by_host[node] else -1
    return Communication(dtype=dtype_of(ops.inputs[node].decode()), in_elements=count) if count >= 0 else None


class _Requests:
    """The c10d ops, and which one asked for a transfer."""

    def __init__(self, ops: Ops, device_args: Mapping[int, Any]) -> None:
        self._ops, self._args = ops, device_args
        self._by_start = _timed(ops, REQUEST)
        self._starts = ops.start[self._by_start].tolist()
        asked = _named(ops, REQUEST)
        asked = asked[ops.rf_id[asked] > 0]
        self._by_number = asked[np.argsort(ops.rf_id[asked], kind="stable")]
        self._numbers = ops.rf_id[self._by_number].tolist()

    def complete(self, told: Communication, op: int, node: int, name: str) -> Communication:
        """What was told of a transfer with the peer or root, the tag and what comes out, by the op that asked for it."""
        request = self._of(op, node, name)
        if request < 0:
            return told
        asked = _plain(self._ops.name[request].removeprefix(REQUEST))
        numbers = self._numbers_of(request)
        message, rooted = asked.startswith(("send", "recv")), asked.startswith(ROOTED) and asked.startswith(name)
        return msgspec.structs.replace(
            told,
            out_elements=elements(self._ops.outputs[request]),
            place=numbers[0] if numbers and (message or rooted) else -1,
            tag=numbers[1] if message and len(numbers) > 1 else -1,
        )

    def _of(self, op: int, node: int, name: str) -> int:
        """The latest request before the transfer was made: by record function id, else the latest before it started of such a name."""
        made = int(self._ops.rf_id[node])
        if made > 0:
            place = bisect_right(self._numbers, made)
            return int(self._by_number[place - 1]) if place else -1
        before = self._by_start[: bisect_right(self._starts, int(self._ops.start[op]))][::-1][:LOOKED_BACK]
        plain = ((int(row), _plain(self._ops.name[int(row)].removeprefix(REQUEST))) for row in before)
        return next((row for row, asked in plain if asked.startswith(name)), -1)

    def _numbers_of(self, request: int) -> list[int]:
        """The whole numbers among a request's arguments, in order."""
        if self._ops.recorded_by_host[request]:
            lists = msgspec.json.decode(self._ops.inputs[request], type=TensorLists)
            values, types = msgspec.json.decode(lists.values), msgspec.json.decode(lists.types)
            return [integer(value, -1) for value, kind in zip(values, types, strict=False) if kind == "Int"]
        args = self._args.get(request)
        concrete = msgspec.json.decode(args.concrete_inputs) if args and bytes(args.concrete_inputs) else []
        return [int(text) for text in concrete if isinstance(text, str) and re.fullmatch(r"-?\d+", text)]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


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
