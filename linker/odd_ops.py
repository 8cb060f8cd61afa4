"""Finds ops that cannot be as a device trace has them: wrong times, wrong threads, or other ops that were lost. A
thread begins its ops in the order of their record function ids, and each before the one that called it ends.
"""

from collections.abc import Iterator

import numpy as np

from ..schema.columns import TOLERANCE, Lookup, RowMap, groupby, is_group_start, isin, time_text
from ..schema.linked import NEVER, USER_SCOPE
from ..schema.machine import AGREEING, ANY_MACHINE, SLOWEST
from .communication import TRANSFER
from .contradictions import ADVICE, FOR_DURATIONS, UNIT, Contradiction
from .machine import unit_of_starts
from .match import SMALLEST_AGREEMENT, Match, are_ops
from .overruns import MATTERS
from .readers import DeviceTrace, HostTrace
from .windows import SMALLEST_REST, trace_start

MOST_ORPHANS = 0.2
"""Up to 8 % of the ops of sound traces begin after their caller, as host traces take hooks for callers."""
LOST = "what these ops did and called, and the tensors that they used, are not known"
UPDATE, BACKWARD = "Optimizer.step#", "autograd::engine"
THREAD = "[pytorch|profiler|execution_trace|thread]"
TIMES, ORDER = "durations, and what depends on them, are wrong", "the order of ops, and what ran at once, are wrong"
Sign = tuple[int, str, str, str, str]
"""How many ops are odd, in which file and how, its meaning, and advice."""


def odd_ops(host: HostTrace | None, device: DeviceTrace, match: Match | None) -> tuple[int, list[Contradiction]]:
    """Returns how many ops are odd, and the plainest sign of that, if there is one. O(n log n)."""
    signs = [*signs_in_device_trace(device)]
    if host is not None and match is not None and not match.of_other_steps and match.agreement >= SMALLEST_AGREEMENT:
        signs += _beside(host, device, match)
    return next(((count, [Contradiction(*words)]) for count, *words in signs), (0, []))


def signs_in_device_trace(device: DeviceTrace) -> Iterator[Sign]:
    """Yields the signs that the device trace alone shows, the plainest first."""
    ops, calls, path, count = device.ops, device.calls, device.path, len(device.ops.start)
    if (unit := max(unit_of_starts(ops), unit_of_starts(calls, device.activities))) > 1:
        ran = device.activities if len(device.activities.start) else ops
        lengths = ran.end - ran.start
        coarse = (count or len(lengths)) * int(unit > max(ANY_MACHINE.median, MATTERS * np.median(lengths)))
        what = f"all starts are multiples of {time_text(unit / UNIT)} apart"
        yield coarse, path, what, "digits were lost, and with them gaps and latencies", ADVICE
    op = Lookup(ops.external_id[::-1], np.arange(count)[::-1]).of(calls.external_id)
    within = (calls.external_id > 0) & (RowMap(ops.start)[op] <= calls.start) & (calls.start < RowMap(ops.end)[op])
    elsewhere = int((within & (RowMap(ops.thread)[op] != calls.thread)).sum())
    if elsewhere >= AGREEING and elsewhere > SMALLEST_REST * within.sum():
        what = f"{elsewhere:,} of {within.sum():,} calls are on other threads than the ops with their External id, which made them"
        yield elsewhere, path, what, "calls, and what they launch, do not depend on those ops", ADVICE
    without = int((ops.end <= ops.start).sum())
    if without >= AGREEING and ((ops.start % UNIT).any() or 2 * without > count):
        yield without, path, f"{without:,} of {count:,} ops last 0 ns", TIMES, FOR_DURATIONS
    last_update = ops.start[ops.name.where(lambda name: name.startswith(UPDATE))].max(initial=NEVER)
    forward = int(((ops.sequence >= 0) & (ops.start < last_update)).sum())
    if forward >= AGREEING and not ops.name.where(lambda name: name.startswith(BACKWARD)).any():
        what = f"has no op of a backward pass, though {forward:,} ops prepare one and an optimizer runs after them"
        yield forward, path, what, LOST, "record all threads of the process again"
    rows = np.flatnonzero((ops.rf_id > 0) & ~ops.annotation)
    rows = rows[np.lexsort((ops.rf_id[rows], ops.thread[rows]))]
    thread, start = ops.thread[rows], ops.start[rows]
    back = (start[:-1] - start[1:]) * (thread[1:] == thread[:-1])
    if (most := back.max(initial=0)) > SLOWEST:
        again = start[1:][back.argmax()]
        twice = int(((ops.start >= again) & (ops.start <= again + most)).sum())
        what = f"the host's clock goes back by {time_text(most / UNIT)} to {(again - trace_start(device)) / UNIT:.3f} µs of the trace"
        yield twice, path, f"{what}, where {twice:,} ops begin, by their record function ids", ORDER, ADVICE


def _beside(host: HostTrace, device: DeviceTrace, match: Match) -> Iterator[Sign]:
    ops, path, op = device.ops, device.path, np.full(len(host) + 1, -1)
    op[match.host_row] = match.device_row
    caller = op[Lookup(host.id, np.arange(len(host))).of(host.parent)]
    known = (op[:-1] >= 0) & (caller >= 0) & (ops.thread[op[:-1]] == ops.thread[caller])
    orphans = int((ops.start[op[:-1][known]] > ops.end[caller[known]] + TOLERANCE).sum())
    if orphans >= AGREEING and orphans > MOST_ORPHANS * known.sum():
        what = f"{orphans:,} of {known.sum():,} ops begin after the op ended that called them by {host.path}"
        yield orphans, path, what, TIMES, FOR_DURATIONS
    is_transfer = host.name.where(lambda name: name.startswith(TRANSFER))
    is_run = ~is_transfer[match.host_row]
    # a host trace numbers threads, and has a node for each, which is the parent of its outermost ops
    is_outermost = is_run & isin(host.parent[match.host_row], host.id[host.name.equal(THREAD)])
    for kind, numbers, rows in (("ops", host.tid, is_run), ("outermost ops", host.parent, is_outermost)):
        thread, number = ops.thread[match.device_row[rows]], numbers[match.host_row[rows]]
        groups = groupby(thread, number)
        order = np.lexsort((-groups.count(), thread[groups.first]))
        moved = groups.count()[order[~is_group_start(thread[groups.first[order]])]]
        if moved.sum() >= AGREEING:
            what = f"{moved.sum():,} {kind} are on the threads of others, though they are of {len(moved)} more threads in {host.path}"
            yield int(moved.sum()), path, what, ORDER, ADVICE
    for file, other, position, matched, number, is_op in (
        (path, host.path, host.id, match.host_row, host.tid, are_ops(host.name)),
        (host.path, path, ops.start, match.device_row, ops.thread, np.ones(len(ops.start), np.bool_)),
    ):
        between = is_op & isin(number, number[matched]) & (position > position[matched].min())
        between &= position < position[matched].max()
        lost = int(between.sum() - between[matched].sum())
        if lost >= AGREEING and lost > SMALLEST_REST * between.sum() and not (host.ends_early or device.ends_early):
            yield lost, file, f"lacks {lost:,} of {between.sum():,} ops between others of {other}", LOST, "record again"
    row, is_known = np.flatnonzero(are_ops(host.name)), op[:-1] >= 0
    row = row[np.lexsort((host.id[row], host.tid[row]))]
    is_before_known = np.append(is_known[row[1:]] & (host.tid[row[1:]] == host.tid[row[:-1]]), False)
    unnamed = row[is_before_known & ~(is_known | is_transfer)[row] & (host.scope[row] == USER_SCOPE)]
    if len(unnamed):
        which = f"annotation{'s' * (len(unnamed) > 1)} of {host.path} (the first: {host.name[int(unnamed[0])]!r})"
        yield len(unnamed), path, f"lacks {len(unnamed):,} {which}", "steps, and what these name, are not known", ADVICE
