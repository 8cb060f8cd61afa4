"""What a rule found: a sentence, what it costs, how it is known, and what to try."""

from typing import NamedTuple

from ....schema.columns import Bool, time_text
from ...analyses import Floats

LEAST_PCT = 2.0
"""A smaller gain is not worth a reader's time."""


class Change(NamedTuple):
    """A changed run: each node's duration multiplied by a factor, then without the dependencies that are `removed`."""

    factor: Floats
    removed: Bool | None = None


class Gain(NamedTuple):
    """By how much sooner the run would end with a change, by a replay of all ranks; `pct` of the run.

    Where the devices limit the run without a profiler, how fast its host is is not known exactly. Then the gain is
    between `least_us` and `us`. `steps` is how many there are in the run, 0 where that is not known.
    """

    us: float
    pct: float
    change: Change | None = None
    least_us: float | None = None
    steps: int = 0

    @property
    def is_worth_it(self) -> bool:
        """Whether it is worth a finding."""
        return self.pct >= LEAST_PCT

    @property
    def text(self) -> str:
        """Says how large it is.

        >>> Gain(800.0, 40.0).text, Gain(800.0, 40.0, least_us=400.0, steps=2).text
        ('up to 40 %, 800.0 µs', '20 to 40 %, 200.0 to 400.0 µs a step')
        """
        least_us = self.least_us or 0.0
        least_pct = self.pct * least_us / self.us if self.us > 0 else 0.0
        times = [time_text(time_us / max(self.steps, 1)) for time_us in (least_us, self.us)]
        a_step = " a step" if self.steps else ""
        if self.least_us is None or least_pct < LEAST_PCT:
            return f"up to {self.pct:.0f} %, {times[1]}{a_step}"
        percentages = f"{least_pct:.0f} to {self.pct:.0f} %" if self.pct - least_pct >= 1 else f"{self.pct:.0f} %"
        return (
            f"{percentages}, {times[0]} to {times[1]}{a_step}"
            if times[0] != times[1]
            else f"{percentages}, {times[1]}{a_step}"
        )


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
