"""Keeps rows whose role only the rest of the file tells: those without a category, and begins and ends apart."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from ...schema.columns import ABSENT
from ...schema.linked import exact_microseconds, exact_times, identity, kineto
from ...schema.reasons import Counts, Reason
from .device_rows import Role, role_of

BEGIN, BEGIN_AND_END = "B", ("B", "E")
NO_WORK = (Role.PYTHON, Role.IGNORED, Role.UNKNOWN)
OF_PROCESS = (
    (re.compile(r"^(Ascend Hardware|GPU ?\d+$)"), Role.ACTIVITY),
    (re.compile(r"^CANN"), Role.CALL),
    (re.compile(r"^Overlap Analysis"), Role.IGNORED),
)
"""The role of rows without a category by the name of their process. What Overlap Analysis holds is derived."""
OF_ACTIVITY = (
    (re.compile(r"Copy\w*|MEMCPY\w*|SDMA\w*|PCIE_DMA\w*"), "gpu_memcpy"),
    (re.compile(r"FillBuffer|MEMSET\w*"), "gpu_memset"),
    (re.compile(r"(\w+_)?(EVENT|NOTIFY|CAPTURE|IPC)_(WAIT|RECORD|RESET)\w*|\w*BARRIER\w*|MEM_(WAIT|WRITE)_VALUE|NOP", re.I), None),
)  # fmt: skip
"""The category of an activity without one by its type, or its name where it has none; None for what only waits."""
NO_TYPES = (None, "", "Other")


class DeferredRows:
    """Rows in the order of the file."""

    def __init__(self) -> None:
        self._events: list[Any] = []

    def add(self, event: Any) -> None:
        """Adds a row without a category, or a begin or end."""
        self._events.append(event)

    def rows(self, names: Mapping[int, str], of_flows: Mapping[int, Role], counts: Counts) -> Iterator[Any]:
        """Yields rows with a category and a duration; those that cannot have them are counted in `counts`."""
        for event in self._in_pairs(counts):
            if event.cat:
                yield event
                continue
            process = identity(event.pid)
            name = names.get(process, "")
            role = next((role for pattern, role in OF_PROCESS if pattern.search(name)), of_flows.get(process))
            event.cat = _category(event) if role is Role.ACTIVITY else "runtime"
            if role is None:
                counts[Reason.NO_CATEGORY.of(name[:40] or str(process))] += 1
            elif event.cat is None:
                counts[Reason.DEVICE_ROWS_OF_WAITING] += 1
            elif role is not Role.IGNORED:
                yield event

    def _in_pairs(self, counts: Counts) -> Iterator[Any]:
        """Yields rows as they are, but of a begin and an end the begin with the time between them."""
        apart = [event for event in self._events if event.ph in BEGIN_AND_END]
        yield from (event for event in self._events if event.ph not in BEGIN_AND_END)
        opened = defaultdict[tuple[int, int], list[tuple[int, Any]]](list)
        alone = []
        times = (event.ts for event in apart)
        texts = [bytes(time) if isinstance(time, kineto.Raw) else str(time).encode() for time in times]
        starts = exact_times(texts).ns.tolist()
        for start, event in sorted(zip(starts, apart, strict=True), key=lambda row: row[0]):
            on_thread = opened[identity(event.pid), identity(event.tid)]
            if start == ABSENT:
                counts[Reason.UNUSABLE_TIME] += 1
            elif event.ph == BEGIN:
                on_thread.append((start, event))
            elif not on_thread:
                alone.append(event)
            else:
                begun, row = on_thread.pop()
                duration = exact_microseconds(start - begun)
                row.dur = duration.encode() if isinstance(row, kineto.ExactEvent) else duration
                row.args = row.args or event.args
                yield row
        alone += [event for rows in opened.values() for _, event in rows]
        counts[Reason.BEGIN_OR_END_ALONE] += sum(not event.cat or role_of(event.cat) not in NO_WORK for event in alone)

    def __len__(self) -> int:
        return len(self._events)


def _category(event: kineto.Event) -> str | None:
    """Returns the category of an activity by what it names its kind of work, None for one that only waits."""
    args = event.args or kineto.Args()
    kind = next((text for text in (args.task_type, args.description) if text not in NO_TYPES), event.name)
    return next((category for pattern, category in OF_ACTIVITY if pattern.fullmatch(str(kind))), "kernel")
