"""What a device activity is: computation, communication or memory, one class each, and the streams it can run on."""

import re
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...linker.categories import MEMORY_CATEGORIES
from ...schema.columns import Bool, Int64, Strings
from ...schema.linked import Activities
from .spans import Spans

# recorded as kernels by ROCm
COPY_KERNEL = re.compile(r"^(__amd_rocclr_(copy|fill)Buffer|MEMORY_COPY_)")

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
    """The ActivityClass of each of the n activities: communication by its recorded arguments or library, copies and sets by category."""
    classes = np.full(len(activities), ActivityClass.COMPUTATION, np.uint8)
    copies = _matching(activities.name, lambda name: COPY_KERNEL.match(name) is not None)
    classes[copies | _matching(activities.category, MEMORY_CATEGORIES.__contains__)] = ActivityClass.MEMORY
    classes[activities.communication_row >= 0] = ActivityClass.COMMUNICATION
    return classes


def _matching(texts: Strings, wanted: Callable[[str], bool]) -> Bool:
    # one more than the table has, for the code -1 of rows without a text
    return np.array([wanted(text) for text in texts.table] + [False])[texts.codes]


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
