"""Annotations that mark the steps of a training loop: they enclose everything and own no time."""

import numpy as np

from ..columns import ABSENT, Bool, Categorical, Int64, Ns

STEP_MARK = "ProfilerStep#"
LONGEST_NUMBER = 18
"""Digits of a number that fits 64 bits."""


def are_step_marks(names: Categorical) -> Bool:
    """Returns which names mark a step."""
    return names.where(lambda name: name.startswith(STEP_MARK))


def step_starts(names: Categorical, start: Int64) -> dict[int, int]:
    """Returns the start (ns) of each step by its number, from ops' names and starts; of several marks the first.

    >>> step_starts(Categorical.of(["ProfilerStep#3", "aten::mm", "ProfilerStep#4"]), np.array([10, 11, 20]))
    {3: 10, 4: 20}
    """
    marks = np.flatnonzero(are_step_marks(names) & (start != ABSENT))
    starts: dict[int, int] = {}
    for row in marks[np.argsort(start[marks], kind="stable")].tolist():
        number = names[row].removeprefix(STEP_MARK)
        if number.isdecimal() and number.isascii() and len(number) <= LONGEST_NUMBER:
            starts.setdefault(int(number), int(start[row]))
    return starts


def step_count(names: Categorical, duration_ns: Ns) -> int:
    """Returns how many steps these ops mark. Several threads may mark the same step."""
    return len(np.unique(names.codes[are_step_marks(names) & (duration_ns > 0)]))
