"""When a rank's recording begins, from which the moments in its tables count."""

from ....schema.columns import ABSENT
from ....schema.linked import LinkedTrace
from ....schema.traces import are_step_marks


def began_ns(linked: LinkedTrace) -> int:
    """Returns when the first op, call or activity started (ns), as the timeline of its graph begins; 0 where there is
    none.

    The mark of a step counts for nothing: it starts just before what is in it.
    """
    ops = linked.ops
    worked = ops.start[(ops.start != ABSENT) & ~are_step_marks(ops.name)]
    starts = [int(start.min()) for start in (worked, linked.calls.start, linked.activities.start) if len(start)]
    return min(starts, default=0)
