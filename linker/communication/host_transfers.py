"""Ties transfers of the host (gloo's annotations) to the c10d ops that requested them.

They belong together by their record function ids, else by their order: gloo starts transfers in the order of requests.
"""

import re
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, OpRows, RowMap
from ...schema.linked import Ops, kineto
from ..readers import DeviceTrace, Role

TRANSFER = "gloo:"
REQUEST = "c10d::"


@dataclass
class Transfers:
    """Transfers by start.

    Attributes:
        ops: All ops of the process.
        recorded: The arguments that the device trace recorded, by row of `ops`.
        op: The transfer as the device trace has it.
        node: The host trace's node of it, the transfer itself where there is no other.
        request: The op that requested it, -1 for unknown.
        has_request_id: Whether the request is known by record function ids.
    """

    ops: Ops
    recorded: Mapping[int, kineto.Args]
    op: OpRows
    node: OpRows
    request: OpRows
    has_request_id: Bool

    def __len__(self) -> int:
        return len(self.op)

    @cached_property
    def threads(self) -> Int64:
        """The threads that transfer, lanes of messages included, but not those that request."""
        requesting = self.ops.thread[self.request[self.request >= 0]]
        return np.setdiff1d(self.ops.thread[self.op], requesting)

    @cached_property
    def names(self) -> list[str]:
        """The name of each transfer, without case and punctuation."""
        return [plain(self.ops.name[op].removeprefix(TRANSFER)) for op in self.op.tolist()]


def host_transfers(ops: Ops, device: DeviceTrace, device_op: OpRows) -> Transfers:
    """Returns the transfers that the device trace holds. O(n log n).

    `device_op` is the row in `ops` of each op of the device trace.
    """
    op = _timed(ops, TRANSFER)
    by_device_row = device.communication[Role.OP] if len(op) else {}
    recorded = {int(device_op[row]): args for row, args in by_device_row.items()}
    counterparts = _unmatched_counterparts(ops, op)
    node = OpRows(np.array([counterparts.get(row, row) for row in op.tolist()], np.int64))
    number = ops.rf_id[node]
    transfers = Transfers(ops, recorded, op, node, _requests_by_number(ops, number), number > 0)
    transfers.request[~transfers.has_request_id] = _requests_by_order(transfers)[~transfers.has_request_id]
    return transfers


def plain(name: str) -> str:
    """Returns the letters of a name in lower case, which backends and ops have in common."""
    return re.sub(r"[^a-z]", "", name.lower())


def _timed(ops: Ops, prefix: str) -> OpRows:
    """Returns the ops with such names that the device trace holds, by their start."""
    rows = _named(ops, prefix)
    rows = OpRows(rows[ops.start[rows] != ABSENT])
    return OpRows(rows[np.argsort(ops.start[rows], kind="stable")])


def _named(ops: Ops, prefix: str) -> OpRows:
    return OpRows(np.flatnonzero(ops.name.where(lambda name: name.startswith(prefix))))


def _unmatched_counterparts(ops: Ops, transfers: OpRows) -> dict[int, int]:
    """Returns the host trace's node of each transfer that only order joins to one.

    Up to PyTorch 2.3 the host trace has it on the thread that requested it, the device trace on the one that did it.
    Transfers start in the order of their requests.
    """
    nodes: dict[str, list[int]] = defaultdict(list)
    unmatched: dict[str, list[int]] = defaultdict(list)
    for op in _named(ops, TRANSFER).tolist():
        if ops.recorded_by_host[op] and ops.start[op] == ABSENT:
            nodes[ops.name[op]].append(op)
    for op in transfers.tolist():
        if not ops.recorded_by_host[op]:
            unmatched[ops.name[op]].append(op)
    counterparts: dict[int, int] = {}
    for name, started in unmatched.items():
        if len(nodes[name]) == len(started):
            counterparts.update(zip(started, sorted(nodes[name], key=lambda op: int(ops.id[op])), strict=True))
    return counterparts


def _requests_by_number(ops: Ops, number: Int64) -> OpRows:
    """Returns for each transfer's record function id the last request with a smaller one, -1 for none.

    A request makes its transfers before anything else.
    """
    requests = _named(ops, REQUEST)
    requests = OpRows(requests[ops.rf_id[requests] > 0])
    requests = OpRows(requests[np.argsort(ops.rf_id[requests], kind="stable")])
    last = np.searchsorted(ops.rf_id[requests], number, side="right") - 1
    return RowMap(requests)[np.where(number > 0, last, -1)]


def _requests_by_order(transfers: Transfers) -> OpRows:
    """Returns for each transfer the earliest request of its name that began before it and has no other, -1 for none."""
    ops, requests = transfers.ops, _timed(transfers.ops, REQUEST).tolist()
    names = {row: plain(ops.name[row].removeprefix(REQUEST)) for row in requests}
    known_requests = set(transfers.request[transfers.has_request_id].tolist())
    pending: dict[str, deque[int]] = {
        name: deque(row for row in requests if names[row].startswith(name) and row not in known_requests)
        for name in set(transfers.names)
    }
    request = OpRows(np.full(len(transfers), -1, np.int64))
    for number, name in enumerate(transfers.names):
        queue = pending[name]
        if not transfers.has_request_id[number] and queue and ops.start[queue[0]] <= ops.start[transfers.op[number]]:
            request[number] = queue.popleft()
    return request
