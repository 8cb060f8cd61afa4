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

from ...schema.columns import ABSENT, Int64, OpRows, rows_by_number
from ...schema.linked import FOREVER, Calls, Ops, Provenance, Tensors, are_step_marks
from ...schema.reasons import AnyReason, Reason
from ..threads import Gap, ThreadActivity, Wait, thread_activities
from .transfers import FIRST_LANE, TRANSFER, Transfers, plain, scalars

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
        only_views = ops.op_schema.where(lambda schema: "(a)" in schema and "!" not in schema)
        uses = ~only_views & ~ops.name.where(lambda name: name.startswith(TRANSFER))
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


class TransferWaits(NamedTuple):
    """The hand-offs, and what stays unknown: a row of -1 for each, as no call belongs to a transfer."""

    handoffs: list[Wait]
    oddities: dict[AnyReason, list[int]]


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
    unknown, unawaited = int((~is_timed).sum()), len(begun) - len(awaited)
    oddities: dict[AnyReason, list[int]] = {
        Reason.UNKNOWN_REQUEST: [-1] * unknown,
        Reason.TRANSFER_WITHOUT_WAIT: [-1] * unawaited,
    }
    return TransferWaits([*begun, *awaited], oddities)


def thread_gaps(ops: Ops, op_parent: OpRows, calls: Calls) -> Callable[[int], ThreadActivity]:
    """Returns a function that returns a thread's gaps: a thread may wait inside ops that only annotate or wait."""
    of_thread = rows_by_number(np.flatnonzero((ops.start != ABSENT) & ~are_step_marks(ops.name)), ops.thread)
    computes = ops.op_schema.where(bool) | ops.name.where(lambda name: name.startswith(WORK))
    return thread_activities(ops, op_parent, calls, of_thread, computes=computes & ~ops.name.equal(WAITS))


class _Waits:
    """The waits of the threads of a process around its transfers, each on another thread than its request."""

    def __init__(self, transfers: Transfers, gaps: Callable[[int], ThreadActivity], requests: Iterable[int]) -> None:
        self._transfers, self._ops, self._gaps = transfers, transfers.ops, gaps
        self._written = {request: _written(transfers.ops, request) for request in requests}
        self._users = Users(transfers.ops, self._written.values(), transfers.threads)

    def of_transfer(self, op: int, request: int, has_request_id: bool) -> Wait:
        """Returns the wait of a transfer's thread for the request, from when the thread was free.

        Time between the request and the transfer is the thread's own idle time.
        """
        start = int(self._ops.start[op])
        requested_at = min(self._end(request), start)
        free = min(self._gaps(self._thread(op)).gap_at(start - 1).begin, start)
        known_by = Provenance.RECORD if has_request_id else Provenance.CALL_ORDER
        return Wait(
            self._thread(request), requested_at, self._thread(op), max(requested_at, free), free, known_by.value
        )

    def for_transfer(self, op: int, request: int) -> Wait | None:
        """Returns the wait for a transfer, None for none: by the request, the message's end, or the first user."""
        thread, since, end = self._thread(request), self._end(request), self._end(op)
        if scalars(self._transfers, request, "Bool")[-1:] in ([False], ["False"]):
            # the request records that it is not asynchronous; before PyTorch 2.6 most do not record it
            return self._wait(op, thread, self._gaps(thread).gap_at(since), Provenance.RECORD)
        if self._thread(op) <= FIRST_LANE:
            # a message's row ends with the wait for it, if the thread that requested it was idle then
            gap = self._gaps(thread).gap_at(end)
            gap = Gap(max(gap.begin, since), gap.end)
            return self._wait(op, thread, gap, Provenance.RECORD) if gap.begin < gap.end else None
        # the first user of what was transferred waited, or else the thread that requested it, in an idle gap
        user, known_by, used_at = self._users.first(self._written[request], since), Provenance.TIMING, FOREVER
        if user >= 0:
            thread, known_by = self._thread(user), Provenance.RECORD
            used_at = self._end(user) if self._ops.name[user] == WAITS else int(self._ops.start[user])
        waited = self._gaps(thread).waiting_for(end, since, used_at)
        if waited is None and user >= 0 and end <= used_at:
            waited = Gap(used_at, used_at)
        return self._wait(op, thread, waited, known_by) if waited is not None else None

    def _wait(self, op: int, thread: int, gap: Gap, known_by: Provenance) -> Wait:
        """Returns the wait from the start of the gap to the transfer's end, or to the gap's: a row may end late."""
        end = self._end(op)
        until = max(gap.begin, min(end, gap.end))
        return Wait(self._thread(op), min(end, until), thread, until, gap.begin, known_by.value)

    def _thread(self, op: int) -> int:
        return int(self._ops.thread[op])

    def _end(self, op: int) -> int:
        return int(self._ops.end[op])


def _written(ops: Ops, request: int) -> ByteRanges:
    """Returns the bytes that a request writes: its first argument, unless it sends or is a barrier."""
    if plain(ops.name[request]).startswith(WRITES_NOTHING):
        return {}
    tensors = ops.arguments.tensors.of(OpRows(np.array([request])))
    return byte_ranges(tensors.where(~tensors.is_output & (tensors.argument == 0)))
