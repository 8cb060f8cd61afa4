"""Cuts a part out of a linked trace: what belongs to it, what is cut at its borders, and what no longer holds.

The whole trace is linked before it is cut, so that a part keeps what only the whole tells: which event a wait is for,
who called whom, which collective an op waits for.
"""

from collections import Counter
from copy import copy
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Lookup
from ...schema.linked import LinkedTrace, Ops, ThreadHandoffs, op_parents, previous_on_stream
from ...schema.traces import are_step_marks
from ..matching import are_ops
from ..readers import Kept, select_linked, select_rows
from .thread_parts import ThreadParts
from .windows import SMALLEST_REST, Period

LARGEST = np.iinfo(np.int64).max


class TracePart(NamedTuple):
    """A part, which calls of the whole are in it, by reason what was lost at its borders, and how many ops were cut
    there.
    """

    linked: LinkedTrace
    calls: Bool
    lost: Counter[str]
    shortened: int = 0

    @property
    def is_empty(self) -> bool:
        """Nothing ran in it: step marks may be all there is."""
        ops = self.linked.ops
        ran = (ops.end > ops.start) & ~are_step_marks(ops.name)
        return not len(self.linked.activities) and not len(self.linked.calls) and not ran.any()


def of_both(linked: LinkedTrace) -> TracePart:
    """Returns the trace without the host ops that began before or after everything that the device trace holds, if
    these are many.
    """
    calls, activities = (np.ones(len(table), np.bool_) for table in (linked.calls, linked.activities))
    ops = ~_beyond(linked.ops)
    part = linked if ops.all() else select_linked(linked, Kept(ops, calls, activities))
    return TracePart(part, calls, Counter())


def cut(linked: LinkedTrace, period: Period) -> TracePart:
    """Returns the part of a trace that belongs to a period.

    A call belongs to the period it starts in, whole, even if it returns later: a thread's part of the period begins and
    ends when the call that is running at the border returns. Ops that overlap that part are kept and cut to it.
    Activities belong to their launch call, whenever they ran; those without a call to the time they started at. An
    untimed op goes with the one before it by id. Waits and hand-offs between the part and the rest are lost: what they
    held back starts as measured. O(n log n).
    """
    parts = ThreadParts(linked.calls, period)
    calls = parts.starts(linked.calls.thread, linked.calls.start)
    kept = Kept(_ops(linked.ops, parts), calls, _activities(linked, calls, period))
    part = select_linked(linked, kept)
    ops, shortened = _shortened(part.ops, parts)
    waits, lost = part.host_waits, _crossing(linked, kept)
    info = copy(part.info)
    info.carried = _carried(linked, kept)
    over, lost["hand-overs across the borders of the window"] = _handoffs(part.handoffs, parts)
    return TracePart(
        replace(
            part,
            info=info,
            ops=ops,
            host_waits=replace(waits, since=parts.since(part.calls.thread[waits.call_row], waits.since)),
            handoffs=over,
        ),
        calls,
        lost,
        shortened,
    )


def _ops(ops: Ops, parts: ThreadParts) -> Bool:
    """Returns ops that overlap the part, the untimed ones that belong to it, and nodes that are no ops."""
    timed, first = ops.start != ABSENT, parts.first(ops.thread)
    kept = timed & (ops.start < parts.last(ops.thread)) & ((ops.end > first) | (ops.start >= first))
    untimed = ~timed & are_ops(ops.name)
    known = np.flatnonzero(timed & ops.recorded_by_host) if untimed.any() else np.empty(0, np.int64)
    known = known[np.argsort(ops.id[known], kind="stable")]
    if len(known):
        before = known[np.maximum(np.searchsorted(ops.id[known], ops.id[untimed]) - 1, 0)]
        kept[untimed] = kept[before]
    return _with_callers(ops, kept | ~(timed | untimed))


def _with_callers(ops: Ops, kept: Bool) -> Bool:
    """Returns the kept ops and the untimed ones that called them."""
    untimed = ops.start == ABSENT
    if not untimed.any():
        return kept
    row_of, rows = Lookup(ops.id, np.arange(len(ops))), np.flatnonzero(kept)
    while len(rows):
        rows = np.unique(row_of.of(ops.parent_id[rows]))
        rows = rows[(rows >= 0) & untimed[rows] & ~kept[rows]]
        kept[rows] = True
    return kept


def _beyond(ops: Ops) -> Bool:
    """Returns the host ops before the first and after the last one that the device trace holds, which called none that
    it holds.
    """
    held = ops.start != ABSENT
    untimed = ~held & are_ops(ops.name)
    held &= ops.recorded_by_host
    if not held.any() or not untimed.any():
        return np.zeros(len(ops), np.bool_)
    first, last = ops.id.min(where=held, initial=LARGEST), ops.id.max(where=held, initial=ABSENT)
    beyond = untimed & ((ops.id < first) | (ops.id > last))
    if beyond.sum() <= SMALLEST_REST * (untimed.sum() + held.sum()):
        return np.zeros(len(ops), np.bool_)
    return ~_with_callers(ops, ~beyond)


def _activities(linked: LinkedTrace, calls: Bool, period: Period) -> Bool:
    activities = linked.activities
    kept = (activities.start >= period.start) & (activities.start < period.end)
    called = activities.call_row >= 0
    kept[called] = calls[activities.call_row[called]]
    return kept


def _shortened(ops: Ops, parts: ThreadParts) -> tuple[Ops, int]:
    """Returns the ops with the times that they have inside the part, and how many were cut."""
    timed = ops.start != ABSENT
    start = np.where(timed, np.maximum(ops.start, parts.first(ops.thread)), ABSENT)
    end = np.where(timed, np.minimum(ops.end, parts.last(ops.thread)), ABSENT)
    shorter = (start > ops.start) | (end < ops.end)
    parent = op_parents(ops)
    child = np.flatnonzero(timed & (parent >= 0))
    child = child[shorter[parent[child]] & (ops.thread[parent[child]] == ops.thread[child])]
    inner = np.zeros(len(ops), np.int64)
    np.add.at(inner, parent[child], end[child] - start[child])
    own = np.maximum(end - start - inner, 0)
    return replace(ops, start=start, end=end, exclusive=np.where(shorter, own, ops.exclusive)), int(shorter.sum())


def _handoffs(over: ThreadHandoffs, parts: ThreadParts) -> tuple[ThreadHandoffs, int]:
    """Returns the hand-offs inside the part, and how many others have an end or some of their waiting there."""
    given = parts.ends(over.source_thread, over.source_time)
    taken = parts.starts(over.target_thread, over.target_time)
    waiting = (over.waiting_since != ABSENT) & (over.waiting_since < parts.last(over.target_thread))
    waiting &= over.target_time > parts.first(over.target_thread)
    kept = select_rows(over, given & taken)
    inside = replace(kept, waiting_since=parts.since(kept.target_thread, kept.waiting_since))
    return inside, int(((given | taken | waiting) & ~(given & taken)).sum())


def _carried(linked: LinkedTrace, kept: Kept) -> dict[int, int]:
    """Returns by id of the kept activities that followed others, on their stream or by a wait of it: when the last of
    those had ended.
    """
    activities, waits = linked.activities, linked.device_waits
    before, outside = previous_on_stream(activities), ~kept.activities
    rows = np.flatnonzero(kept.activities & (before >= 0))
    real = waits.source_row >= 0
    source = np.concatenate((before[rows], waits.source_row[real]))
    target = np.concatenate((rows, waits.target_row[real]))
    crossing = outside[source] & kept.activities[target]
    ended = np.full(len(activities), -1, np.int64)
    np.maximum.at(ended, target[crossing], activities.end[source[crossing]])
    held = np.flatnonzero(ended >= 0)
    return dict(zip(activities.id[held].tolist(), ended[held].tolist(), strict=True))


def _crossing(linked: LinkedTrace, kept: Kept) -> Counter[str]:
    """Returns how many waits have one end in the part."""
    device, host = linked.device_waits, linked.host_waits
    real = host.source_row >= 0
    between = kept.activities[device.source_row] ^ kept.activities[device.target_row]
    awaited = kept.activities[host.source_row[real]] ^ kept.calls[host.call_row[real]]
    return Counter(
        {
            "device waits across the borders of the window": int(between.sum()),
            "host waits across the borders of the window": int(awaited.sum()),
        }
    )
