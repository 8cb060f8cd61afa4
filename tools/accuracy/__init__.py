"""How right graphs are on jobs with known truth: what-if answers and dependencies against the simulated job's own."""

from .tables import markdown
from .what_if import VARIANTS, answers, linked_of, true_outcomes

__all__ = [
    "VARIANTS",
    "answers",
    "linked_of",
    "markdown",
    "true_outcomes",
]
