"""Folds short slices into a neighbour on their thread: fewer nodes, with the thread's total unchanged.

A slice from 10.0 to 10.4 µs before one from 10.4 to 20 leaves one from 10.0 to 20.
"""

import numpy as np

from ...schema.columns import Bool, Int64, Keys, asof_backward, asof_forward
from ...schema.linked import ThreadHandoffs
from .host_nodes import HostNodes


def fold_short_slices(nodes: HostNodes, handoffs: ThreadHandoffs, shortest: int, is_kept: Bool) -> HostNodes:
    """Gives the time of slices shorter than `shortest` ns to the next node of the thread, or else to the previous one.

    Nodes that `is_kept` marks are not folded.
    A launch is at its slice's end and never moves. A slice is not folded into a wait, nor across time in which the
    thread waited.
    """
    fixed_start, fixed_end = _fixed_ends(nodes, handoffs)
    short = ~is_kept & ~fixed_start & ~fixed_end & (nodes.end - nodes.start < shortest)
    if not short.any():
        return nodes
    count = len(nodes)
    touches = (nodes.thread[1:] == nodes.thread[:-1]) & (nodes.start[1:] == nodes.end[:-1])
    stretch = np.concatenate(([0], np.cumsum(~touches)))
    following, preceding = _next_true(~short), _last_true(~short)

    target = np.where(following < count, following, 0)
    forward = short & (following < count) & ~fixed_start[target] & (stretch[target] == stretch)
    start = nodes.start.copy()
    np.minimum.at(start, target[forward], nodes.start[forward])

    target = np.maximum(preceding, 0)
    backward = short & ~forward & (preceding >= 0) & ~fixed_end[target] & (stretch[target] == stretch)
    end = nodes.end.copy()
    np.maximum.at(end, target[backward], nodes.end[backward])

    nodes.start, nodes.end = start, end
    return nodes.take(~(forward | backward))


def _fixed_ends(nodes: HostNodes, handoffs: ThreadHandoffs) -> tuple[Bool, Bool]:
    """Returns nodes whose start must not move (waits, targets of hand-offs) and whose end must not (launches, waits,
    sources).
    """
    start, end = nodes.is_wait.copy(), nodes.call >= 0
    targets = asof_forward(Keys(nodes.thread, nodes.start), Keys(handoffs.target_thread, handoffs.target_time))
    sources = asof_backward(Keys(nodes.thread, nodes.end), Keys(handoffs.source_thread, handoffs.source_time))
    start[targets[targets >= 0]] = True
    end[sources[sources >= 0]] = True
    return start, end


def _next_true(mask: Bool) -> Int64:
    """Returns, for each position, the next true position (itself included), len(mask) for none."""
    position = np.where(mask, np.arange(len(mask)), len(mask))
    return np.minimum.accumulate(position[::-1])[::-1]


def _last_true(mask: Bool) -> Int64:
    """Returns, for each position, the last true position up to it, -1 for none."""
    return np.maximum.accumulate(np.where(mask, np.arange(len(mask)), -1))
