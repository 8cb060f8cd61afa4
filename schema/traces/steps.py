"""Annotations that mark the steps of a training loop: they enclose everything and own no time."""

import numpy as np

from ..columns import Bool, Categorical, Ns

STEP_MARK = "ProfilerStep#"


def are_step_marks(names: Categorical) -> Bool:
    """Returns which names mark a step."""
    return names.where(lambda name: name.startswith(STEP_MARK))


def step_count(names: Categorical, duration_ns: Ns) -> int:
    """Returns how many steps these ops mark; what is left of a neighbour of a part of a trace does not count.

    Several threads may mark the same step.
    """
    is_mark = are_step_marks(names)
    is_whole = is_mark & (2 * duration_ns > duration_ns[is_mark].max(initial=0))
    return len(np.unique(names.codes[is_whole]))
