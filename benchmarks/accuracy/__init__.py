"""How right graphs are on jobs with known truth: what-if answers and dependencies against the simulated job's own."""

from .tables import markdown as markdown
from .what_if import VARIANTS as VARIANTS, answers as answers, linked_of as linked_of, true_outcomes as true_outcomes
