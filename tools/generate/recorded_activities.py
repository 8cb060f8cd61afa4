"""Which activities of a rank's run the device trace of its machine shows."""

import numpy as np

from ...schema.columns import Bool
from .machine import Machine
from .record import RankRun, as_numpy


def is_recorded(run: RankRun, machine: Machine) -> Bool:
    """Returns which activities are shown: all but a lost share, which ended one after the other within the run.

    Their launch calls are shown, as the profiler keeps records of calls and of activities apart.
    """
    by_end = np.argsort(as_numpy(run.activities.end), kind="stable")
    lost = round(machine.lost * len(by_end))
    first = (len(by_end) - lost) * (run.rank + 1) // (run.rank + 2)
    kept = np.ones(len(by_end), bool)
    kept[by_end[first : first + lost]] = False
    return kept
