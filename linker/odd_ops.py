"""Finds ops that cannot be as a device trace has them: wrong times, wrong threads, or other ops that were lost.

A thread begins its ops in the order of their record function ids. By the host trace an op begins before the one that
called it ends, a thread has one number, and hardly any op between two that both traces hold is in one of them alone.
"""

from collections.abc import Iterator

import numpy as np

from ..schema.columns import TOLERANCE, Lookup, groupby, is_group_start, time_text
from ..schema.machine import AGREEING, SLOWEST
from .communication import TRANSFER
from .contradictions import ADVICE, FOR_DURATIONS, UNIT, Contradiction
from .match import SMALLEST_AGREEMENT, Match, are_ops
from .readers import DeviceTrace, HostTrace
from .windows import SMALLEST_REST, trace_start

MANY = 100
"""Fewer ops may all begin at whole ms by chance."""
MOST_ORPHANS = 0.2
"""Up to 8 % of the ops of sound traces begin after their caller, as host traces take hooks for callers."""
LOST = "what these ops did and called, and the tensors that they used, are not known"
TIMES, ORDER = "durations, and what depends on them, are wrong", "the order of ops, and what ran at once, are wrong"
Sign = tuple[int, str, str, str, str]
"""How many ops are odd, in which file and how, its meaning, and advice."""


def odd_ops(host: HostTrace | None, device: DeviceTrace, match: Match | None) -> tuple[int, list[Contradiction]]:
    """Returns how many ops are odd, and the plainest sign of that, if there is one. O(n log n)."""
    signs = [*_by_times(device)]
    if host is not None and match is not None and not match.of_other_steps and match.agreement >= SMALLEST_AGREEMENT:
        signs += _beside(host, device, match)
    return next(((count, [Contradiction(*words)]) for count, *words in signs), (0, []))


def _by_times(device: DeviceTrace) -> Iterator[Sign]:
    ops, path, count = device.ops, device.path, len(device.ops.start)
    if count >= MANY and not (ops.start % UNIT**2).any():
        yield count, path, f"all {count:,} ops begin at whole ms", f"shorter times are lost; {ORDER}", ADVICE
    without = int((ops.end <= ops.start).sum())
    if without >= AGREEING and ((ops.start % UNIT).any() or 2 * without > count):
        yield without, path, f"{without:,} of {count:,} ops last 0 ns", TIMES, FOR_DURATIONS
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
    is_run = ~host.name.where(lambda name: name.startswith(TRANSFER))[match.host_row]
    thread, tid = ops.thread[match.device_row[is_run]], host.tid[match.host_row[is_run]]
    groups = groupby(thread, tid)
    order = np.lexsort((-groups.count(), thread[groups.first]))
    moved = groups.count()[order[~is_group_start(thread[groups.first[order]])]]
    if moved.sum() >= AGREEING:
        what = f"{moved.sum():,} ops are on the threads of others, though they are of {len(moved)} more threads in {host.path}"
        yield int(moved.sum()), path, what, ORDER, ADVICE
    for file, other, position, matched, number, is_op in (
        (path, host.path, host.id, match.host_row, host.tid, are_ops(host.name)),
        (host.path, path, ops.start, match.device_row, ops.thread, np.ones(len(ops.start), np.bool_)),
    ):
        between = is_op & np.isin(number, number[matched]) & (position > position[matched].min())
        between &= position < position[matched].max()
        lost = int(between.sum() - between[matched].sum())
        if lost >= AGREEING and lost > SMALLEST_REST * between.sum() and not (host.ends_early or device.ends_early):
            yield lost, file, f"lacks {lost:,} of {between.sum():,} ops between others of {other}", LOST, "record again"
