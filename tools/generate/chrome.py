"""Rows of a Chrome trace as JSON text: complete events, flows, names. Times in are ns from the start of the run.

They are written in µs: with three digits and relative to `baseTimeNanoseconds`, so that ns are exact, or whole and
since the epoch, as Kineto did before it had that field.
"""

import json
from typing import NamedTuple

from .identity import BASE_NS, FIRST_NS
from .machine import Times


class Rows(NamedTuple):
    """Writes rows with times of one resolution."""

    whole_us: bool = False

    @property
    def first_ns(self) -> int:
        """What the trace gives as the start of the run."""
        return BASE_NS + FIRST_NS if self.whole_us else FIRST_NS

    def cut(self, ns: Times) -> Times:
        """Returns a time as it is written; where that is in whole µs, starts and lengths are cut, each by itself."""
        return ns - ns % 1000 if self.whole_us else ns

    def complete(self, category: str, name: str, track: str, start: int, end: int, *, args: str) -> str:
        """Returns a row from `start` to `end`; `track` as from track_fields(), `args` without their braces."""
        return (
            f'{{"ph": "X", "cat": "{category}", "name": {json.dumps(name)}, {track}, '
            f'"ts": {self.at(start)}, "dur": {self._micros(end - start)}, "args": {{{args}}}}}'
        )

    def flow(self, category: str, starts: bool, number: int, track: str, at: int) -> str:
        """Returns one end of the arrow `number`: its start, or what it points to."""
        ends = "" if starts else ', "bp": "e"'
        return (
            f'{{"ph": "{"s" if starts else "f"}", "id": {number}, {track}, "ts": {self.at(at)}, '
            f'"cat": "{category}", "name": "{category}"{ends}}}'
        )

    def label(self, what: str, process: int, thread: int, key: str, value: str | int) -> str:
        """Returns a metadata row: what a process or thread is called, or where it is shown."""
        return (
            f'{{"ph": "M", "name": "{what}", "ts": {self.at(0)}, {track_fields(process, thread)}, '
            f'"args": {{"{key}": {json.dumps(value)}}}}}'
        )

    def at(self, ns: int) -> str:
        """Returns a time of the run as text."""
        return self._micros(self.first_ns + ns)

    def _micros(self, ns: int) -> str:
        return str(ns // 1000) if self.whole_us else f"{ns // 1000}.{ns % 1000:03d}"


def track_fields(process: int | str, thread: int | str) -> str:
    """Returns the fields that say of which process and thread a row is."""
    return f'"pid": {json.dumps(process)}, "tid": {json.dumps(thread)}'
