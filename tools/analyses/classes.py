"""Classes of device activities: computation, communication or memory; and how long some of them cover spans."""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from ...schema.columns import Bool, Int64, Intervals, covered_within, rows_by_number, rows_of_each
from ...schema.linked import Activities
from ..replay import moves_memory

Codes = npt.NDArray[np.uint8]


class ActivityClass(IntEnum):
    """What an activity does: computes, communicates, or copies and sets memory."""

    COMPUTATION = 0
    COMMUNICATION = 1
    MEMORY = 2

    @property
    def label(self) -> str:
        """The name in lower case."""
        return self.name.lower()


LABELS = tuple(activity_class.label for activity_class in ActivityClass)


def activity_classes(activities: Activities) -> Codes:
    """Returns the ActivityClass of each activity: communication by recorded arguments or library, memory by category or
    name.
    """
    classes = np.full(len(activities), ActivityClass.COMPUTATION, np.uint8)
    classes[moves_memory(activities.name, activities.category)] = ActivityClass.MEMORY
    classes[activities.communication_row >= 0] = ActivityClass.COMMUNICATION
    return classes


def intervals_of(activities: Activities) -> Intervals:
    """Returns when each activity ran."""
    return Intervals(activities.start, activities.end)


def covered_time(activities: Activities, chosen: Bool, spans: Intervals, device: Int64 | None) -> Int64:
    """Returns for each span how long (ns) any of the chosen activities of its device ran; None: of any device."""
    covered = np.zeros(len(spans.start), np.int64)
    rows = np.flatnonzero(chosen)
    running = rows_by_number(rows, activities.device) if device is not None else {}
    spans_by_device = rows_of_each(device) if device is not None else {None: np.arange(len(covered))}
    for number, span_rows in spans_by_device.items():
        ran = intervals_of(activities).take(rows if number is None else running.get(number, rows[:0]))
        covered[span_rows] = covered_within(spans.take(span_rows), ran)
    return covered
