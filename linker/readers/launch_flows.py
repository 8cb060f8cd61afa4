"""Counts flows from launch calls to activities that several threads start, as happens only in merged traces."""

from collections.abc import Sequence

import numpy as np

from ...schema.columns import Int64
from ...schema.linked import identities, integers
from .event_rows import Event

LAUNCH = "ac2g"
STARTS = "s"
REPEATED = 0.1
"""Share of flows above which the file holds several processes: one process may use an id again."""


class LaunchFlows:
    """The starts of flows: id, process and thread."""

    def __init__(self) -> None:
        self._starts: list[Int64] = []

    def add(self, events: Sequence[Event]) -> None:
        """Adds the events that start a flow from a launch."""
        starts = [event for event in events if event.ph == STARTS and event.cat == LAUNCH]
        columns = (
            integers([event.id for event in starts], -1),
            identities([event.pid for event in starts]),
            identities([event.tid for event in starts]),
        )
        self._starts.append(np.stack(columns))

    def repeated(self) -> int:
        """Returns how many flows start again on another thread, 0 where they are so few that it may be chance."""
        starts = np.unique(np.concatenate([np.empty((3, 0), np.int64), *self._starts], axis=1), axis=1)[0]
        count = len(starts) - len(np.unique(starts))
        return count if count > REPEATED * len(starts) else 0
