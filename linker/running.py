"""Adds the annotations that ran when recording began, which profilers do not record."""

from dataclasses import replace

import numpy as np

from ..schema import columns
from ..schema.linked import select_rows
from .readers import RecordedOps

SEEN_AGAIN = 2
"""So often at least must the same annotation have run as long before what a thread did first is done again."""


def with_running_annotations(ops: RecordedOps, began: int) -> RecordedOps:
    """Returns the ops and behind them, from `began` (ns) on, the annotation that each thread was in when recording
    began: the outermost one that ran as long before every later op of the name of the thread's first one.
    """
    rows, ends = list[int](), list[int]()
    for of_thread in columns.rows_by_number(np.argsort(ops.start, kind="stable"), ops.thread).values():
        start, end, name = ops.start[of_thread], ops.end[of_thread], ops.name.codes[of_thread]
        at = start[1:][name[1:] == name[0]] - (start[0] - began)
        at = at[at >= start[0]]
        outermost = np.flatnonzero(np.maximum.accumulate(np.append(began, end[:-1])) <= start)
        ran = outermost[np.searchsorted(start[outermost], at, side="right") - 1]
        same = (name[ran] == name[ran[:1]]) & (end[ran] > at) & ops.annotation[of_thread[ran]]
        if len(at) >= SEEN_AGAIN and same.all():
            rows.append(int(of_thread[ran[0]]))
            ends.append(began + int(np.median(end[ran] - at)))
    if not rows:
        return ops
    added, count = select_rows(ops, np.append(np.arange(len(ops.start)), rows)), len(ops.start)
    for column, values in ((added.start, began), (added.end, ends), (added.rf_id, 0), (added.external_id, 0)):
        column[count:] = values
    event_index = np.arange(len(rows)) + int(ops.event_index.max()) + 1
    return replace(added, event_index=np.append(ops.event_index, event_index))
