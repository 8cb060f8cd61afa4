"""Cuts every host thread's timeline into nodes: slices of ops, calls outside ops, waits for the device, and idle time.

A thread is cut where an op begins or ends, where a call launches, around blocking calls, and where it hands over to another thread.
Time that a thread only waited has no node: the node after it waits instead. All times are int64 ns.
"""

from dataclasses import dataclass

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, Strings, begins, first_from, innermost, last_up_to, nest, places
from ...schema.linked import LinkedTrace
from ...schema.traces import FOREVER, NEVER, are_step_marks
from .launch_moments import launch_moments

IDLE = "host idle"


@dataclass(slots=True)
class Timeline:
    """n host nodes, by thread and then in program order.

    `op_row` and `call_row` say whose time a node is (a slice of an op, a call outside ops or a wait), -1 where not; `is_wait` are those
    that wait for the device. `launcher` is the node that each launch call's slice became, `waiter` the wait node of each blocking call,
    -1 for other calls; `released_by` and `resumed` are the nodes at both ends of each hand-over.
    """

    is_wait: Bool
    thread: Int64
    start: Int64
    end: Int64
    op_row: Int64
    call_row: Int64
    launcher: Int64
    waiter: Int64
    released_by: Int64
    resumed: Int64
    folded: int
    zero_length: int

    def __len__(self) -> int:
        return len(self.start)


@dataclass(slots=True)
class _Owners:
    """Whose time it is: ops (without step marks) and calls outside ops, nested. `parent` points into this table."""

    thread: Int64
    start: Int64
    end: Int64
    parent: Int64
    op_row: Int64
    call_row: Int64
    of_op: Int64
    of_call: Int64


@dataclass(slots=True)
class _Nodes:
    """Nodes on their way; `moment` orders those of no length that stand at one time. `call` is what a node launches or waits by."""

    thread: Int64
    start: Int64
    end: Int64
    moment: Int64
    is_wait: Bool
    owner: Int64
    call: Int64

    def take(self, rows: Int64 | Bool) -> "_Nodes":
        return _Nodes(*(getattr(self, name)[rows] for name in _Nodes.__slots__))

    @staticmethod
    def joined(parts: "list[_Nodes]") -> "_Nodes":
        return _Nodes(*(np.concatenate([getattr(part, name) for part in parts]) for name in _Nodes.__slots__))


@dataclass(slots=True)
class _Blocking:
    """Blocking calls: from `since` the host only waits, from `until` to `end` the call itself has work again."""

    call: Int64
    since: Int64
    until: Int64
    end: Int64


def slice_host(linked: LinkedTrace, shortest_ns: int) -> Timeline:
    """The host side of a linked trace as nodes; slices shorter than `shortest_ns` are folded into a neighbour. O(n log n)."""
    owners = _owners(linked)
    cuts = launch_moments(linked)
    blocking = _blocking(linked, cuts)
    segments = _segments(linked, owners, cuts, blocking)
    bare, waits = _bare_launches(linked, owners, cuts, segments), _waits(linked, owners, cuts, blocking)
    nodes = _Nodes.joined([segments, bare, waits])
    nodes = _Nodes.joined([nodes, _beginnings(nodes, linked, blocking)])
    nodes = nodes.take(np.lexsort((nodes.moment, nodes.end > nodes.start, nodes.start, nodes.thread)))
    before = len(nodes.start)
    nodes = _fold(nodes, *_fixed_ends(linked, nodes), shortest_ns)
    return _timeline(linked, owners, cuts, blocking, nodes, before - len(nodes.start))


def _owners(linked: LinkedTrace) -> _Owners:
    ops, calls = linked.ops, linked.calls
    op = np.flatnonzero((ops.start != ABSENT) & ~are_step_marks(ops.name))
    # of ops of one length that begin together the caller has the smaller id
    op = op[np.argsort(ops.id[op], kind="stable")]
    call = np.flatnonzero(calls.op_row < 0)
    thread = np.concatenate((ops.thread[op], calls.thread[call]))
    start = np.concatenate((ops.start[op], calls.start[call]))
    end = np.concatenate((ops.end[op], calls.end[call]))
    nesting = nest(thread, start, end)
    # an op that was still running when recording ended is cut there, though a call that began in it may have been recorded to its end
    own_end = np.concatenate((nesting.end[: len(op)], end[len(op) :]))
    of_op, of_call = np.full(len(ops), -1, np.int64), np.full(len(calls), -1, np.int64)
    of_op[op], of_call[call] = np.arange(len(op)), len(op) + np.arange(len(call))
    of_call = np.where(calls.op_row >= 0, np.append(of_op, -1)[calls.op_row], of_call)
    none_op, none_call = np.full(len(call), -1, np.int64), np.full(len(op), -1, np.int64)
    return _Owners(
        thread,
        start,
        own_end,
        nesting.parent,
        np.concatenate((op, none_op)),
        np.concatenate((none_call, call)),
        of_op,
        of_call,
    )


def _blocking(linked: LinkedTrace, cuts: Int64) -> _Blocking:
    waits, calls = linked.host_waits, linked.calls
    call, group = np.unique(waits.call_row, return_inverse=True)
    awaited = np.full(len(call), NEVER, np.int64)
    real = waits.source_row >= 0
    np.maximum.at(awaited, group[real], linked.activities.end[waits.source_row[real]])
    end = calls.end[call]
    since = np.where(cuts[call] == ABSENT, calls.start[call], cuts[call])
    earlier = np.flatnonzero(waits.since != ABSENT)
    np.minimum.at(since, group[earlier], waits.since[earlier])
    until, end = np.clip(awaited, since, np.maximum(end, since)), np.maximum(end, since)
    # a launch that waited for room is its op's own work from then on
    return _Blocking(call, since, until, np.where(since < cuts[call], until, end))


def _segments(linked: LinkedTrace, owners: _Owners, cuts: Int64, blocking: _Blocking) -> _Nodes:
    """The stretches between two neighbouring cuts of a thread, without those in which it waited."""
    calls, over = linked.calls, linked.hand_overs
    launch = np.flatnonzero(cuts != ABSENT)
    idle_from = over.waiting_since != ABSENT
    thread = np.concatenate(
        (owners.thread, owners.thread, calls.thread[launch], *(calls.thread[blocking.call],) * 3,
         over.source_thread, over.target_thread, over.target_thread[idle_from])
    )  # fmt: skip
    time = np.concatenate(
        (owners.start, owners.end, cuts[launch], blocking.since, blocking.until, blocking.end,
         over.source_time, over.target_time, over.waiting_since[idle_from])
    )  # fmt: skip
    order = np.lexsort((time, thread))
    thread, time = thread[order], time[order]
    fresh = begins(thread, time)
    thread, time = thread[fresh], time[fresh]
    inside = ~begins(thread)[1:]
    waited = _covered(thread, time, calls.thread[blocking.call], blocking.since, blocking.end)
    waited |= _covered(
        thread, time, over.target_thread[idle_from], over.waiting_since[idle_from], over.target_time[idle_from]
    )
    kept = np.flatnonzero(inside & ~waited[:-1])
    start, end = time[kept], time[kept + 1]
    owner = innermost(thread[kept], start, end, owners.thread, owners.start, owners.end, owners.parent)
    first, last = _extent(thread[kept], owners, linked)
    none = np.full(len(kept), -1, np.int64)
    nodes = _Nodes(thread[kept], start, end, start, np.zeros(len(kept), np.bool_), owner, none)
    return nodes.take((start >= first) & (end <= last))


def _extent(thread: Int64, owners: _Owners, linked: LinkedTrace) -> tuple[Int64, Int64]:
    """For each row when its thread's first op or call to it begins and its last work or hand-over ends: there is no idle time outside."""
    over = linked.hand_overs
    numbers = np.unique(np.concatenate((owners.thread, over.source_thread, over.target_thread)))
    first = np.full(len(numbers), FOREVER, np.int64)
    last = np.full(len(numbers), NEVER, np.int64)
    np.minimum.at(first, np.searchsorted(numbers, owners.thread), owners.start)
    np.minimum.at(first, np.searchsorted(numbers, over.target_thread), over.target_time)
    np.maximum.at(last, np.searchsorted(numbers, owners.thread), owners.end)
    np.maximum.at(last, np.searchsorted(numbers, over.source_thread), over.source_time)
    place = np.minimum(np.searchsorted(numbers, thread), max(len(numbers) - 1, 0))
    return first[place], last[place]


def _covered(thread: Int64, time: Int64, of_thread: Int64, since: Int64, until: Int64) -> Bool:
    """Which of the sorted (thread, time) cuts begin a stretch inside one of the spans, whose ends are all cuts."""
    change = np.zeros(len(time) + 1, np.int64)
    np.add.at(change, places(thread, time, of_thread, since), 1)
    np.add.at(change, places(thread, time, of_thread, until), -1)
    return np.cumsum(change)[: len(time)] > 0


def _bare_launches(linked: LinkedTrace, owners: _Owners, cuts: Int64, segments: _Nodes) -> _Nodes:
    """A slice of no length for each launch at whose moment no stretch of its own op ends."""
    calls = linked.calls
    launch = np.flatnonzero(cuts != ABSENT)
    order = np.lexsort((segments.end, segments.thread))
    place = np.minimum(
        places(segments.thread[order], segments.end[order], calls.thread[launch], cuts[launch]), max(len(order) - 1, 0)
    )
    if len(order):
        before = order[place]
        same = (segments.thread[before] == calls.thread[launch]) & (segments.end[before] == cuts[launch])
        same &= segments.owner[before] == owners.of_call[launch]
        segments.call[before[same]] = launch[same]
        launch = launch[~same]
    is_wait = np.zeros(len(launch), np.bool_)
    return _Nodes(
        calls.thread[launch], cuts[launch], cuts[launch], calls.start[launch], is_wait, owners.of_call[launch], launch
    )


def _waits(linked: LinkedTrace, owners: _Owners, cuts: Int64, blocking: _Blocking) -> _Nodes:
    call = blocking.call
    is_wait = np.ones(len(call), np.bool_)
    # of a call that launches and waits, the wait is the later node, unless it waited for room to launch
    begin = linked.calls.start[call]
    moment = np.where(blocking.since < cuts[call], begin - 1, np.maximum(begin + 1, blocking.since))
    return _Nodes(linked.calls.thread[call], blocking.until, blocking.end, moment, is_wait, owners.of_call[call], call)


def _beginnings(nodes: _Nodes, linked: LinkedTrace, blocking: _Blocking) -> _Nodes:
    """A node of no length where a thread begins with a wait: what it awaits does not say when the thread got there."""
    order = np.lexsort((nodes.moment, nodes.start, nodes.thread))
    first = order[begins(nodes.thread[order])]
    first = first[nodes.is_wait[first]]
    since = blocking.since[np.searchsorted(blocking.call, nodes.call[first])]
    none = np.full(len(first), -1, np.int64)
    return _Nodes(nodes.thread[first], since, since, since, np.zeros(len(first), np.bool_), none, none)


def _fixed_ends(linked: LinkedTrace, nodes: _Nodes) -> tuple[Bool, Bool]:
    """Nodes whose start must not move (waits, receivers of a hand-over) and whose end must not (launches, waits, givers)."""
    over, is_wait = linked.hand_overs, nodes.is_wait
    start, end = is_wait.copy(), nodes.call >= 0
    receivers = first_from(nodes.thread, nodes.start, over.target_thread, over.target_time)
    givers = last_up_to(nodes.thread, nodes.end, over.source_thread, over.source_time)
    start[receivers[receivers >= 0]] = True
    end[givers[givers >= 0]] = True
    return start, end


def _fold(nodes: _Nodes, fixed_start: Bool, fixed_end: Bool, shortest: int) -> _Nodes:
    """Gives the time of short slices to the next node of the thread, else to the one before, so that the thread's total stays exact.

    A launch sits at its slice's end and never moves; a slice is not folded into a wait, nor over time in which the thread waited.
    """
    count = len(nodes.start)
    short = ~fixed_start & ~fixed_end & (nodes.end - nodes.start < shortest)
    if not short.any():
        return nodes
    touching = (nodes.thread[1:] == nodes.thread[:-1]) & (nodes.start[1:] == nodes.end[:-1])
    next_kept = _next_true(~short)
    run = np.concatenate(([0], np.cumsum(~touching))) if count else np.empty(0, np.int64)
    target = np.where(next_kept < count, next_kept, 0)
    forward = short & (next_kept < count) & ~fixed_start[target] & (run[target] == run)
    start = nodes.start.copy()
    np.minimum.at(start, target[forward], nodes.start[forward])
    last_kept = _last_true(~short)
    source = np.maximum(last_kept, 0)
    backward = short & ~forward & (last_kept >= 0) & ~fixed_end[source] & (run[source] == run)
    end = nodes.end.copy()
    np.maximum.at(end, source[backward], nodes.end[backward])
    nodes.start, nodes.end = start, end
    return nodes.take(~(forward | backward))


def _next_true(mask: Bool) -> Int64:
    """For each position the next one (itself included) that is true, len(mask) for none."""
    place = np.where(mask, np.arange(len(mask)), len(mask))
    return np.minimum.accumulate(place[::-1])[::-1]


def _last_true(mask: Bool) -> Int64:
    return np.maximum.accumulate(np.where(mask, np.arange(len(mask)), -1))


def _timeline(
    linked: LinkedTrace, owners: _Owners, cuts: Int64, blocking: _Blocking, nodes: _Nodes, folded: int
) -> Timeline:
    calls, over = linked.calls, linked.hand_overs
    rows = np.arange(len(nodes.start))
    launcher, waiter = np.full(len(calls), -1, np.int64), np.full(len(calls), -1, np.int64)
    waiter[nodes.call[nodes.is_wait]] = rows[nodes.is_wait]
    launching = (nodes.call >= 0) & ~nodes.is_wait
    launcher[nodes.call[launching]] = rows[launching]
    # calls that launch at one moment from one op share its slice
    alone = np.flatnonzero((cuts != ABSENT) & (launcher < 0))
    if len(alone):
        order = np.lexsort((nodes.end, nodes.thread))
        place = places(nodes.thread[order], nodes.end[order], calls.thread[alone], cuts[alone])
        for call, first in zip(alone.tolist(), place.tolist(), strict=True):
            launcher[call] = _sharing(nodes, order, first, int(owners.of_call[call]), int(cuts[call]))
    # what has no owner (-1) finds the last row: none
    owner_op, owner_call = np.append(owners.op_row, -1)[nodes.owner], np.append(owners.call_row, -1)[nodes.owner]
    return Timeline(
        is_wait=nodes.is_wait,
        thread=nodes.thread,
        start=nodes.start,
        end=nodes.end,
        op_row=owner_op,
        call_row=np.where(nodes.is_wait, nodes.call, owner_call),
        launcher=launcher,
        waiter=waiter,
        released_by=last_up_to(nodes.thread, nodes.end, over.source_thread, over.source_time),
        resumed=first_from(nodes.thread, nodes.start, over.target_thread, over.target_time),
        folded=folded,
        zero_length=int(((linked.ops.start == linked.ops.end) & (linked.ops.start != ABSENT)).sum()),
    )


def _sharing(nodes: _Nodes, order: Int64, first: int, owner: int, cut: int) -> int:
    """The slice of `owner` that ends at `cut`, among those that do."""
    while first < len(order) and nodes.end[order[first]] == cut:
        row = int(order[first])
        if nodes.owner[row] == owner and not nodes.is_wait[row]:
            return row
        first += 1
    return -1


def names_of(linked: LinkedTrace, timeline: Timeline) -> Strings:
    """What each host node is called: its op, the call where there is none, the blocking call of a wait, or idle."""
    ops, calls = linked.ops.name, linked.calls.name
    of_op = (timeline.op_row >= 0) & ~timeline.is_wait
    of_call = np.where(timeline.call_row >= 0, timeline.call_row, len(calls)) + len(ops)
    return Strings.joined((ops, calls, Strings.of([IDLE]))).take(np.where(of_op, timeline.op_row, of_call))
