"""What a rule found: a sentence, what it costs, how it is known, and what to try."""

from typing import NamedTuple

from ...schema.columns import Bool, Summary, summary_text, time_text
from .table import Floats

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

    def __repr__(self) -> str:
        return f"Gain: {self.text}"

    @property
    def text(self) -> str:
        """Its share of the run, and the time."""
        return f"{self.share}, {self.time}"

    @property
    def is_worth_it(self) -> bool:
        """Whether it is worth a finding."""
        return self.pct >= LEAST_PCT

    @property
    def share(self) -> str:
        """Says what share of the run it is.

        >>> Gain(800.0, 40.0).share, Gain(800.0, 40.0, least_us=400.0).share
        ('up to 40 %', '20 to 40 %')
        """
        least_pct = self._least_pct
        if least_pct < LEAST_PCT:
            return f"up to {self.pct:.0f} %"
        return f"{least_pct:.0f} to {self.pct:.0f} %" if self.pct - least_pct >= 1 else f"{self.pct:.0f} %"

    @property
    def time(self) -> str:
        """Says how long it is, of a step where it is known how many there are.

        >>> Gain(800.0, 40.0).time, Gain(800.0, 40.0, least_us=400.0, steps=2).time
        ('800.0 µs', '200.0 µs to 400.0 µs a step')
        """
        shown = [self.us] if self._least_pct < LEAST_PCT else [self.least_us or 0.0, self.us]
        times = dict.fromkeys(time_text(time_us / max(self.steps, 1)) for time_us in shown)
        return f"{' to '.join(times)}{self._a_step}"

    def in_its_unit(self, us: float) -> str:
        """Says a time of the run as `time` does.

        >>> Gain(800.0, 40.0, steps=2).in_its_unit(900.0)
        '450.0 µs a step'
        """
        return f"{time_text(us / max(self.steps, 1))}{self._a_step}"

    @property
    def _a_step(self) -> str:
        return " a step" if self.steps else ""

    @property
    def _least_pct(self) -> float:
        return self.pct * (self.least_us or 0.0) / self.us if self.us > 0 else 0.0


class Finding(NamedTuple):
    """A sentence on the run, the evidence, what to try, the table with the details, and in short what brings the gain.

    `gain` is None where no change of durations shows what the run would gain.
    """

    title: str
    gain: Gain | None
    evidence: str
    advice: str
    table: str
    remedy: str = ""

    def __repr__(self) -> str:
        lines = {"gain": self.gain.text} if self.gain else {}
        lines |= {"evidence": self.evidence, "advice": self.advice, "table": self.table}
        return summary_text(Summary(f"Finding: {self.title}", lines))
