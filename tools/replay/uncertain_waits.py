"""Which waits of a workload are known by the order of calls or by timing alone, and what the run is without them.

A wait that held its work up in the measured run is certain: the order of calls, or the other steps, and the times agree
on it. Of a wait that held nothing up, only its evidence tells that it exists. A changed run may show that it does not.
"""

from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool
from ...schema.graph import DependencyKind
from ...schema.linked import NEVER
from .workload import Workload

WAIT = DependencyKind.EVENT_WAIT | DependencyKind.HOST_SYNC
EVIDENCE = {"order": "the order of calls", "timing": "timing"}
BY_ORDER, BY_TIMING = DependencyKind.CALL_ORDER, DependencyKind.INFERRED
CLEAR_PCT = 1.0
"""A range that is narrower than this, in % of its upper end, is one figure to a reader."""


class MakespanRange(NamedTuple):
    """The shortest and the longest makespan of a changed run (ns), with and without the uncertain waits.

    `waits` nodes wait for something that held nothing up when measured, and that only the evidence in `known_by` tells,
    "" without such waits.

    >>> import execgraph as eg
    >>> answer = eg.link("tests/data/training", rank=0).to_graph().what_if({"class:computation": 0.5})
    >>> answer.after.range.waits, answer.after.range.is_clear
    (0, True)
    """

    low_ns: int
    high_ns: int
    waits: int
    known_by: str

    @property
    def is_clear(self) -> bool:
        """Whether uncertain waits hardly change the makespan."""
        return 100 * (self.high_ns - self.low_ns) <= CLEAR_PCT * self.high_ns

    @property
    def reason(self) -> str:
        """Why there is a range: `14 waits are known only from the order of calls and delayed nothing when measured`."""
        evidence = " or ".join(EVIDENCE[word] for word in self.known_by.split(" or "))
        waits = f"{self.waits:,} {'waits are' if self.waits != 1 else 'wait is'}"
        return f"{waits} known only from {evidence} and delayed nothing when measured"


def uncertain(work: Workload) -> Bool:
    """Returns which dependencies are waits for an event or of the host that no record, no other rule and no time of the
    measured run confirms.
    """
    is_unconfirmed = (work.kind & (BY_ORDER | BY_TIMING) != 0) & (work.kind & WAIT != 0)
    is_unconfirmed &= work.kind & ~int(WAIT | BY_ORDER | BY_TIMING) == 0
    return np.asarray(is_unconfirmed & ~_held_up(work, is_unconfirmed))


def _held_up(work: Workload, is_unconfirmed: Bool) -> Bool:
    """Returns the dependencies of these that alone held their target up in the measured run: all others were met
    before.
    """
    met = work.measured_end_ns[work.source] + work.lag_ns
    last, last_certain = np.full((2, len(work)), NEVER, np.int64)
    np.maximum.at(last, work.target, met)
    np.maximum.at(last_certain, work.target[~is_unconfirmed], met[~is_unconfirmed])
    return np.asarray(is_unconfirmed & (met == last[work.target]) & (met > last_certain[work.target]))


def waits_of(work: Workload, is_uncertain: Bool) -> tuple[int, str]:
    """Returns how many nodes wait by uncertain dependencies, and the evidence of these."""
    kind = work.kind[is_uncertain]
    bits = ((BY_ORDER, "order"), (BY_TIMING, "timing"))
    return len(np.unique(work.target[is_uncertain])), " or ".join(word for bit, word in bits if (kind & bit != 0).any())
