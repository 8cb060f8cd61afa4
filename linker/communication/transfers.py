"""Transfers of the host (gloo's annotations): the c10d ops that requested them, what they communicated, and lanes.

Transfers and requests belong together by their record function ids, else by their order: gloo starts transfers in the
order of requests. gloo does not record groups: the default group is assumed, which is reported where there are several.

The row of a message (a send or receive) begins when it is requested and ends when somebody has waited for it. The
thread that it is recorded on does other things meanwhile. So messages get lanes of their own: negative thread numbers,
as few as keep the messages of a thread from overlapping.
"""

import heapq
import re
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from ...schema.columns import ABSENT, Bool, CommunicationRows, Int64, OpRows, RowMap, split_groups
from ...schema.linked import Communication, Ops, ProcessGroup, argument_lists, integer, kineto, listed
from ..readers import DeviceTrace, RecordedOps, Role
from .arguments import dtype_of, elements, from_device

MESSAGES = ("gloo:send", "gloo:recv")
FIRST_LANE = -2
TRANSFER = "gloo:"
REQUEST = "c10d::"
ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Requests whose first number is the root. Of a message the first number is its peer, the second its tag."""

SCALARS = {"Int": re.compile(r"-?\d+"), "Bool": re.compile("True|False")}
"""How the device trace writes the values of arguments that are no tensors."""
UNKNOWN = Communication()


def messages_in_flight(device: DeviceTrace) -> DeviceTrace:
    """Returns the trace with its messages on lanes instead of threads. O(n + m log m) for m messages."""
    messages = np.flatnonzero(device.ops.name.where(lambda name: name.startswith(MESSAGES)))
    if not len(messages):
        return device
    thread = device.ops.thread.copy()
    thread[messages] = _lanes(device.ops, messages)
    return replace(device, ops=replace(device.ops, thread=thread))


def _lanes(ops: RecordedOps, messages: Int64) -> Int64:
    lanes = np.empty(len(messages), np.int64)
    thread, start, end = (column[messages] for column in (ops.thread, ops.start, ops.end))
    count = 0
    for rows in split_groups(np.lexsort((start, thread)), thread):
        # lanes of this thread with a message, by the message's end, and those without one
        busy: list[tuple[int, int]] = []
        free: list[int] = []
        for row, begin, until in zip(rows.tolist(), start[rows].tolist(), end[rows].tolist(), strict=True):
            while busy and busy[0][0] <= begin:
                heapq.heappush(free, heapq.heappop(busy)[1])
            lane = heapq.heappop(free) if free else count
            count = max(count, lane + 1)
            heapq.heappush(busy, (until, lane))
            lanes[row] = FIRST_LANE - lane
    return lanes


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
        return [plain(self.ops.name[op]) for op in self.op.tolist()]


def host_transfers(ops: Ops, device: DeviceTrace, device_op: OpRows) -> Transfers:
    """Returns the transfers that the device trace holds. O(n log n).

    `device_op` is the row in `ops` of each op of the device trace. A request makes its transfers before anything else:
    that of a transfer has the last smaller record function id.
    """
    op = _timed(ops, TRANSFER)
    by_device_row = device.communication[Role.OP] if len(op) else {}
    recorded = {int(device_op[row]): args for row, args in by_device_row.items()}
    counterparts = _unmatched_counterparts(ops, op)
    node = OpRows(np.array([counterparts.get(row, row) for row in op.tolist()], np.int64))
    number, requests = ops.rf_id[node], _named(ops, REQUEST)
    requests = OpRows(requests[ops.rf_id[requests] > 0])
    requests = OpRows(requests[np.argsort(ops.rf_id[requests], kind="stable")])
    last = np.searchsorted(ops.rf_id[requests], number, side="right") - 1
    request = RowMap(requests)[np.where(number > 0, last, -1)]
    transfers = Transfers(ops, recorded, op, node, request, number > 0)
    transfers.request[~transfers.has_request_id] = _requests_by_order(transfers)[~transfers.has_request_id]
    return transfers


def plain(name: str) -> str:
    """Returns the letters of the name of a transfer or request in lower case, which backends and ops have in common."""
    return re.sub(r"[^a-z]", "", name.removeprefix(TRANSFER).removeprefix(REQUEST).lower())


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


def _requests_by_order(transfers: Transfers) -> OpRows:
    """Returns for each transfer the earliest request of its name that began before it and has no other, -1 for none."""
    ops, requests = transfers.ops, _timed(transfers.ops, REQUEST).tolist()
    names = {row: plain(ops.name[row]) for row in requests}
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


def host_communications(
    transfers: Transfers, groups: list[ProcessGroup]
) -> tuple[list[Communication], CommunicationRows]:
    """Returns the communications of the host, and for each op the row of its own, -1 for none. O(n).

    The tensors of a transfer are those of its host node if that has any. Its request tells the peer or root, the tag
    and the output.
    """
    ops, recorded = transfers.ops, transfers.recorded
    row = CommunicationRows(np.full(len(ops), -1, np.int64))
    row[transfers.op] = np.arange(len(transfers))
    columns = (transfers.op.tolist(), transfers.node.tolist(), transfers.request.tolist(), transfers.names)
    group = groups[0] if groups else ProcessGroup("")
    of_group = {"group": group.name, "description": group.description, "group_size": group.size, "ranks": group.ranks}
    communications: list[Communication] = []
    for op, node, request, name in zip(*columns, strict=True):
        count = elements(ops.inputs[node]) if ops.recorded_by_host[node] else -1
        transfer = from_device(recorded[op]) if count < 0 and op in recorded else UNKNOWN
        if count >= 0:
            transfer = Communication(dtype=dtype_of(ops.inputs[node]), in_elements=count)
        if request >= 0:
            kind, numbers = plain(ops.name[request]), scalars(transfers, request, "Int")
            message, rooted = kind.startswith(("send", "recv")), kind.startswith(ROOTED) and kind.startswith(name)
            transfer = msgspec.structs.replace(
                transfer,
                out_elements=elements(ops.outputs[request]),
                group_rank=integer(numbers[0], -1) if numbers and (message or rooted) else -1,
                tag=integer(numbers[1], -1) if message and len(numbers) > 1 else -1,
            )
        in_elements = 0 if name == "barrier" else transfer.in_elements
        communications.append(msgspec.structs.replace(transfer, name=name, in_elements=in_elements, **of_group))
    return communications, row


def scalars(transfers: Transfers, request: int, kind: str) -> list[Any]:
    """Returns the values of a kind ("Int" or "Bool") among a request's arguments, in order; some are texts."""
    ops, args = transfers.ops, transfers.recorded.get(request)
    if ops.recorded_by_host[request]:
        values, types = argument_lists(ops.inputs[request], "values", "types")
        return [value for value, of_kind in zip(values, types, strict=False) if of_kind == kind]
    texts = listed(args.concrete_inputs) if args else []
    return [text for text in texts if isinstance(text, str) and SCALARS[kind].fullmatch(text)]
