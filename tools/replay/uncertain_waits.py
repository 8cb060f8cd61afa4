"""Which waits of a workload are known by the order of calls or by timing alone, and what the run is without them."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...schema.columns import Bool, Rows
from ...schema.graph import DependencyKind
from .node_class import NodeClass
from .workload import Workload

WAIT = DependencyKind.EVENT_WAIT | DependencyKind.HOST_SYNC
BY_ORDER, BY_TIMING = DependencyKind.CALL_ORDER, DependencyKind.INFERRED
CLEAR_PCT = 1.0
"""A range that is narrower than this, in % of its upper end, is one figure to a reader."""


class MakespanRange(NamedTuple):
    """Between what the makespan of a changed run lies (ns), with and without the uncertain waits.

    `waits` nodes wait for something that only the evidence in `known_by` tells, "" without such waits.
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
        """Why there is a range, for people: `14 waits are known by order alone`."""
        return f"{self.waits:,} {'waits are' if self.waits != 1 else 'wait is'} known by {self.known_by} alone"


def uncertain(work: Workload) -> Bool:
    """Returns which dependencies are waits for an event or of the host that no record and no other rule confirms."""
    is_unconfirmed = (work.kind & (BY_ORDER | BY_TIMING) != 0) & (work.kind & WAIT != 0)
    return np.asarray(is_unconfirmed & (work.kind & ~int(WAIT | BY_ORDER | BY_TIMING) == 0))


def waits_of(work: Workload, is_uncertain: Bool) -> tuple[int, str]:
    """Returns how many nodes wait by uncertain dependencies, and the evidence of these."""
    kind = work.kind[is_uncertain]
    bits = ((BY_ORDER, "order"), (BY_TIMING, "timing"))
    return len(np.unique(work.target[is_uncertain])), " or ".join(word for bit, word in bits if (kind & bit != 0).any())


def without(work: Workload, is_uncertain: Bool) -> Workload:
    """Returns the workload without uncertain dependencies, and without the delays that count from them. O(e log e)."""
    kept = ~(is_uncertain | _by_delay(work, is_uncertain))
    columns = {name: getattr(work, name)[kept] for name in ("source", "target", "kind", "lag_ns")}
    return replace(work, **columns)


def _by_delay(work: Workload, is_uncertain: Bool) -> Bool:
    """Returns the dependencies that join the two ends of an uncertain one by way of a delay."""
    source_of_delay = np.full(len(work), -1)
    into = work.node_class[work.target] == NodeClass.DELAY
    source_of_delay[work.target[into]] = work.source[into]
    out_of = np.flatnonzero(work.node_class[work.source] == NodeClass.DELAY)
    bypassed: Rows = source_of_delay[work.source[out_of]]
    pair = work.target * (len(work) + 1) + work.source
    delayed = out_of[np.isin(work.target[out_of] * (len(work) + 1) + bypassed, pair[is_uncertain])]
    chosen = np.zeros(len(work.kind), np.bool_)
    chosen[delayed] = True
    return chosen
