"""Finds who waited for a transfer of the host: hand-offs from requests to transfers, and from transfers to waiters.

gloo records no waits. A request may record that it blocks, the row of a message ends when somebody has waited for it,
and an op that uses what was transferred, by storage and time, has waited before. Else a thread that was idle when the
transfer ended is taken to have waited, which is known from timing alone.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, OpRows, rows_by_number
from ...schema.linked import FOREVER, Calls, Ops, Provenance, Tensors, are_step_marks, argument_lists, listed
from ...schema.reasons import AnyReason, Reason
from ..threads import Gap, ThreadActivity, Wait, thread_activities
from .transfers import FIRST_LANE, TRANSFER, Transfers, plain

WRITES_NOTHING = ("send", "barrier")
WAITS = "_c10d_functional::wait_tensor"
WORK = ("aten::", "c10d::", "gloo:")
"""Prefixes of ops in which no thread waits, though no schema says that they compute."""


class Bytes(NamedTuple):
    """A range of bytes of a storage."""

    begin: int
    end: int


ByteRanges = Mapping[int, Bytes]
"""A range of bytes for each storage."""


class Use(NamedTuple):
    """The use of some bytes of a storage by an op, and when the op starts (ns)."""

    start: int
    row: int
    used: Bytes


class Users:
    """The ops that use any of the storages that are `written`, but for those on `transfer_threads`: they transfer."""

    def __init__(self, ops: Ops, written: Iterable[ByteRanges], transfer_threads: Int64) -> None:
        storages = {storage for ranges in written for storage in ranges}
        self._uses: dict[int, list[Use]] = defaultdict(list)
        uses = ~ops.op_schema.where(_is_view) & ~ops.name.where(lambda name: name.startswith(TRANSFER))
        uses &= ~np.isin(ops.thread, transfer_threads)
        uses &= (ops.start != ABSENT) & ops.recorded_by_host
        if storages:
            tensors = ops.arguments.tensors
            used = tensors.where(uses[tensors.row] & ~tensors.is_output & np.isin(tensors.storage, [*storages]))
            for row, storage, range_ in _covered(used):
                self._uses[storage].append(Use(int(ops.start[row]), row, range_))
        for uses_of_storage in self._uses.values():
            uses_of_storage.sort(key=attrgetter("start"))

    def first(self, written: ByteRanges, since: int) -> int:
        """Returns the row of the first op from `since` (ns) on that uses any of what was written, -1 for none."""
        firsts = list[Use]()
        for storage, (begin, end) in written.items():
            uses = self._uses[storage]
            later = islice(uses, bisect_left(uses, since, key=attrgetter("start")), None)
            firsts += islice((use for use in later if use.used.begin < end and begin < use.used.end), 1)
        return min(firsts).row if firsts else -1


def byte_ranges(tensors: Tensors) -> ByteRanges:
    """Returns the bytes that the tensors of one op cover, from the first to the last one of each storage."""
    return {storage: range_ for _, storage, range_ in _covered(tensors)}


def _covered(tensors: Tensors) -> Iterator[tuple[int, int, Bytes]]:
    """Yields the bytes that the tensors of each op, by row, cover of each storage."""
    covered: dict[tuple[int, int], Bytes] = {}
    columns = (tensors.row, tensors.storage, tensors.low, tensors.high)
    for row, storage, begin, end in zip(*(column.tolist() for column in columns), strict=True):
        before = covered.get((row, storage), Bytes(begin, end))
        covered[row, storage] = Bytes(min(before.begin, begin), max(before.end, end))
    yield from ((row, storage, range_) for (row, storage), range_ in covered.items())


def _is_view(schema: str) -> bool:
    """Returns whether an op only returns a view of its input."""
    return "(a)" in schema and "!" not in schema


class TransferWaits(NamedTuple):
    """The hand-offs, and what stays unknown: a row of -1 for each, as no call belongs to a transfer."""

    handoffs: list[Wait]
    oddities: dict[AnyReason, list[int]]


class _Requested(NamedTuple):
    """A transfer on another thread than its request; rows of ops."""

    op: int
    request: int
    has_request_id: bool


def transfer_waits(transfers: Transfers, op_parent: OpRows, calls: Calls) -> TransferWaits:
    """Returns the waits around all transfers of a process, O(n log n) in ops and calls."""
    waits = _Waits(transfers, thread_gaps(transfers.ops, op_parent, calls))
    begun = [waits.of_transfer(requested) for requested in waits.requested]
    awaited = [wait for wait in map(waits.for_transfer, waits.requested) if wait is not None]
    unknown = {
        Reason.UNKNOWN_REQUEST: int((~_is_timed(transfers)).sum()),
        Reason.TRANSFER_WITHOUT_WAIT: len(begun) - len(awaited),
    }
    return TransferWaits([*begun, *awaited], {reason: [-1] * count for reason, count in unknown.items()})


def thread_gaps(ops: Ops, op_parent: OpRows, calls: Calls) -> Callable[[int], ThreadActivity]:
    """Returns a function that returns a thread's gaps: a thread may wait inside ops that only annotate or wait."""
    of_thread = rows_by_number(np.flatnonzero((ops.start != ABSENT) & ~are_step_marks(ops.name)), ops.thread)
    computes = ops.op_schema.where(bool) | ops.name.where(lambda name: name.startswith(WORK))
    return thread_activities(ops, op_parent, calls, of_thread, computes=computes & ~ops.name.equal(WAITS))


class _Waits:
    """The waits of the threads of a process around its transfers."""

    def __init__(self, transfers: Transfers, gaps: Callable[[int], ThreadActivity]) -> None:
        self._transfers, self._ops, ops = transfers, transfers.ops, transfers.ops
        is_timed = _is_timed(transfers)
        columns = (column[is_timed].tolist() for column in (transfers.op, transfers.request, transfers.has_request_id))
        rows = (_Requested(*row) for row in zip(*columns, strict=True))
        self.requested = [row for row in rows if ops.thread[row.op] != ops.thread[row.request]]
        self._written = {requested.request: _written(ops, requested.request) for requested in self.requested}
        self._users = Users(ops, self._written.values(), transfers.threads)
        self._gaps = gaps

    def of_transfer(self, requested: _Requested) -> Wait:
        """Returns the wait of a transfer's thread for the request, from when the thread was free.

        Time between the request and the transfer is the thread's own idle time.
        """
        start = int(self._ops.start[requested.op])
        requested_at = min(self._end(requested.request), start)
        source, target = self._thread(requested.request), self._thread(requested.op)
        free = min(self._gaps(target).gap_at(start - 1).begin, start)
        known_by = Provenance.RECORD if requested.has_request_id else Provenance.CALL_ORDER
        return Wait(source, requested_at, target, max(requested_at, free), free, known_by.value)

    def for_transfer(self, requested: _Requested) -> Wait | None:
        """Returns the wait for a transfer, None for none: by the request, the message's end, or the first user."""
        if _blocks(self._transfers, requested.request):
            return self._of_blocking_request(requested)
        if self._thread(requested.op) <= FIRST_LANE:
            return self._for_message(requested)
        return self._of_first_user(requested)

    def _of_blocking_request(self, requested: _Requested) -> Wait:
        """Returns the wait of a thread whose request records that it blocks: it is idle from then on."""
        thread = self._thread(requested.request)
        gap = self._gaps(thread).gap_at(self._end(requested.request))
        return self._wait(requested.op, thread, gap, Provenance.RECORD)

    def _for_message(self, requested: _Requested) -> Wait | None:
        """Returns the wait that ends with a message's row, if the thread that requested it was idle then."""
        thread = self._thread(requested.request)
        gap = self._gaps(thread).gap_at(self._end(requested.op))
        since = max(gap.begin, self._end(requested.request))
        return self._wait(requested.op, thread, Gap(since, gap.end), Provenance.RECORD) if since < gap.end else None

    def _of_first_user(self, requested: _Requested) -> Wait | None:
        """Returns the wait of the first user of what was transferred, or else of the thread that requested it, in an
        idle gap; None where there is no gap.
        """
        since, end = self._end(requested.request), self._end(requested.op)
        user = self._users.first(self._written[requested.request], since)
        if user >= 0:
            thread, known_by, used_at = self._thread(user), Provenance.RECORD, self._used_from(user)
        else:
            thread, known_by, used_at = self._thread(requested.request), Provenance.TIMING, FOREVER
        gap = self._gaps(thread).waiting_for(end, since, used_at)
        if gap is None and user >= 0 and end <= used_at:
            gap = Gap(used_at, used_at)
        return self._wait(requested.op, thread, gap, known_by) if gap is not None else None

    def _used_from(self, user: int) -> int:
        """Returns when an op must have what it uses, ns."""
        return self._end(user) if self._ops.name[user] == WAITS else int(self._ops.start[user])

    def _wait(self, op: int, thread: int, gap: Gap, known_by: Provenance) -> Wait:
        """Returns the wait from the start of the gap to the transfer's end, or to the gap's: a row may end late."""
        end = self._end(op)
        until = max(gap.begin, min(end, gap.end))
        return Wait(self._thread(op), min(end, until), thread, until, gap.begin, known_by.value)

    def _thread(self, op: int) -> int:
        return int(self._ops.thread[op])

    def _end(self, op: int) -> int:
        return int(self._ops.end[op])


def _is_timed(transfers: Transfers) -> Bool:
    """Returns which transfers have a request that the device trace holds."""
    return np.asarray((transfers.request >= 0) & (transfers.ops.start[transfers.request] != ABSENT))


def _blocks(transfers: Transfers, request: int) -> bool:
    """Returns whether a request records that it is not asynchronous: the last truth value among its arguments.

    Before PyTorch 2.6 most do not record it.
    """
    ops, args = transfers.ops, transfers.recorded.get(request)
    if ops.recorded_by_host[request]:
        values, types = argument_lists(ops.inputs[request], "values", "types")
        flags = [value for value, kind in zip(values, types, strict=False) if kind == "Bool"]
    else:
        concrete = listed(args.concrete_inputs) if args else []
        flags = [text == "True" for text in concrete if text in ("True", "False")]
    return flags[-1:] == [False]


def _written(ops: Ops, request: int) -> ByteRanges:
    """Returns the bytes that a request writes: its first argument, unless it sends or is a barrier."""
    if plain(ops.name[request]).startswith(WRITES_NOTHING):
        return {}
    tensors = ops.arguments.tensors.of(OpRows(np.array([request])))
    return byte_ranges(tensors.where(~tensors.is_output & (tensors.argument == 0)))
