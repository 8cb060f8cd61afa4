"""The machine that a job runs on: what launching costs, how clocks read, what goes wrong; and factors of changed jobs.

A job's program is drawn with a machine's figures and its traces are written with them, so a changed run of the job
meets the same machine. `draw_machine` gives every seed one of its own; DEFAULT is undisturbed, with perfect clocks.
"""

import math
import re
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from ...schema.columns import Int64
from ..replay import Changes, NodeClass, given_changes

Times = TypeVar("Times", int, Int64)
BASE_NS = 1_767_225_600_000_000_000
"""The epoch that the device trace's times are relative to: 2026-01-01."""
FIRST_NS = 2_592_000_000_000_000
"""When the run starts after that epoch."""
CLOCKS = 8
"""So many devices have clocks of their own."""


@dataclass(frozen=True, slots=True)
class Clock:
    """What a device's clock reads: all times of activities are its."""

    offset_ns: int = 0
    drift_ppb: int = 0

    def read(self, ns: Times) -> Times:
        """Returns what the clock reads at a time (ns from the start of the run), in ns on the host's clock."""
        return ns + self.offset_ns + ns * self.drift_ppb // 1_000_000_000


@dataclass(frozen=True, slots=True)
class Stalls:
    """Of a thousand pieces of host work so many take longer, as when a thread loses its core."""

    per_thousand: float = 0.0
    shortest_us: float = 50.0
    longest_us: float = 2000.0


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine's figures: `latency_ns` from submission to arrival, `gap_ns` between activities, on average.

    Waiting calls take `return_factor` times the usual to return. Rank r has the r-th of the `clocks`, in turns. A
    device runs `at_once` activities, None for any number. The share `lost` of the activities is not in its trace.
    """

    name: str = "default machine"
    latency_ns: int = 1200
    latency_spread: float = 0.2
    gap_ns: int = 1150
    gap_spread: float = 0.15
    return_factor: float = 1.0
    host_spread: float = 0.2
    stalls: Stalls = Stalls()
    clocks: tuple[Clock, ...] = (Clock(),)
    whole_us: bool = False
    at_once: int | None = None
    lost: float = 0.0

    @property
    def first_ns(self) -> int:
        """What traces give as the start of the run."""
        return BASE_NS + FIRST_NS if self.whole_us else FIRST_NS

    def cut(self, ns: Times) -> Times:
        """Returns a time as it is written; where that is in whole µs, starts and lengths are cut, each by itself."""
        return ns - ns % 1000 if self.whole_us else ns

    def clock(self, rank: int) -> Clock:
        """Returns the clock of a rank's device."""
        return self.clocks[rank % len(self.clocks)]


DEFAULT = Machine()


def draw_machine(seed: int, *, lost_records: bool = False) -> Machine:
    """Returns a machine drawn from the seed, as they are found in practice; records are lost only if asked for."""
    random = Random(f"machine {seed}")
    return Machine(
        name=f"machine {seed}", latency_ns=round(1000 * log_uniform(random, 1.0, 25.0)),
        gap_ns=round(20_000 * random.random() ** 2), return_factor=log_uniform(random, 0.5, 4.0),
        host_spread=random.uniform(0.1, 0.4), stalls=Stalls(random.choice((0.0, 1.0, 2.0, 4.0))),
        clocks=tuple(Clock(random.randint(-5000, 5000), random.randint(-200_000, 200_000)) for _ in range(CLOCKS)),
        whole_us=random.random() < 0.5, at_once=random.choice((2, 3, 4)) if random.random() < 0.25 else None,
        lost=random.uniform(0.01, 0.05) if lost_records else 0.0,
    )  # fmt: skip


def log_uniform(random: Random, low: float, high: float) -> float:
    """Draws a number of which any order of magnitude is as likely as any other."""
    return math.exp(random.uniform(math.log(low), math.log(high)))


class Factors:
    """Factors by `class:NAME` or regular expression, which multiply; `unused` applied to nothing so far.

    >>> factors = Factors({"class:computation": 2.0, "gemm": 0.5})
    >>> factors.of("sgemm_128", NodeClass.COMPUTATION), factors.of("fill", NodeClass.COMPUTATION)
    (1.0, 2.0)
    """

    def __init__(self, scale: Changes) -> None:
        self._scales = given_changes(scale, "simulate(job, scale)")
        for scaled in self._scales:
            if not isinstance(scaled.target, NodeClass | re.Pattern) or scaled.rank is not None:
                raise ValueError(f"{scaled.spec!r}: a simulated job is changed by name or class alone")
            if scaled.each_ns is not None:
                raise ValueError(f"{scaled.spec!r}: a simulated job is changed by factors alone")
        self.unused = {scaled.spec for scaled in self._scales}
        self._factor_of: dict[tuple[str, NodeClass], float] = {}

    def of(self, name: str, kind: NodeClass) -> float:
        """Returns the product of all factors that apply to a name of a class, 1 if none does."""
        if (name, kind) not in self._factor_of:
            self._factor_of[name, kind] = 1.0
            for scaled in self._scales:
                target = scaled.target
                if target.search(name) if isinstance(target, re.Pattern) else target is kind:
                    self._factor_of[name, kind] *= scaled.factor
                    self.unused.discard(scaled.spec)
        return self._factor_of[name, kind]
