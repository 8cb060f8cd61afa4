"""Ties transfers of the host (gloo's annotations) to the c10d ops that requested them, one row per transfer.

A request and its transfer are told by their record function ids, else by their order: gloo starts transfers in the
order of requests.
"""

import re
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64
from ...schema.linked import Ops
from ...schema.traces import kineto
from ..readers import DeviceTrace, Role

TRANSFER = "gloo:"
REQUEST = "c10d::"


@dataclass
class Transfers:
    """Rows in `ops`, by start: the transfer as the device trace has it, the host trace's node of it (itself where
    nothing else is one), and what requested it, -1 for unknown; `numbered` where record function ids tell that.
    `recorded` is what the device trace tells of an op's arguments.
    """

    ops: Ops
    recorded: Mapping[int, kineto.Args]
    op: Int64
    node: Int64
    request: Int64
    numbered: Bool

    def __len__(self) -> int:
        return len(self.op)

    @cached_property
    def threads(self) -> Int64:
        """The threads that transfer, lanes of messages included, but not those that request."""
        asking = self.ops.thread[self.request[self.request >= 0]]
        return np.setdiff1d(self.ops.thread[self.op], asking)

    @cached_property
    def names(self) -> list[str]:
        """What each transfer is called, without case and punctuation."""
        return [plain(self.ops.name[op].removeprefix(TRANSFER)) for op in self.op.tolist()]


def host_transfers(ops: Ops, device: DeviceTrace, device_op: Int64) -> Transfers:
    """Returns the transfers that the device trace holds. O(n log n). `device_op` is the row in `ops` of each op row of
    the device trace.
    """
    transfers = _timed(ops, TRANSFER)
    told = device.communication[Role.OP] if len(transfers) else {}
    recorded = {int(device_op[row]): args for row, args in told.items()}
    counterparts = _unmatched_counterparts(ops, transfers)
    node = np.array([counterparts.get(op, op) for op in transfers.tolist()], np.int64)
    made = ops.rf_id[node]
    found = Transfers(ops, recorded, transfers, node, _by_number(ops, made), made > 0)
    found.request[~found.numbered] = _by_order(found)[~found.numbered]
    return found


def plain(name: str) -> str:
    """Returns a name's letters in lower case, by which backends and ops are compared."""
    return re.sub(r"[^a-z]", "", name.lower())


def _timed(ops: Ops, prefix: str) -> Int64:
    """Returns the ops of such names that the device trace holds, by their start."""
    rows = _named(ops, prefix)
    rows = rows[ops.start[rows] != ABSENT]
    return np.asarray(rows[np.argsort(ops.start[rows], kind="stable")])


def _named(ops: Ops, prefix: str) -> Int64:
    return np.flatnonzero(ops.name.where(lambda name: name.startswith(prefix)))


def _unmatched_counterparts(ops: Ops, transfers: Int64) -> dict[int, int]:
    """Returns the host trace's node of each transfer that nothing but order joins to one.

    Up to 2.3 the host trace has it on the thread that asked, the device trace on the one that worked. Transfers start
    in the order in which they were asked for.
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


def _by_number(ops: Ops, made: Int64) -> Int64:
    """Returns the last request with a smaller record function id than each transfer's: a request makes its transfers
    before anything else.
    """
    asked = _named(ops, REQUEST)
    asked = asked[ops.rf_id[asked] > 0]
    asked = asked[np.argsort(ops.rf_id[asked], kind="stable")]
    place = np.searchsorted(ops.rf_id[asked], made, side="right") - 1
    return np.append(asked, -1)[np.where(made > 0, place, -1)]


def _by_order(transfers: Transfers) -> Int64:
    """Returns the earliest request of such a name that began before the transfer and that no other one belongs to."""
    ops, asked = transfers.ops, _timed(transfers.ops, REQUEST).tolist()
    names = {row: plain(ops.name[row].removeprefix(REQUEST)) for row in asked}
    taken = set(transfers.request[transfers.numbered].tolist())
    waiting: dict[str, deque[int]] = {
        name: deque(row for row in asked if names[row].startswith(name) and row not in taken)
        for name in set(transfers.names)
    }
    found = np.full(len(transfers), -1, np.int64)
    for place, name in enumerate(transfers.names):
        queue = waiting[name]
        if not transfers.numbered[place] and queue and ops.start[queue[0]] <= ops.start[transfers.op[place]]:
            found[place] = queue.popleft()
    return found
