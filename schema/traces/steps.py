"""Annotations that mark the steps of a training loop: they enclose everything and own no time."""

from ..columns import Bool, Categorical

STEP_MARK = "ProfilerStep#"


def are_step_marks(names: Categorical) -> Bool:
    """Returns which names mark a step."""
    return names.where(lambda name: name.startswith(STEP_MARK))
