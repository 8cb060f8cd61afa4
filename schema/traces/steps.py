"""Annotations that mark the steps of a training loop: they enclose everything and own no time."""

import numpy as np

from ..columns import Bool, Categorical, Ns

STEP_MARK = "ProfilerStep#"


def are_step_marks(names: Categorical) -> Bool:
    """Returns which names mark a step."""
    return names.where(lambda name: name.startswith(STEP_MARK))


def step_count(names: Categorical, duration_ns: Ns) -> int:
    """Returns how many steps these ops mark. Several threads may mark the same step."""
    return len(np.unique(names.codes[are_step_marks(names) & (duration_ns > 0)]))
