"""What a rule found: a sentence, what it costs, how it is known, and what to try."""

from typing import NamedTuple

from ....schema.columns import Bool
from ...analyses import Floats

LEAST_PCT = 2.0
"""A smaller gain is not worth a reader's time."""


class Change(NamedTuple):
    """A changed run: each node's duration multiplied by a factor, then without the dependencies that are `removed`."""

    factor: Floats
    removed: Bool | None = None


class Gain(NamedTuple):
    """By how much sooner the run would end with a change, by a replay of all ranks."""

    us: float
    pct: float
    change: Change | None = None

    @property
    def is_worth_it(self) -> bool:
        """Whether it is worth a finding."""
        return self.pct >= LEAST_PCT


class Finding(NamedTuple):
    """A sentence on the run, the evidence, what to try, the table with the details, and in short what brings the gain.

    `gain` is None where no change of durations tells what the run would gain.
    """

    title: str
    gain: Gain | None
    evidence: str
    advice: str
    table: str
    remedy: str = ""
