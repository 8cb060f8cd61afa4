"""What a device activity is: computation, communication or memory, one class each, and the streams it can run on."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...schema.columns import Int64
from ...schema.linked import Activities
from ..node_class import moves_memory
from .spans import Spans

Codes = npt.NDArray[np.uint8]


class ActivityClass(IntEnum):
    COMPUTATION = 0
    COMMUNICATION = 1
    MEMORY = 2

    @property
    def label(self) -> str:
        return self.name.lower()


LABELS = tuple(one.label for one in ActivityClass)


def activity_classes(activities: Activities) -> Codes:
    """The ActivityClass of each of the n activities: communication by its recorded arguments or library, memory by category or name."""
    classes = np.full(len(activities), ActivityClass.COMPUTATION, np.uint8)
    classes[moves_memory(activities.name, activities.category)] = ActivityClass.MEMORY
    classes[activities.communication_row >= 0] = ActivityClass.COMMUNICATION
    return classes


def spans_of(activities: Activities) -> Spans:
    """When each activity ran."""
    return Spans(activities.start, activities.end)


class Streams(NamedTuple):
    """The streams of a process: `lane` is the place of each activity's stream in `device` and `stream`."""

    device: Int64
    stream: Int64
    lane: Int64


def streams_of(activities: Activities) -> Streams:
    """The (device, stream) pairs in order, and which of them each activity ran on."""
    pairs = np.stack((activities.device, activities.stream), axis=1)
    distinct, lane = np.unique(pairs, axis=0, return_inverse=True)
    return Streams(distinct[:, 0], distinct[:, 1], lane.reshape(-1).astype(np.int64))
