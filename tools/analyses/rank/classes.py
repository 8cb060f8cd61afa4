"""What a device activity is: computation, communication or memory, one class each, and the streams it can run on."""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from ....schema.linked import Activities
from ...replay import moves_memory
from .intervals import Intervals

Codes = npt.NDArray[np.uint8]


class ActivityClass(IntEnum):
    """What an activity does: computes, communicates, or copies and sets memory."""

    COMPUTATION = 0
    COMMUNICATION = 1
    MEMORY = 2

    @property
    def label(self) -> str:
        """In words."""
        return self.name.lower()


LABELS = tuple(one.label for one in ActivityClass)


def activity_classes(activities: Activities) -> Codes:
    """Returns the ActivityClass of each of the n activities: communication by its recorded arguments or library, memory
    by category or name.
    """
    classes = np.full(len(activities), ActivityClass.COMPUTATION, np.uint8)
    classes[moves_memory(activities.name, activities.category)] = ActivityClass.MEMORY
    classes[activities.communication_row >= 0] = ActivityClass.COMMUNICATION
    return classes


def intervals_of(activities: Activities) -> Intervals:
    """Returns when each activity ran."""
    return Intervals(activities.start, activities.end)
