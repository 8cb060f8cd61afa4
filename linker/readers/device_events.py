"""Sorts the events of a device trace by role while the file is read, and keeps the columns of each role's table."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...schema.columns import ABSENT
from ...schema.linked import (
    FOREVER,
    LONGEST_RECORDING,
    ExactTimes,
    InexactTime,
    exact_times,
    identity,
    kineto,
    nanoseconds,
)
from ...schema.reasons import Counts, Reason
from .categories import Role, role_of
from .event_rows import Event, EventRows
from .launch_flows import LaunchFlows

TABLES = (Role.OP, Role.CALL, Role.ACTIVITY, Role.SYNC, Role.EVENT_RECORD, Role.DEVICE_WAIT)
LABELS = ("process_labels", "process_name")
RECORDING = "Trace"
"""The category of the profiler's own row, which lasts as long as it recorded."""
BEGIN_AND_END = ("B", "E")
LATEST = FOREVER - LONGEST_RECORDING
"""A row that begins earlier ends within 64 bits."""
NO_DURATION = (None, b"", b"null")


class DeviceEvents:
    """The events of a file by role.

    `skipped` and `oddities` are those of `DeviceTrace`, `labels` are pairs of a process and its text.
    """

    def __init__(self, arguments: bool, modules: bool = False) -> None:
        tables = (*TABLES, Role.PYTHON) if modules else TABLES
        self.rows = {role: EventRows(role, arguments and role is Role.OP) for role in tables}
        self.flows = LaunchFlows()
        self.labels: list[tuple[int, str]] = []
        self.skipped = Counts()
        self.oddities = Counts()
        self.read = self.ignored = 0
        self.recording_start: int | None = None
        self._exact = False

    def add(self, events: Sequence[kineto.Event], exactly: Callable[[], Sequence[Event]]) -> None:
        """Adds a piece of the file.

        Once a double has lost ns, this and all later pieces are decoded again by `exactly`, with times as text.
        """
        if not events:
            return
        if not self._exact:
            try:
                nanoseconds([event.ts for event in events if event.ph == "X"])
            except InexactTime:
                self._exact = True
        by_role = self._by_role(exactly() if self._exact else events)
        for event in by_role[Role.UNKNOWN]:
            self.skipped[Reason.UNKNOWN_CATEGORY.of((event.cat or "")[:40])] += 1
        self.ignored += len(by_role[Role.IGNORED]) + len(by_role[Role.PYTHON])
        recordings = [event.ts for event in by_role[Role.IGNORED] if event.cat == RECORDING]
        for time in _times(recordings, self._exact).ns.tolist():
            if time != ABSENT:
                self.recording_start = time if self.recording_start is None else min(time, self.recording_start)
        for role, table in self.rows.items():
            self._add(table, by_role[role])

    def ignore(self, count: int) -> None:
        """Counts rows that were skipped unread."""
        self.read += count
        self.ignored += count

    def _by_role(self, events: Sequence[Event]) -> dict[Role, list[Event]]:
        by_role: dict[Role, list[Event]] = {role: [] for role in Role}
        append_to: dict[str | None, Callable[[Event], None]] = {}
        for event in events:
            if event.ph == "X":
                if event.cat not in append_to:
                    append_to[event.cat] = _append_for(event.cat, by_role)
                append_to[event.cat](event)
            elif event.ph in BEGIN_AND_END and role_of(event.cat) in TABLES:
                self.skipped[Reason.BEGIN_AND_END_ROWS] += 1
            else:
                self.ignored += 1
                if event.ph == "M" and event.name in LABELS and event.args:
                    self.labels.append((identity(event.pid), str(event.args.name or event.args.labels or "")))
        self.flows.add(events)
        self.read += len(events)
        return by_role

    def _add(self, table: EventRows, events: list[Event]) -> None:
        if not events:
            return
        starts, durations = ([getattr(event, name) for event in events] for name in ("ts", "dur"))
        start, duration = (_times(stamps, self._exact) for stamps in (starts, durations))
        usable = (start.ns > -LATEST) & (start.ns < LATEST) & (duration.ns < LONGEST_RECORDING)
        for row in np.flatnonzero(duration.ns == ABSENT).tolist():
            usable[row] &= (bytes(durations[row]) if self._exact else durations[row]) in NO_DURATION
        if not usable.all():
            self.skipped[Reason.UNUSABLE_TIME] += int((~usable).sum())
            events = [event for event, is_usable in zip(events, usable.tolist(), strict=True) if is_usable]
            start, duration = (ExactTimes(times.ns[usable], times.digits[usable]) for times in (start, duration))
        table.add(events, start, duration, self.oddities)


def _append_for(category: str | None, by_role: dict[Role, list[Event]]) -> Callable[[Event], None]:
    """Returns a function that appends a row of a category to the rows of its role."""
    role = role_of(category)
    # the role of an activity may depend on its name
    return by_role[role].append if role is not Role.ACTIVITY else partial(_append_by_name, by_role)


def _append_by_name(by_role: dict[Role, list[Event]], event: Event) -> None:
    by_role[role_of(event.cat, event.name)].append(event)


def _times(stamps: list[Any], exact: bool) -> ExactTimes:
    if exact:
        return exact_times([bytes(stamp) for stamp in stamps])
    try:
        times = nanoseconds(stamps)
    except InexactTime:
        # starts are exact here; only durations of centuries are not
        return exact_times([str(stamp).encode() for stamp in stamps])
    return ExactTimes(times, np.zeros(len(times), np.int64))
