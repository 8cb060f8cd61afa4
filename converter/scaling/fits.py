"""How long collectives take by the members of their group: a latency per step and a time per byte, fitted to what was measured.

Measured is what members have in common, from the last one's arrival to the end. What tells latency and bandwidth apart is the most special
that does: the collectives of one type in one group, of the type, of the group, of the job.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..targets import RING, Cost, Transfer, fitted_factors

SURE = 2.0
"""A factor is told if it is so many times its standard error: 95 of 100 are, by chance one in 20 is not."""
MANY = "collectives of all types in all groups"


class Line(NamedTuple):
    """ns of a step, and of a byte."""

    step_ns: float
    byte_ns: float

    def ns(self, cost: Cost) -> float:
        """How long steps and bytes take one after the other."""
        return self.step_ns * cost.steps + self.byte_ns * cost.bytes


@dataclass(frozen=True, slots=True)
class Fit:
    """A line, what it was fitted to (as `source` says in words) and how many, of which half are less than `off_pct` off it; without
    `tells_apart` latency and bandwidth could be others that give the same."""

    line: Line
    source: str
    transfers: int
    off_pct: float
    tells_apart: bool = True


class Seen(NamedTuple):
    """A collective that was measured, and the number of its group."""

    transfer: Transfer
    group: int


class Fits:
    """The fits to what was measured of a job; `given` latency and time per byte stand instead of fitted ones."""

    def __init__(self, seen: Iterable[Seen], step_ns: float | None = None, byte_ns: float | None = None) -> None:
        self._seen = [
            one for one in seen if one.transfer.ns > 0 and one.transfer.members > 1 and one.transfer.kind in RING
        ]
        self._given = step_ns, byte_ns
        self._known: dict[tuple[int, int], Fit] = {}

    def of(self, kind: int, group: int) -> Fit | None:
        """The fit for a type in a group; None where no collective tells anything and nothing is given."""
        if (kind, group) not in self._known and (found := self._fit(kind, group)) is not None:
            self._known[kind, group] = found
        return self._known.get((kind, group))

    def _fit(self, kind: int, group: int) -> Fit | None:
        step_ns, byte_ns = self._given
        if step_ns is not None and byte_ns is not None:
            return self._judged(
                Line(step_ns, byte_ns), "given", [one.transfer for one in self._seen if one.transfer.kind == kind]
            )
        chosen = (
            ("collectives of this type in this group", lambda one: one.transfer.kind == kind and one.group == group),
            ("collectives of this type in all groups", lambda one: one.transfer.kind == kind),
            ("collectives of all types in this group", lambda one: one.group == group),
            (MANY, lambda one: True),
        )
        candidates = [(source, [one.transfer for one in self._seen if test(one)]) for source, test in chosen]
        measured = [candidate for candidate in candidates if candidate[1]]
        if not measured:
            return None
        told = ((source, transfers, line) for source, transfers in measured if (line := _told_apart(transfers)))
        source, transfers, line = next(told, (*measured[0], None))
        best = line or Line(*fitted_factors(_relative(transfers)))
        best = Line(best.step_ns if step_ns is None else step_ns, best.byte_ns if byte_ns is None else byte_ns)
        fit = self._judged(best, source, transfers)
        return fit if line else Fit(fit.line, fit.source, fit.transfers, fit.off_pct, tells_apart=False)

    @property
    def is_given(self) -> bool:
        """Whether lengths follow the given network, and not the measured ones in proportion."""
        return self._given != (None, None)

    @staticmethod
    def _judged(line: Line, source: str, transfers: Sequence[Transfer]) -> Fit:
        off = [abs(line.ns(cost_of(one)) / one.ns - 1) for one in transfers]
        return Fit(line, source, len(transfers), round(100 * float(np.median(off)), 1) if off else 0.0)


def cost_of(transfer: Transfer) -> Cost:
    """Its steps and bytes."""
    return RING[transfer.kind](transfer.members, transfer.size)


def _relative(transfers: Sequence[Transfer]) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    """A row of steps and bytes for each, over its measured time."""
    costs = np.array([cost_of(one) for one in transfers], np.float64)
    return np.asarray(costs / np.array([[one.ns] for one in transfers], np.float64))


def _told_apart(transfers: Sequence[Transfer]) -> Line | None:
    """The line by least squares of relative errors, if both of its factors are told."""
    relative = _relative(transfers)
    scale = np.abs(relative).max(axis=0)
    if not scale.all():
        return None
    columns, one = relative / scale, np.ones(len(relative))
    found, _, rank, _ = np.linalg.lstsq(columns, one, rcond=1e-6)
    if rank < 2:
        return None
    left = float(((columns @ found - one) ** 2).sum()) / max(len(one) - 2, 1)
    error = np.sqrt(left * np.diag(np.linalg.inv(columns.T @ columns)))
    step, byte = found / scale
    return Line(float(step), float(byte)) if (found > SURE * error).all() else None
