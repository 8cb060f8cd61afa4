"""Transfers of the host (gloo's annotations): the ops that requested them, what they communicated, and who waited. They
belong to requests by record function ids, else by order; gloo records no groups, so the default one is assumed.
Messages get lanes of their own, negative thread numbers, as their thread does other things meanwhile.
"""

import heapq
import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...schema import columns, linked
from ...schema.columns import ABSENT, Bool, CommunicationRows, Int64, Lookup, OpRows, RowMap, positions
from ...schema.linked import Calls, Communication, Ops, ProcessGroup, Provenance, kineto
from ..readers import DeviceTrace, HostTrace, RecordedOps, Role
from ..threads import Gap, ThreadActivity, Wait, thread_activities
from .arguments import from_device

MESSAGES = ("gloo:send", "gloo:recv")
FIRST_LANE = -2
TRANSFER = "gloo:"
REQUEST = "c10d::"
ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Requests whose first number is the root. Of a message the first number is its peer, the second its tag."""

SAME_TENSORS = ("allreduce", "broadcast", "reduce", "send", "recv")
"""Requests of which the first tensors are those of the transfer, and the only ones."""
SCALARS = {"Int": int, "Bool": bool}
"""What the device trace, which records no types of arguments that are no tensors, has for values of a kind."""
UNKNOWN = Communication()
WRITES_NOTHING = ("send", "barrier")
WAITS = "_c10d_functional::wait_tensor"
WORK = ("aten::", "c10d::", "gloo:")
"""Prefixes of ops in which no thread waits, though no schema says that they compute."""


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
    for rows in columns.split_groups(np.lexsort((start, thread)), thread):
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
    """Transfers by start: the device trace's op, the host trace's node of it, and the op that requested it, or -1."""

    ops: Ops
    recorded: Mapping[int, kineto.Args]
    op: OpRows
    node: OpRows
    request: OpRows
    has_request_id: Bool

    def __len__(self) -> int:
        return len(self.op)

    @property
    def asked_by(self) -> Lookup:
        """The id of the op that requested each transfer, by the id of that, where it has times."""
        known = (self.request >= 0) & (self.ops.start[self.request] != ABSENT)
        return Lookup(self.ops.id[self.op[known]], self.ops.id[self.request[known]])

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
    """Returns the transfers of the device trace; `device_op` is the row in `ops` of each op of that. O(n log n)."""
    # a request makes its transfers before anything else: that of a transfer has the last smaller record function id
    op = _timed(ops, TRANSFER)
    by_device_row = device.communication[Role.OP] if len(op) else {}
    recorded = {int(device_op[row]): args for row, args in by_device_row.items()}
    counterparts = _unmatched_counterparts(ops, op)
    node = OpRows(np.array([counterparts.get(row, row) for row in op.tolist()], np.int64))
    request, has_id = _requests_by_id(ops, ops.rf_id[node]), ops.rf_id[node] > 0
    others = _timed(ops, REQUEST)
    others = OpRows(others[~columns.isin(others, request[has_id])])
    request[~has_id] = _requests_in_turn(ops, OpRows(op[~has_id]), others)
    # one that the host trace lacks has the id of its request, by which it comes after what was requested before
    lacks_id = (ops.rf_id[op] == 0) & (request >= 0)
    ops.rf_id[op[lacks_id]] = np.where(has_id, ops.rf_id[node], ops.rf_id[request])[lacks_id]
    return Transfers(ops, recorded, op, node, request, has_id)


def transfers_of_other_steps(host: HostTrace, ops: RecordedOps, host_row: Int64, device_row: Int64) -> list[Int64]:
    """Returns pairs of rows of transfers in other steps, by their requests, as threads begin them in another order."""
    node, op = _named(host, TRANSFER), _timed(ops, TRANSFER)
    requested_by, request = _requests_by_id(host, host.rf_id[node]), _requests_in_turn(ops, op, _timed(ops, REQUEST))
    # a request of several transfers tells nothing of their order
    alone = np.bincount(requested_by + 1)[requested_by + 1] == 1
    found = Lookup(host_row, device_row).of(requested_by)
    transfer = np.where(alone & (found >= 0), Lookup(request[request >= 0], op[request >= 0]).of(found), -1)
    return [node[transfer >= 0], transfer[transfer >= 0]]


def plain(name: str) -> str:
    """Returns the letters of the name of a transfer or request in lower case, which backends and ops have in common."""
    return re.sub(r"[^a-z]", "", name.removeprefix(TRANSFER).removeprefix(REQUEST).lower())


def _timed(ops: Ops | RecordedOps, prefix: str) -> OpRows:
    """Returns the ops with such names that the device trace holds, by their start."""
    rows = _named(ops, prefix)
    rows = OpRows(rows[ops.start[rows] != ABSENT])
    return OpRows(rows[np.argsort(ops.start[rows], kind="stable")])


def _named(ops: Ops | HostTrace | RecordedOps, prefix: str) -> OpRows:
    return OpRows(np.flatnonzero(ops.name.where(lambda name: name.startswith(prefix))))


def _unmatched_counterparts(ops: Ops, transfers: OpRows) -> dict[int, int]:
    """Returns the host trace's node of each transfer that only order joins to one."""
    # up to PyTorch 2.3 the host trace has it on the thread that requested it, the device trace on the one that did it.
    # Transfers start in the order of their requests
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


def _requests_by_id(ops: Ops | HostTrace, number: Int64) -> OpRows:
    """Returns the requests with the last record function ids up to these, -1 for none or the id 0."""
    requests = _named(ops, REQUEST)
    requests = OpRows(requests[ops.rf_id[requests] > 0])
    requests = OpRows(requests[np.argsort(ops.rf_id[requests], kind="stable")])
    last = np.searchsorted(ops.rf_id[requests], number, side="right") - 1
    return RowMap(requests)[np.where(number > 0, last, -1)]


def _requests_in_turn(ops: Ops | RecordedOps, transfers: OpRows, requests: OpRows) -> OpRows:
    """Returns for each transfer the earliest unused request of its name before it, -1 for none; both are by start."""
    names, of_requests = ([plain(ops.name[row]) for row in rows.tolist()] for rows in (transfers, requests))
    asked = [*zip(requests.tolist(), of_requests, strict=True)]
    pending = {name: deque(row for row, of_row in asked if of_row.startswith(name)) for name in {*names}}
    request = OpRows(np.full(len(transfers), -1, np.int64))
    for number, row in enumerate(transfers.tolist()):
        if (queue := pending[names[number]]) and ops.start[queue[0]] <= ops.start[row]:
            request[number] = queue.popleft()
    return request


def host_communications(
    transfers: Transfers, groups: list[ProcessGroup]
) -> tuple[list[Communication], CommunicationRows]:
    """Returns the communications of the host, and for each op the row of its own, -1 for none. O(n)."""
    # the tensors of a transfer are those of its host node if that has any. Its request tells the peer or root, the tag
    # and the output
    ops, recorded = transfers.ops, transfers.recorded
    row = CommunicationRows(positions(transfers.op, len(ops)))
    columns = (transfers.op.tolist(), transfers.node.tolist(), transfers.request.tolist(), transfers.names)
    group = groups[0] if groups else ProcessGroup("")
    of_group = {"group": group.name, "description": group.description, "group_size": group.size, "ranks": group.ranks}
    communications: list[Communication] = []
    for op, node, request, name in zip(*columns, strict=True):
        inputs = ops.arguments.inputs(node) if ops.recorded_by_host[node] else None
        if inputs is not None and inputs.elements >= 0:
            transfer = Communication(dtype=inputs.dtype, in_elements=inputs.elements)
        else:
            transfer = from_device(recorded[op]) if op in recorded else UNKNOWN
        if request >= 0:
            kind, numbers = plain(ops.name[request]), scalars(transfers, request, "Int")
            if transfer.in_elements < 0 and kind == name and kind in SAME_TENSORS and ops.recorded_by_host[request]:
                asked = ops.arguments.inputs(request)
                transfer = msgspec.structs.replace(transfer, dtype=asked.dtype, in_elements=asked.elements)
            message, rooted = kind.startswith(("send", "recv")), kind.startswith(ROOTED) and kind.startswith(name)
            transfer = msgspec.structs.replace(
                transfer,
                out_elements=ops.arguments.outputs(request).elements,
                group_rank=linked.integer(numbers[0], -1) if numbers and (message or rooted) else -1,
                tag=linked.integer(numbers[1], -1) if message and len(numbers) > 1 else -1,
            )
        in_elements = 0 if name == "barrier" else transfer.in_elements
        communications.append(msgspec.structs.replace(transfer, name=name, in_elements=in_elements, **of_group))
    return communications, row


def scalars(transfers: Transfers, request: int, kind: str) -> list[Any]:
    """Returns the values of a kind ("Int" or "Bool") among a request's arguments, in order."""
    ops, args = transfers.ops, transfers.recorded.get(request)
    if ops.recorded_by_host[request]:
        inputs = ops.arguments.inputs(request)
        return [value for value, of_kind in zip(inputs.values, inputs.types, strict=False) if of_kind == kind]
    return [value for value in args.arguments.literals if type(value) is SCALARS[kind]] if args else []


class Bytes(NamedTuple):
    """A range of bytes of a storage."""

    begin: int
    end: int


ByteRanges = Mapping[int, Bytes]
"""A range of bytes for each storage."""


class Users:
    """The ops that use any of the storages that are `written`, but for those on `transfer_threads`: they transfer."""

    def __init__(self, ops: Ops, written: Iterable[ByteRanges], transfer_threads: Int64) -> None:
        storages = {storage for ranges in written for storage in ranges}
        self._uses: dict[int, list[tuple[int, int, Bytes]]] = defaultdict(list)
        """By storage: when each op starts (ns), its row, and the bytes that it uses, in the order of time."""
        only_views = ops.op_schema.where(lambda schema: "(a)" in schema and "!" not in schema)
        uses = ~only_views & ~ops.name.where(lambda name: name.startswith(TRANSFER))
        uses &= ~columns.isin(ops.thread, transfer_threads)
        uses &= (ops.start != ABSENT) & ops.recorded_by_host
        if storages:
            tensors = ops.arguments.tensors
            used = tensors.where(uses[tensors.row] & ~tensors.is_output & columns.isin(tensors.storage, [*storages]))
            for (row, storage), range_ in _covered(used).items():
                self._uses[storage].append((int(ops.start[row]), row, range_))
        for uses_of_storage in self._uses.values():
            uses_of_storage.sort()

    def first(self, written: ByteRanges, since: int) -> int:
        """Returns the row of the first op from `since` (ns) on that uses any of what was written, -1 for none."""
        first = linked.FOREVER, -1
        for storage, (begin, end) in written.items():
            uses = self._uses[storage]
            later = islice(uses, bisect_left(uses, since, key=itemgetter(0)), None)
            overlapping = ((start, row) for start, row, used in later if used.begin < end and begin < used.end)
            first = min(first, next(overlapping, first))
        return first[1]


def byte_ranges(tensors: linked.Tensors) -> ByteRanges:
    """Returns the bytes that the tensors of one op cover, from the first to the last one of each storage."""
    return {storage: range_ for (_, storage), range_ in _covered(tensors).items()}


def _covered(tensors: linked.Tensors) -> dict[tuple[int, int], Bytes]:
    """Returns the bytes that the tensors of each op cover of each storage, by the op's row and the storage."""
    covered: dict[tuple[int, int], Bytes] = {}
    columns = (tensors.row, tensors.storage, tensors.low, tensors.high)
    for row, storage, begin, end in zip(*(column.tolist() for column in columns), strict=True):
        before = covered.get((row, storage), Bytes(begin, end))
        covered[row, storage] = Bytes(min(before.begin, begin), max(before.end, end))
    return covered


class TransferWaits(NamedTuple):
    """The hand-offs, of how many transfers it is unknown who requested them, and of how many who waited for them."""

    handoffs: list[Wait]
    without_request: int
    without_wait: int


def transfer_waits(transfers: Transfers, op_parent: OpRows, calls: Calls) -> TransferWaits:
    """Returns the waits around all transfers of a process, O(n log n) in ops and calls."""
    ops, request = transfers.ops, transfers.request
    is_timed = (request >= 0) & (ops.start[request] != ABSENT)
    on_another = np.flatnonzero(is_timed & (ops.thread[transfers.op] != ops.thread[request]))
    pairs = [*zip(transfers.op[on_another].tolist(), request[on_another].tolist(), strict=True)]
    waits = _Waits(transfers, thread_gaps(ops, op_parent, calls), [requested for _, requested in pairs])
    has_id = transfers.has_request_id[on_another].tolist()
    begun = [waits.of_transfer(*pair, known) for pair, known in zip(pairs, has_id, strict=True)]
    awaited = [wait for pair in pairs if (wait := waits.for_transfer(*pair)) is not None]
    return TransferWaits([*begun, *awaited], int((~is_timed).sum()), len(begun) - len(awaited))


def thread_gaps(ops: Ops, op_parent: OpRows, calls: Calls) -> Callable[[int], ThreadActivity]:
    """Returns a function that returns a thread's gaps: a thread may wait inside ops that only annotate or wait."""
    counted = np.flatnonzero((ops.start != ABSENT) & ~linked.are_step_marks(ops.name))
    of_thread = columns.rows_by_number(counted, ops.thread)
    computes = ops.op_schema.where(bool) | ops.name.where(lambda name: name.startswith(WORK))
    return thread_activities(ops, op_parent, calls, of_thread, computes=computes & ~ops.name.equal(WAITS))


class _Waits:
    """The waits of the threads of a process around its transfers, each on another thread than its request."""

    def __init__(self, transfers: Transfers, gaps: Callable[[int], ThreadActivity], requests: Iterable[int]) -> None:
        ops = transfers.ops
        self._transfers, self._ops, self._gaps = transfers, ops, gaps
        self._thread, self._start, self._end = ops.thread.data, ops.start.data, ops.end.data
        self._ends = np.sort(ops.end[transfers.op])
        self._written = {request: _written(ops, request) for request in requests}
        self._users = Users(ops, self._written.values(), transfers.threads)

    def of_transfer(self, op: int, request: int, has_request_id: bool) -> Wait:
        """Returns the wait of a transfer's thread for the request, from when the thread was free."""
        # time between the request and the transfer is the thread's own idle time
        start = self._start[op]
        requested_at = min(self._end[request], start)
        free = min(self._gaps(self._thread[op]).gap_at(start - 1).begin, start)
        known_by = Provenance.RECORD if has_request_id else Provenance.CALL_ORDER
        target = self._thread[op], max(requested_at, free), free
        return Wait(self._thread[request], requested_at, *target, known_by.value)

    def for_transfer(self, op: int, request: int) -> Wait | None:
        """Returns the wait for a transfer, None for none: by the request, the message's end, or the first user."""
        thread, since, end = self._thread[request], self._end[request], self._end[op]
        if scalars(self._transfers, request, "Bool")[-1:] == [False]:
            # the request records that it is not asynchronous; before PyTorch 2.6 most do not record it
            return self._wait(op, thread, self._gaps(thread).gap_at(since), Provenance.RECORD)
        if self._thread[op] <= FIRST_LANE:
            # a message's row ends with the wait for it, if the thread that requested it was idle then
            gap = self._gaps(thread).gap_at(end)
            gap = Gap(max(gap.begin, since), gap.end)
            return self._wait(op, thread, gap, Provenance.RECORD) if gap.begin < gap.end else None
        # the first user of what was transferred waited, or else the thread that requested it, in an idle gap
        user, known_by, used_at = self._users.first(self._written[request], since), Provenance.TIMING, linked.FOREVER
        while user >= 0 and self._start[user] < end and self._ops.name[user].startswith(REQUEST):
            # to ask for another transfer of the same tensor is not to wait for this one
            user = self._users.first(self._written[request], self._start[user] + 1)
        if user >= 0:
            thread, known_by = self._thread[user], Provenance.RECORD
            used_at = self._end[user] if self._ops.name[user] == WAITS else self._start[user]
        row = Gap(self._start[op], end)
        waited = self._gaps(thread).waiting_for(row, since, used_at, self._ends)
        if waited is None and user >= 0 and row.begin < used_at:
            waited = Gap(used_at, used_at)
        return self._wait(op, thread, waited, known_by) if waited is not None else None

    def _wait(self, op: int, thread: int, gap: Gap, known_by: Provenance) -> Wait:
        """Returns the wait from the start of the gap to the transfer's end, or to the gap's: a row may end late."""
        end = self._end[op]
        until = max(gap.begin, min(end, gap.end))
        return Wait(self._thread[op], min(end, until), thread, until, gap.begin, known_by.value)


def _written(ops: Ops, request: int) -> ByteRanges:
    """Returns the bytes that a request writes: its first argument, unless it sends or is a barrier."""
    if plain(ops.name[request]).startswith(WRITES_NOTHING):
        return {}
    tensors = ops.arguments.tensors.of(OpRows(np.array([request])))
    return byte_ranges(tensors.where(~tensors.is_output & (tensors.argument == 0)))
