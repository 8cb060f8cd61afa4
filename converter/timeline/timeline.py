"""Cuts the timeline of every host thread into nodes: slices of ops, calls outside ops, waits for the device, idle time.
Time belongs to the innermost span that encloses it; slices that are too short are folded into a neighbour. A
cudaStreamSynchronize from 10 to 50 µs whose stream was done at 40 waits until 40, and works from 40 to 50.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...schema import columns
from ...schema.columns import ABSENT, Bool, CallRows, Categorical, Int64, Keys, NodeNumbers, Ns, OpRows, RowMap
from ...schema.linked import FOREVER, NEVER, LinkedTrace, ThreadHandoffs, are_step_marks, previous_on_stream
from ...schema.machine import LatencyStats, of_each

IDLE = "host idle"
SHORT, MOST_FOLDED = 1_000, 0.2


def submit_times(linked: LinkedTrace) -> Int64:
    """Returns when each call submitted its work (ns), else ABSENT: at its end, or a latency before its activity."""
    calls, activities = linked.calls, linked.activities
    first = np.full(len(calls), FOREVER, np.int64)
    has_call = activities.call_row >= 0
    np.minimum.at(first, activities.call_row[has_call], activities.start[has_call])
    latency = of_each(linked.info.machine.launch, calls.name).median
    submit_ns = np.where(first < calls.end, np.maximum(first - latency, calls.start), calls.end)
    return _with_late_copies(linked, np.where(first < FOREVER, submit_ns, ABSENT))


def _with_late_copies(linked: LinkedTrace, submit_ns: Int64) -> Int64:
    """Returns the submit times; copies for which the device was not ready count as submitted as soon as is usual."""
    calls, activities, machine = linked.calls, linked.activities, linked.info.machine
    # activities for which their own calls waited
    awaited = linked.host_waits.source_row >= 0
    row, call = linked.host_waits.source_row[awaited], linked.host_waits.call_row[awaited]
    is_own = activities.call_row[row] == call
    row, call = row[is_own], call[is_own]
    ready_ns = _ready_ns(linked)[row]
    submission = submit_ns[call] - calls.start[call]
    names = activities.name.take(row)
    kinds = machine.by_name(submission, names, ready_ns <= calls.start[call])
    typical = names.numbers(lambda name: kinds.get(name, kinds.get("", LatencyStats())).median)
    gap = of_each(machine.gap, activities.category).median[row]
    is_device_late = np.abs(activities.start[row] - ready_ns - gap) < np.abs(submission - typical)
    submit_ns[call[is_device_late]] = np.minimum(submit_ns[call], calls.start[call] + typical)[is_device_late]
    return submit_ns


def _ready_ns(linked: LinkedTrace) -> Int64:
    """Returns when the predecessors of each activity, on its stream and by device waits, had ended; NEVER for none."""
    activities, waits = linked.activities, linked.device_waits
    previous = previous_on_stream(activities)
    # the stream of a CUDA graph waits for all branches of the launch, if these ended before the activity started
    ended = np.full(len(linked.calls) + 1, NEVER, np.int64)
    np.maximum.at(ended, activities.call_row, activities.end)
    ended[-1] = FOREVER
    of_launch = ended[activities.call_row[previous]]
    of_previous = np.where(of_launch <= activities.start, of_launch, activities.end[previous])
    ready_ns = np.where(previous >= 0, of_previous, NEVER)
    np.maximum.at(ready_ns, waits.target_row, np.append(activities.end, NEVER)[waits.source_row])
    return ready_ns


@dataclass(slots=True)
class Blocking:
    """Blocking calls, by call row, which only wait from `since` to `until`, and then work until `end`. The awaited work
    ended `return_ns` before `until`, or such a call costs `call_ns` beyond `until` to `end` without a wait: one is 0.
    """

    call: CallRows
    since: Int64
    until: Int64
    end: Int64
    return_ns: Int64
    call_ns: Int64


def blocking_calls(linked: LinkedTrace, submit_ns: Int64) -> Blocking:
    """Returns the blocking calls; `submit_ns` is when each call launched, ABSENT for those that launch nothing."""
    waits, calls = linked.host_waits, linked.calls
    call, position = np.unique(waits.call_row, return_inverse=True)
    awaited = np.full(len(call), NEVER, np.int64)
    np.maximum.at(awaited, position, np.append(linked.activities.end, NEVER)[waits.source_row])
    submitted = submit_ns[call]
    since = np.where(submitted == ABSENT, calls.start[call], submitted)
    has_since = np.flatnonzero(waits.since != ABSENT)
    np.minimum.at(since, position[has_since], waits.since[has_since])
    end = np.maximum(calls.end[call], since)
    until = np.clip(awaited, since, end)
    only_waits = submitted == ABSENT
    only_waits[position[has_since]] = False
    # how long calls of a name take that have nothing to wait for: those that began longer after what they awaited had
    # ended than they took, as less may be due to the clocks
    duration = calls.end[call] - calls.start[call]
    began_idle = only_waits & (awaited > NEVER) & (calls.start[call] - awaited > duration)
    names = calls.name.take(call)
    stats = linked.info.machine.by_name(duration, names, began_idle)
    medians = {name: latency.median for name, latency in stats.items() if latency.count}
    usual = names.numbers(lambda name: medians.get(name, ABSENT), ABSENT)
    idle_ns = np.where(only_waits, usual, ABSENT)
    is_known = (awaited > since) & (idle_ns != ABSENT)
    return_ns = np.where(is_known, np.maximum(end - until - idle_ns, 0), 0)
    call_ns = np.where(is_known, np.clip(idle_ns - (end - until), 0, until - since), 0)
    until += return_ns
    # after waiting for room in a queue, a launch is work of its op again
    end = np.where(since < submitted, until, end)
    return Blocking(CallRows(call), since, until, end, return_ns, call_ns)


@dataclass(slots=True, repr=False)
class Timeline(columns.SummaryRepr):
    """Host nodes, by thread and then in program order; -1 for no op or call. By call, `launch_node` is the slice that
    launches it and `sync_node` the wait of a blocking one. A wait begins `return_ns` after the end of what it awaited,
    and `call_ns` after the node before it.
    """

    is_wait: Bool
    thread: Int64
    start: Int64
    end: Int64
    op_row: OpRows
    call_row: CallRows
    launch_node: NodeNumbers
    sync_node: NodeNumbers
    handoff_source_node: NodeNumbers
    handoff_target_node: NodeNumbers
    return_ns: Ns
    call_ns: Ns
    communicates: Bool
    folded: int
    zero_length: int

    def __len__(self) -> int:
        return len(self.start)


def slice_host(linked: LinkedTrace, shortest_ns: int | None) -> Timeline:
    """Returns the host side of a linked trace as nodes, short slices folded as `Options` says. O(n log n)."""
    ops, calls, handoffs = linked.ops, linked.calls, linked.handoffs
    submit_ns = submit_times(linked)
    spans = _host_spans(linked)
    blocking = blocking_calls(linked, submit_ns)
    unfolded = _host_nodes(linked, spans, submit_ns, blocking)
    op_rows = RowMap(spans.op_row)
    nodes = _fold_short_slices(unfolded, handoffs, shortest_ns, _communicating(linked, unfolded, op_rows))
    source_node, target_node = nodes.at_handoffs(handoffs)
    launch_node, sync_node = (np.full(len(calls), -1, np.int64) for _ in range(2))
    launches, waits = np.flatnonzero((nodes.call >= 0) & ~nodes.is_wait), np.flatnonzero(nodes.is_wait)
    launch_node[nodes.call[launches]], sync_node[nodes.call[waits]] = launches, waits
    # calls of one op with the same submit time share the slice that ends then, which begins before nodes of no length
    sharing = np.flatnonzero((submit_ns != ABSENT) & (launch_node < 0))
    order = np.lexsort((nodes.end, nodes.thread))
    ends = Keys(nodes.thread[order], nodes.end[order])
    launch_node[sharing] = order[columns.group_searchsorted(ends, Keys(calls.thread[sharing], submit_ns[sharing]))]
    return_ns, call_ns = np.zeros((2, len(nodes.start)), np.int64)
    wait = np.searchsorted(blocking.call, nodes.call[waits])
    return_ns[waits], call_ns[waits] = blocking.return_ns[wait], blocking.call_ns[wait]
    return Timeline(
        is_wait=nodes.is_wait, thread=nodes.thread, start=nodes.start, end=nodes.end, op_row=op_rows[nodes.span],
        call_row=CallRows(np.where(nodes.is_wait, nodes.call, RowMap(spans.call_row)[nodes.span])),
        launch_node=NodeNumbers(launch_node), sync_node=NodeNumbers(sync_node),
        handoff_source_node=NodeNumbers(source_node), handoff_target_node=NodeNumbers(target_node), return_ns=return_ns,
        call_ns=call_ns, folded=len(unfolded.start) - len(nodes.start),
        communicates=_communicating(linked, nodes, op_rows),
        zero_length=int(((ops.start == ops.end) & (ops.start != ABSENT)).sum()),
    )  # fmt: skip


def names_of(linked: LinkedTrace, timeline: Timeline) -> Categorical:
    """Returns the name of each host node: its op, or its call if it has none; the blocking call of a wait; or idle."""
    ops, calls = linked.ops.name, linked.calls.name
    of_op = (timeline.op_row >= 0) & ~timeline.is_wait
    of_call = np.where(timeline.call_row >= 0, timeline.call_row, len(calls)) + len(ops)
    return Categorical.joined((ops, calls, Categorical.of([IDLE]))).take(np.where(of_op, timeline.op_row, of_call))


@dataclass(slots=True, repr=False)
class HostSpans(columns.SummaryRepr):
    """Ops, then calls outside ops; `parent` is a row here, `of_call` the row of each call or of the op around it."""

    thread: Int64
    start: Int64
    end: Int64
    parent: Int64
    op_row: OpRows
    call_row: CallRows
    of_call: Int64


def _host_spans(linked: LinkedTrace) -> HostSpans:
    """Returns the timed ops, and the calls outside ops, of all threads, nested."""
    ops, calls = linked.ops, linked.calls
    op = np.flatnonzero((ops.start != ABSENT) & ~are_step_marks(ops.name))
    # of ops with the same start and end the caller has the smaller id
    op = op[np.argsort(ops.id[op], kind="stable")]
    call = np.flatnonzero(calls.op_row < 0)
    thread = np.concatenate((ops.thread[op], calls.thread[call]))
    start = np.concatenate((ops.start[op], calls.start[call]))
    end = np.concatenate((ops.end[op], calls.end[call]))
    nesting = columns.nest(columns.ThreadIntervals(thread, start, end))
    of_op, of_call = (np.full(len(table), -1) for table in (ops, calls))
    of_op[op], of_call[call] = np.arange(len(op)), len(op) + np.arange(len(call))
    return HostSpans(
        thread=thread,
        start=start,
        # an op that ran when recording ended is cut there; a call in it may have been recorded to its end
        end=np.concatenate((nesting.end[: len(op)], end[len(op) :])),
        parent=nesting.parent,
        op_row=OpRows(np.concatenate((op, np.full(len(call), -1)))),
        call_row=CallRows(np.concatenate((np.full(len(op), -1), call))),
        of_call=np.where(calls.op_row >= 0, np.append(of_op, -1)[calls.op_row], of_call),
    )


class HostNodes(NamedTuple):
    """Nodes by row of HostSpans, -1 for idle time, and their call; `order_ns` orders those of no length."""

    thread: Int64
    start: Int64
    end: Int64
    order_ns: Int64
    is_wait: Bool
    span: Int64
    call: CallRows

    def take(self, rows: Int64 | Bool) -> "HostNodes":
        """Returns the nodes at these rows, in their order."""
        return HostNodes(*(column[rows] for column in self))  # type: ignore[arg-type]

    def at_handoffs(self, handoffs: ThreadHandoffs) -> tuple[Int64, Int64]:
        """Returns the last node before each hand-off on its source's thread, the first one after it on its target's."""
        source, target = Keys(self.thread, self.end), Keys(self.thread, self.start)
        before = columns.asof_backward(source, Keys(handoffs.source_thread, handoffs.source_time))
        return before, columns.asof_forward(target, Keys(handoffs.target_thread, handoffs.target_time))

    @staticmethod
    def of(times: columns.ThreadIntervals, span: Int64 | None = None, order_ns: Int64 | None = None) -> "HostNodes":
        """Returns work of these spans, idle time by default, which neither launches nor waits."""
        none, is_wait = np.full(len(times.start), -1), np.zeros(len(times.start), np.bool_)
        order_ns = times.start if order_ns is None else order_ns
        return HostNodes(*times, order_ns, is_wait, none if span is None else span, CallRows(none.copy()))

    @staticmethod
    def joined(parts: "list[HostNodes]") -> "HostNodes":
        """Returns the nodes of all parts, one part after the other."""
        return HostNodes(*map(np.concatenate, zip(*parts, strict=True)))  # type: ignore[arg-type]


def _host_nodes(linked: LinkedTrace, spans: HostSpans, submit_ns: Int64, blocking: Blocking) -> HostNodes:
    """Returns all host nodes, by thread, in program order. `submit_ns` is when a call launched, ABSENT for others."""
    work = _work(linked, spans, submit_ns, blocking)
    # an op that communicates and has no stretch becomes a node of no length, as other ranks wait for it
    instant = _communicate(linked, spans.op_row)
    instant[work.span[work.span >= 0]] = False
    span, call = np.flatnonzero(instant), blocking.call
    communications = HostNodes.of(columns.ThreadIntervals.at(spans.thread[span], spans.start[span]), span)
    # if a call launches and waits, the wait is the later node, unless it waited for room in a queue to launch
    begin, times = linked.calls.start[call], (linked.calls.thread[call], blocking.until, blocking.end)
    order_ns = np.where(blocking.since < submit_ns[call], begin - 1, np.maximum(begin + 1, blocking.since))
    waits = HostNodes(*times, order_ns, np.ones(len(call), np.bool_), spans.of_call[call], call)
    nodes = HostNodes.joined([work, _zero_length_launches(linked, spans, submit_ns, work), communications, waits])
    # a thread that begins with a wait begins with a node of no length, as the awaited work does not tell when it began
    order = np.lexsort((nodes.order_ns, nodes.start, nodes.thread))
    first = order[columns.is_group_start(nodes.thread[order])]
    first = first[nodes.is_wait[first]]
    since = blocking.since[np.searchsorted(call, nodes.call[first])]
    nodes = HostNodes.joined([nodes, HostNodes.of(columns.ThreadIntervals.at(nodes.thread[first], since))])
    return nodes.take(np.lexsort((nodes.order_ns, nodes.end > nodes.start, nodes.start, nodes.thread)))


def _work(linked: LinkedTrace, spans: HostSpans, submit_ns: Int64, blocking: Blocking) -> HostNodes:
    """Returns the slices between neighbouring cuts of a thread, without those in which it waited."""
    calls, handoffs = linked.calls, linked.handoffs
    thread, time = _cuts(linked, spans, submit_ns, blocking)
    idle = handoffs.waiting_since != ABSENT
    waits = columns.ThreadIntervals(calls.thread[blocking.call], blocking.since, blocking.end)
    idle_times = (handoffs.target_thread, handoffs.waiting_since, handoffs.target_time)
    waited = columns.is_covered(thread, time, waits)
    waited |= columns.is_covered(thread, time, columns.ThreadIntervals(*(column[idle] for column in idle_times)))
    is_last = columns.is_group_start(thread)[1:]
    row = np.flatnonzero(~is_last & ~waited[:-1])
    thread, start, end = thread[row], time[row], time[row + 1]
    nested = columns.NestedIntervals(columns.ThreadIntervals(spans.thread, spans.start, spans.end), spans.parent)
    span = nested.innermost(columns.ThreadIntervals(thread, start, end))
    # outside of a thread's first op or hand-off to it and its last work or hand-off it has no idle time
    threads = np.unique(np.concatenate((spans.thread, handoffs.source_thread, handoffs.target_thread)))
    first, last = np.full(len(threads), FOREVER, np.int64), np.full(len(threads), NEVER, np.int64)
    for earliest, times in ((spans.thread, spans.start), (handoffs.target_thread, handoffs.target_time)):
        np.minimum.at(first, np.searchsorted(threads, earliest), times)
    for latest, times in ((spans.thread, spans.end), (handoffs.source_thread, handoffs.source_time)):
        np.maximum.at(last, np.searchsorted(threads, latest), times)
    position = np.minimum(np.searchsorted(threads, thread), max(len(threads) - 1, 0))
    is_inside = (start >= first[position]) & (end <= last[position])
    return HostNodes.of(columns.ThreadIntervals(thread, start, end), span).take(is_inside)


def _cuts(linked: LinkedTrace, spans: HostSpans, submit_ns: Int64, blocking: Blocking) -> tuple[Int64, Int64]:
    """Returns the distinct (thread, time) pairs at which a thread is cut, by thread and time."""
    calls, handoffs = linked.calls, linked.handoffs
    launch = np.flatnonzero(submit_ns != ABSENT)
    blocked = calls.thread[blocking.call]
    idle = handoffs.waiting_since != ABSENT
    cuts = (
        (spans.thread, spans.start), (spans.thread, spans.end), (calls.thread[launch], submit_ns[launch]),
        (blocked, blocking.since), (blocked, blocking.until), (blocked, blocking.end),
        (handoffs.source_thread, handoffs.source_time), (handoffs.target_thread, handoffs.target_time),
        (handoffs.target_thread[idle], handoffs.waiting_since[idle]),
    )  # fmt: skip
    thread, time = (np.concatenate(parts) for parts in zip(*cuts, strict=True))
    order = np.lexsort((time, thread))
    thread, time = thread[order], time[order]
    is_first = columns.is_group_start(thread, time)
    return thread[is_first], time[is_first]


def _zero_length_launches(linked: LinkedTrace, spans: HostSpans, submit_ns: Int64, work: HostNodes) -> HostNodes:
    """Returns nodes of no length for launches where no slice of their op ends; slices that end there get the call."""
    calls = linked.calls
    launch = np.flatnonzero(submit_ns != ABSENT)
    if len(work.start):
        order = np.lexsort((work.end, work.thread))
        submits = Keys(calls.thread[launch], submit_ns[launch])
        position = columns.group_searchsorted(Keys(work.thread[order], work.end[order]), submits)
        before = order[np.minimum(position, len(order) - 1)]
        ends_there = (work.thread[before] == submits.group) & (work.end[before] == submits.value)
        ends_there &= work.span[before] == spans.of_call[launch]
        work.call[before[ends_there]] = launch[ends_there]
        launch = launch[~ends_there]
    times = columns.ThreadIntervals.at(calls.thread[launch], submit_ns[launch])
    nodes = HostNodes.of(times, spans.of_call[launch], calls.start[launch])
    nodes.call[:] = launch
    return nodes


def _communicate(linked: LinkedTrace, op_row: OpRows) -> Bool:
    """Says which of the ops, -1 for none, communicate."""
    return np.asarray(np.append(linked.ops.communication_row, -1)[op_row] >= 0)


def _communicating(linked: LinkedTrace, nodes: HostNodes, op_rows: RowMap[OpRows]) -> Bool:
    """Marks the longest node of each op that communicates, until it hands on: its end may be recorded later."""
    op_row, handoffs = op_rows[nodes.span], linked.handoffs
    sources, _ = nodes.at_handoffs(handoffs)
    sources = sources[sources >= 0]
    handed_on = np.full(len(linked.ops) + 1, FOREVER, np.int64)
    np.minimum.at(handed_on, op_row[sources], nodes.end[sources])
    row = np.flatnonzero(_communicate(linked, op_row) & ~nodes.is_wait & (nodes.end <= handed_on[op_row]))
    row = row[np.lexsort((nodes.end[row] - nodes.start[row], op_row[row]))]
    longest = np.zeros(len(op_row), np.bool_)
    longest[row[columns.is_group_start(op_row[row][::-1])[::-1]]] = True
    return longest


def _fold_short_slices(nodes: HostNodes, handoffs: ThreadHandoffs, shortest: int | None, is_kept: Bool) -> HostNodes:
    """Gives the time of slices shorter than `shortest` ns to the next node of the thread, else to the previous one."""
    # the start of a wait and of a hand-off's target must not move, nor the end of a launch, a wait and a source
    fixed_start, fixed_end = nodes.is_wait.copy(), nodes.call >= 0
    sources, targets = nodes.at_handoffs(handoffs)
    fixed_start[targets[targets >= 0]] = True
    fixed_end[sources[sources >= 0]] = True
    short = ~is_kept & ~fixed_start & ~fixed_end & (nodes.end - nodes.start < (SHORT if shortest is None else shortest))
    # where many are short, as without a slow profiler, they tell what lies within which op
    if not short.any() or (shortest is None and short.sum() >= MOST_FOLDED * len(short)):
        return nodes
    count, rows = len(short), np.arange(len(short))
    touches = (nodes.thread[1:] == nodes.thread[:-1]) & (nodes.start[1:] == nodes.end[:-1])
    stretch = np.concatenate(([0], np.cumsum(~touches)))
    following = np.minimum.accumulate(np.where(short, count, rows)[::-1])[::-1]
    preceding = np.maximum.accumulate(np.where(short, -1, rows))

    target = np.where(following < count, following, 0)
    forward = short & (following < count) & ~fixed_start[target] & (stretch[target] == stretch)
    start, end = nodes.start.copy(), nodes.end.copy()
    np.minimum.at(start, target[forward], nodes.start[forward])

    target = np.maximum(preceding, 0)
    backward = short & ~forward & (preceding >= 0) & ~fixed_end[target] & (stretch[target] == stretch)
    np.maximum.at(end, target[backward], nodes.end[backward])

    return nodes._replace(start=start, end=end).take(~(forward | backward))
