"""The start of a rank's recording, from which the times in its tables count, and its end."""

from ...schema.columns import ABSENT
from ...schema.linked import LinkedTrace, are_step_marks


def first_start_ns(linked: LinkedTrace) -> int:
    """Returns the start (ns) of the first op, call or activity, where the timeline of its graph begins; 0 without any.

    Step marks do not count, as they start just before the first op in them.
    """
    ops = linked.ops
    worked = ops.start[(ops.start != ABSENT) & ~are_step_marks(ops.name)]
    starts = [int(start.min()) for start in (worked, linked.calls.start, linked.activities.start) if len(start)]
    return min(starts, default=0)


def last_end_ns(linked: LinkedTrace) -> int:
    """Returns the end (ns) of the last op, call or activity, 0 without any. Step marks do not count, see above."""
    ops = linked.ops
    worked = ops.end[(ops.start != ABSENT) & ~are_step_marks(ops.name)]
    ends = [int(end.max()) for end in (worked, linked.calls.end, linked.activities.end) if len(end)]
    return max(ends, default=0)
