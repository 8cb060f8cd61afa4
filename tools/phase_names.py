"""The phases of training: what PyTorch records, what users call their annotations, and when the host is in which."""

import re
from enum import Enum
from typing import NamedTuple

import numpy as np

from ..schema.columns import Bool, Categorical, Int64, Rows
from ..schema.linked import AUTOGRAD

LOADER = re.compile(
    r"DataLoader|data[ _]?load|load(ing)?[ _]?(the |a )?(batch|data|sample)|(next|get|fetch)[ _]?(batch|sample)", re.I
)
"""How PyTorch and users name what gets the next batch."""
OPTIMIZER = re.compile(r"^Optimizer\.|(^|[^a-z])optim", re.I)
FORWARD = re.compile(r"(^|[^a-z])(forward|fwd)([^a-z]|$)", re.I)
BACKWARD = re.compile(r"(^|[^a-z])(backward|bwd)([^a-z]|$)", re.I)


class Phase(Enum):
    """A phase of the host, in the order in which time that belongs to several counts."""

    DATA_LOADING = "data_loading"
    OPTIMIZER = "optimizer"
    FORWARD = "forward"
    BACKWARD = "backward"


def phase_of(name: str) -> Phase | None:
    """Returns the phase of the outermost op, call or annotation of this name, None where it tells none.

    >>> phase_of("autograd::engine::evaluate_function: MmBackward0"), phase_of("aten::mm")
    (<Phase.BACKWARD: 'backward'>, None)
    """
    if name.startswith(AUTOGRAD):
        return Phase.BACKWARD
    patterns = zip(Phase, (LOADER, OPTIMIZER, FORWARD, BACKWARD), strict=True)
    return next((phase for phase, pattern in patterns if pattern.search(name)), None)


class HostOps(NamedTuple):
    """Ops of all threads in ns, of which the rows `timed` have times; which are of the main thread, which annotate for
    users or mark steps, and which lie in an op that does not.
    """

    name: Categorical
    start: Int64
    end: Int64
    timed: Rows
    on_main: Bool
    annotates: Bool
    inside: Bool

    def during(self, chosen: Bool) -> Int64:
        """Returns the starts and ends of some."""
        return np.stack((self.start[chosen], self.end[chosen]))

    def named(self, pattern: "re.Pattern[str]") -> Bool:
        """Returns which have such a name."""
        return self.name.where(lambda name: pattern.search(name) is not None)


def phase_intervals(ops: HostOps) -> dict[Phase, Int64]:
    """Returns by phase the starts and the ends (ns) of what belongs to it, in the order of Phase."""
    is_autograd = ops.name.where(lambda name: name.startswith(AUTOGRAD))
    outermost = ops.on_main & ~ops.inside & ~ops.annotates & ~is_autograd
    # backward passes are from the first to the last autograd op without an op of the main thread between
    rows = ops.timed[is_autograd[ops.timed]]
    rows = rows[np.argsort(ops.start[rows], kind="stable")]
    until, others = np.maximum.accumulate(ops.end[rows]), np.sort(ops.start[outermost])
    apart = np.searchsorted(others, ops.start[rows[1:]]) > np.searchsorted(others, until[:-1])
    first = np.flatnonzero(np.append(True, apart)[: len(rows)])
    passes = np.stack((ops.start[rows[first]], until[np.append(first[1:], len(rows))[: len(first)] - 1]))
    marked = ops.on_main & ops.annotates
    return {
        Phase.DATA_LOADING: ops.during(ops.on_main & ops.named(LOADER)),
        Phase.OPTIMIZER: ops.during(ops.on_main & ops.named(OPTIMIZER)),
        Phase.FORWARD: ops.during(outermost | (marked & ops.named(FORWARD))),
        Phase.BACKWARD: np.concatenate((passes, ops.during(marked & ops.named(BACKWARD))), axis=1),
    }
