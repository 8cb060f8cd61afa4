"""The time for which each storage lives, as far as the ops that name it show.

A storage lives from the start of the op that first has it among its results to the end of the last op that names it.
Storages that are named without having been made live from the start of the recording.

Ids of storages are reused once a storage is freed: an op that has one among its results, but not among its inputs, has
made a new storage. Ops also list what the ops they called made, so the innermost of nested ops has made it.
"""

from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Int64, Intervals, Series, is_group_start, running_sum
from ...schema.linked import Ops, Tensors

BEFORE = -1


class Lifetimes(NamedTuple):
    """Storages in order of id, then time: their device (HOST for the host), size in bytes, lifetime in ns, and the row
    of the op that made each, BEFORE if it existed before the recording.
    """

    storage: Int64
    device: Int64
    size: Int64
    begin: Int64
    until: Int64
    op_row: Int64

    def where(self, chosen: Bool | Int64) -> "Lifetimes":
        """Returns the chosen storages."""
        return Lifetimes(*(column[chosen] for column in self))


def lifetimes(ops: Ops) -> Lifetimes:
    """Returns the storages that timed ops name. O(n log n) in the names."""
    is_timed = (ops.start != ABSENT) & ops.recorded_by_host
    tensors = ops.arguments.tensors
    tensors = tensors.where(is_timed[tensors.row] & tensors.in_memory)
    # one for each op and storage among its inputs or results, the one that reaches furthest
    tensors = tensors.where(np.lexsort((-tensors.high, tensors.storage, tensors.row, tensors.is_output)))
    named = tensors.where(is_group_start(tensors.is_output, tensors.row, tensors.storage))
    start, end = ops.start[named.row], ops.end[named.row]
    makes = _makes(named, start, end)
    # inputs are there when an op starts, results that it did not make when it ends
    time = np.where(named.is_output & ~makes, end, start)
    order = np.lexsort((~makes, time, named.storage))
    named, makes, start, end = named.where(order), makes[order], start[order], end[order]
    first = np.flatnonzero(is_group_start(named.storage) | makes)
    if not len(first):
        return Lifetimes(*np.empty((6, 0), np.int64))
    made, storage = makes[first], named.storage[first]
    begin = np.where(made, start[first], ops.start[is_timed].min())
    until = np.maximum.reduceat(end, first)
    following = np.append(storage[1:] == storage[:-1], False)
    until[following] = np.minimum(until, np.append(begin[1:], 0))[following]
    return Lifetimes(
        storage=storage,
        device=named.device[first],
        size=np.maximum.reduceat(named.high, first),
        begin=begin,
        until=np.maximum(until, begin),
        op_row=np.where(made, named.row[first], BEFORE),
    )


def _makes(named: Tensors, start: Int64, end: Int64) -> Bool:
    """Returns which rows make a storage: results that are no inputs of the op and no results of a called op."""
    order = np.lexsort((named.is_output, named.storage, named.row))
    is_given = np.zeros(len(order), np.bool_)
    is_given[order] = ~is_group_start(named.row[order], named.storage[order])
    makes: Bool = named.is_output & ~is_given
    rows = np.flatnonzero(makes)
    rows = rows[np.lexsort((-start[rows], end[rows], named.storage[rows]))]
    # starts and storages as small numbers, whose combinations fit 64 bits
    number = np.unique(start[rows], return_inverse=True)[1].reshape(-1)
    group = np.cumsum(is_group_start(named.storage[rows])) * (len(rows) + 1)
    latest = np.maximum.accumulate(number + group)
    encloses_another = np.append(False, latest[:-1] >= (number + group)[1:])[: len(rows)] & ~is_group_start(
        named.storage[rows]
    )
    makes[rows[encloses_another]] = False
    return makes


def live_bytes(storages: Lifetimes) -> Series:
    """Returns how many bytes of these storages live at each time."""
    time, value = running_sum(Intervals(storages.begin, storages.until), storages.size.astype(np.float64))
    return Series(time, value.astype(np.int64))


def highest_within(curve: Series, start: Int64, end: Int64) -> Int64:
    """Returns the largest value from each start up to, but not including, each end; the value at the start for a span
    of no length.

    O(n log n), however many spans overlap: maxima of 1, 2, 4, … values in a row, two of which make up each span.
    """
    if not len(curve.time):
        return np.zeros(len(start), np.int64)
    highest = np.concatenate(([0], curve.value))
    first = np.searchsorted(curve.time, start, side="right")
    count = np.maximum(np.searchsorted(curve.time, end, side="left") - first, 0) + 1
    largest = np.zeros(len(start), np.int64)
    width, longest = 1, int(count.max(initial=0))
    while width <= longest:
        rows = np.flatnonzero((count >= width) & (count < 2 * width))
        largest[rows] = np.maximum(highest[first[rows]], highest[first[rows] + count[rows] - width])
        highest = np.maximum(highest[:-width], highest[width:])
        width *= 2
    return largest
