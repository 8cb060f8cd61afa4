"""What a graph is lowered with: what the job and the user give, and the changes that are counted on the way."""

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from ...schema.comm_groups import LARGEST_JOB, RankList
from ...schema.device_peaks import peak_of
from ...schema.graph import Change, ExecutionGraph, TargetChanges


class Roofline(NamedTuple):
    """The peaks of a device per second: 10**12 floating-point operations, and 10**9 bytes of memory traffic."""

    tflops: float
    memory_gb_s: float


def roofline_of(text: str) -> Roofline:
    """Returns the peaks for DEVICE:FORMAT, from the table of devices, or TFLOPS:GB/S. Raises ValueError for other text.

    >>> roofline_of("V100:fp32"), roofline_of("312:2039")
    (Roofline(tflops=15.7, memory_gb_s=900), Roofline(tflops=312.0, memory_gb_s=2039.0))
    """
    device, _, number_format = text.rpartition(":")
    numbers = [float(part) if re.fullmatch(r"\d+(\.\d+)?", part) else 0.0 for part in (device, number_format)]
    if all(numbers):
        return Roofline(*numbers)
    peak = peak_of(device)
    if peak is None:
        raise ValueError(f"{text!r} is not DEVICE:FORMAT of a device whose peaks are known; TFLOPS:GB/S says them")
    formats = {name: tflops for name, tflops in peak._asdict().items() if tflops and name != "memory"}
    if number_format not in formats:
        raise ValueError(f"{text!r}: the peaks of {device} that are known are of {', '.join(formats)}")
    return Roofline(formats[number_format], peak.memory)


class Lowering(NamedTuple):
    """The number of each rank list of the job, if they are known, the peaks of roofline mode, if that is to run, how
    much later than the first rank this one began, and the changes so far.
    """

    groups: Mapping[RankList, int] | None
    roofline: Roofline | None
    start_offset_ns: int
    counts: defaultdict[tuple[Change, str], float]
    notes: list[str]

    def add(self, change: Change, number: float, reason: str = "") -> None:
        """Adds to what is counted of a change, by its reason where it has several."""
        self.counts[change, reason] += number

    def note(self, applies: object, sentence: str) -> None:
        """Adds a sentence about what the user should know, if it applies."""
        if applies:
            self.notes.append(sentence)

    @property
    def changes(self) -> TargetChanges:
        """What was counted, without zeros, and the notes."""
        in_order = ((change, reason) for change in Change for of, reason in self.counts if of is change)
        named = {key: f"{key[0]}: {key[1]}" if key[1] else key[0].value for key in in_order}
        return TargetChanges({name: self.counts[key] for key, name in named.items() if self.counts[key]}, self.notes)


def all_ranks(graph: ExecutionGraph) -> RankList | None:
    """Returns the ranks of the job by the metadata, None if their number is not known or too large."""
    size = graph.number("world_size", -1)
    return (tuple(range(size)) if size <= LARGEST_JOB else None) or None
