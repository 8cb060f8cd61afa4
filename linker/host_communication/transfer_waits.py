"""Who waited for a transfer of the host: hand-offs from requests to transfers and from transfers to their waiters.

gloo records no wait. A request may say that it blocks, a message's row ends when somebody has waited for it, and who
uses what was transferred has waited before; else a thread that did nothing while the transfer ended is taken to have
waited, which is timing alone.
"""

from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool
from ...schema.linked import Calls, Ops, Provenance
from ...schema.traces import FOREVER, argument_lists, listed, value_texts
from ..threads import Wait
from .host_transfers import REQUEST, Transfers, plain
from .messages_in_flight import FIRST_LANE
from .quiet import WAITS, Gap, quiet_threads
from .storage_users import Stretches, Users, stretches

WRITES_NOTHING = ("send", "barrier")


class TransferWaits(NamedTuple):
    """The hand-offs, and what could not be tied: no call stands for a transfer, so it is counted by a row of -1."""

    handoffs: list[Wait]
    noted: dict[str, list[int]]


class _Asked(NamedTuple):
    """A transfer on a thread that its request is not on, by the rows of both."""

    op: int
    request: int
    numbered: bool


def transfer_waits(transfers: Transfers, calls: Calls) -> TransferWaits:
    """Returns the waits around all transfers of a process, O(n log n) in ops and calls."""
    around = _Around(transfers, calls)
    begun = [around.begin(asked) for asked in around.asked]
    awaited = [wait for wait in map(around.wait, around.asked) if wait is not None]
    lost = {
        "communications of the host whose request is unknown": int((~_is_timed(transfers)).sum()),
        "communications of the host that nobody was seen to wait for": len(begun) - len(awaited),
    }
    return TransferWaits([*begun, *awaited], {what: [-1] * count for what, count in lost.items()})


class _Around:
    """What the threads of a process did around its transfers."""

    def __init__(self, transfers: Transfers, calls: Calls) -> None:
        self._transfers, self._ops, ops = transfers, transfers.ops, transfers.ops
        told = _is_timed(transfers)
        columns = (transfers.op[told].tolist(), transfers.request[told].tolist(), transfers.numbered[told].tolist())
        rows = (_Asked(*row) for row in zip(*columns, strict=True))
        self.asked = [row for row in rows if ops.thread[row.op] != ops.thread[row.request]]
        self._written = {asked.request: _written(ops, asked.request) for asked in self.asked}
        self._users = Users(ops, self._written.values())
        self._quiet = quiet_threads(ops, calls)

    def begin(self, asked: _Asked) -> Wait:
        """Returns a transfer was asked for, and its thread became free; what it took to begin then is the thread's own
        idle time.
        """
        giver, taker = self._thread(asked.request), self._thread(asked.op)
        start = int(self._ops.start[asked.op])
        made = min(self._end(asked.request), start)
        free = min(self._quiet(taker).around(start - 1).begin, start)
        found = Provenance.RECORD if asked.numbered else Provenance.CALL_ORDER
        return Wait(giver, made, taker, max(made, free), free, found.value)

    def wait(self, asked: _Asked) -> Wait | None:
        """Returns who went on after a transfer, by what is most certain of it."""
        if _blocks(self._transfers, asked.request):
            return self._blocked(asked)
        return self._message(asked) if self._thread(asked.op) <= FIRST_LANE else self._later(asked)

    def _blocked(self, asked: _Asked) -> Wait:
        """Returns the thread whose request says that it blocks did nothing from then on."""
        thread = self._thread(asked.request)
        return self._waited(asked.op, thread, self._quiet(thread).around(self._end(asked.request)), Provenance.RECORD)

    def _message(self, asked: _Asked) -> Wait | None:
        """Returns the row of a message ends with the wait for it, on the thread that asked for it if that did nothing
        then.
        """
        thread = self._thread(asked.request)
        pause = self._quiet(thread).around(self._end(asked.op))
        since = max(pause.begin, self._end(asked.request))
        return self._waited(asked.op, thread, Gap(since, pause.end), Provenance.RECORD) if since < pause.end else None

    def _later(self, asked: _Asked) -> Wait | None:
        """Returns the first user of what was transferred must have waited; it, or else the thread that asked, did where
        it did nothing.
        """
        made, end = self._end(asked.request), self._end(asked.op)
        user = self._users.first(self._written[asked.request], made)
        known = user >= 0
        thread, found = (
            self._thread(user if known else asked.request),
            Provenance.RECORD if known else Provenance.TIMING,
        )
        used = self._used_from(user) if known else FOREVER
        pause = self._quiet(thread).waiting_for(end, made, used)
        if pause is None and known and end <= used:
            pause = Gap(used, used)
        return self._waited(asked.op, thread, pause, found) if pause is not None else None

    def _used_from(self, user: int) -> int:
        """Returns from when on an op cannot but have what it uses."""
        return self._end(user) if self._ops.name[user] == WAITS else int(self._ops.start[user])

    def _waited(self, op: int, thread: int, pause: Gap, found: Provenance) -> Wait:
        """Returns the thread did nothing from the begin of the pause to the transfer's end, or the pause's: a
        transfer's row may end late.
        """
        end = self._end(op)
        until = max(pause.begin, min(end, pause.end))
        return Wait(self._thread(op), min(end, until), thread, until, pause.begin, found.value)

    def _thread(self, op: int) -> int:
        return int(self._ops.thread[op])

    def _end(self, op: int) -> int:
        return int(self._ops.end[op])


def _is_timed(transfers: Transfers) -> Bool:
    """Returns which transfers have a request that the device trace holds."""
    return np.asarray((transfers.request >= 0) & (transfers.ops.start[transfers.request] != ABSENT))


def _blocks(transfers: Transfers, request: int) -> bool:
    """Returns whether a request says that it is not asynchronous, the last truth value among its arguments. Before 2.6
    most do not say.
    """
    ops, args = transfers.ops, transfers.recorded.get(request)
    if ops.recorded_by_host[request]:
        values, types = argument_lists(ops.inputs[request], "values", "types")
        said = [value for value, kind in zip(values, types, strict=False) if kind == "Bool"]
    else:
        concrete = listed(args.concrete_inputs) if args else []
        said = [text == "True" for text in concrete if text in ("True", "False")]
    return said[-1:] == [False]


def _written(ops: Ops, request: int) -> Stretches:
    """Returns what a request writes: its first argument, unless it only sends or meets."""
    first = next(iter(value_texts(ops.inputs[request])), b"")
    writes = not plain(ops.name[request].removeprefix(REQUEST)).startswith(WRITES_NOTHING)
    return stretches(first) if writes else {}
