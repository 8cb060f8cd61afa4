"""A slow reference for modules and Python functions: from the rows of a device trace, each looked at beside each.

The backward pass is found by the arrows (`fwdbwd`) of the profiler itself. Nothing shares code with what it checks.
"""

import gzip
import json
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

MODULE = "nn.Module: "
ENGINE = "autograd::engine::evaluate_function: "
OPS, CALLS = ("cpu_op", "user_annotation"), ("cuda_runtime", "cuda_driver", "hip_runtime")
Row = dict[str, Any]


class Span(NamedTuple):
    thread: int
    start: int
    end: int

    def holds(self, other: "Span") -> bool:
        return self.thread == other.thread and self.start <= other.start and other.end <= self.end


class Place(NamedTuple):
    module: str
    function: str


def rows_of(path: Path) -> list[Row]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows: list[Row] = json.loads(text, parse_float=Decimal)["traceEvents"]
    return rows


def span(row: Row) -> Span:
    start, length = (int((Decimal(str(row[key])) * 1000).to_integral_value()) for key in ("ts", "dur"))
    return Span(row["tid"], start, start + length)


class Reference:
    """Where each op, call and activity of a device trace was called."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.found: dict[Span, Place] = {}
        self.python = [
            (span(row), row["name"])
            for row in rows
            if row.get("cat") == "python_function" and not row["name"].startswith("<built-in")
        ]
        self.ops = [(span(row), row["name"]) for row in rows if row.get("cat") in OPS]
        self.calls = {row["args"].get("correlation"): span(row) for row in rows if row.get("cat") in CALLS}

    @cached_property
    def forward(self) -> dict[tuple[Span, str], Span]:
        """The forward op of each op that an arrow reaches, and of the engine's row around that."""
        ends: dict[str, dict[int, tuple[int, int]]] = {"s": {}, "f": {}}
        for row in self.rows:
            if row.get("cat") == "fwdbwd":
                ends[row["ph"]][row["id"]] = row["tid"], span(row | {"dur": 0}).start
        begins: dict[tuple[int, int], list[tuple[Span, str]]] = {}
        for op in self.ops:
            begins.setdefault((op[0].thread, op[0].start), []).append(op)
        found = {}
        for number, target in ends["f"].items():
            source = min((one for one, _ in begins[ends["s"][number]]), key=lambda one: one.end)
            for reached, name in begins[target]:
                found[reached, name] = source
                around = [op for op in self.ops if op[1] == ENGINE + name and op[0].holds(reached)]
                found |= dict.fromkeys(around, source)
        return found

    def around(self, here: Span) -> list[tuple[Span, str]]:
        """The calls of Python around a span, the outermost first."""
        calls = [(called, name) for called, name in self.python if called.holds(here)]
        return sorted(calls, key=lambda call: (call[0].start, -call[0].end))

    def place(self, here: Span) -> Place:
        if here not in self.found:
            self.found[here] = self._place(here)
        return self.found[here]

    def _place(self, here: Span) -> Place:
        below = [one for one, _ in self.forward if one.holds(here)]
        if not below:
            return self._named(self.around(here), Place("", ""))
        backward = max(below, key=lambda one: (one.start, -one.end))
        source = next(forward for (one, _), forward in self.forward.items() if one == backward)
        outside = self.around(backward)
        inside = [call for call in self.around(here) if call not in outside]
        return self._named(inside, self.place(source))

    @staticmethod
    def _named(calls: list[tuple[Span, str]], outer: Place) -> Place:
        """The place of what is called below another one; a module that comes again stands where it stood."""
        path, names = outer.module.split("/") if outer.module else [], [name for _, name in calls]
        modules = [name.removeprefix(MODULE) for name in names if name.startswith(MODULE)]
        if modules and modules[0] in path:
            path = path[: path.index(modules[0])]
        for name in modules:
            path += [name] if path[-1:] != [name] else []
        functions = [name for name in names if not name.startswith(MODULE)]
        return Place("/".join(path), functions[-1] if functions else outer.function)

    def device_time(self) -> dict[str, int]:
        """ns of the device by path, each activity at its module and at all around that; "" holds what is in none."""
        found: dict[str, int] = {}
        for row in self.rows:
            if row.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
                called = self.calls.get(row["args"]["correlation"])
                path = self.place(called).module.split("/") if called else [""]
                length = span(row).end - span(row).start
                for end in range(1, len(path) + 1):
                    above = "/".join(path[:end])
                    found[above] = found.get(above, 0) + length
        return found
