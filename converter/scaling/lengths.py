"""How long collectives take and how many bytes they move when their group changes its size, by a fitted line. What
members share, from the last arrival to the end, scales; waiting for the others stays. The fit uses the most specific
collectives that determine both latency and bandwidth.
"""

from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import msgspec
import numpy as np

from ...schema.arguments import ASTRA_SIM
from ...schema.columns import Int64, groupby, rows_by_number
from ...schema.graph import CollectiveType
from ...schema.linked import whole_ns
from ..ranks import GIB, RING, Calls, Factors, fitted_factors
from ..targets import LEAST_BYTES
from .facts import RankFacts
from .roles import GATHERING, GroupUse

SURE = 2.0
"""A factor is determined if it is at least this many standard errors above 0 (a confidence of 95 %)."""
ANY = -1
"""Any type, or any group."""
SOURCES = (
    "collectives of this type in this group", "collectives of this type in all groups",
    "collectives of all types in this group", "collectives of all types in all groups",
)  # fmt: skip


class Measured(NamedTuple):
    """The collectives of a job, a row each: the bytes that each member puts in, and how long they took together."""

    matched: Int64
    group: Int64
    kind: Int64
    members: Int64
    size: Int64
    ns: Int64


LINKS = 2
"""How many links a step of a ring takes: into the switch and out of it, as in ASTRA-sim."""


class Line(NamedTuple):
    """The ns of a step, which goes over LINKS links, and of a byte."""

    step_ns: float
    byte_ns: float

    def ns(self, cost: Factors) -> Factors:
        """Returns how long each row of steps and bytes takes, one after the other."""
        return np.asarray(self.step_ns * cost[:, 0] + self.byte_ns * cost[:, 1])


class Fit(NamedTuple):
    """A line, the transfers it was fitted to, and its median error in %; unless `identifiable`, others fit as well."""

    line: Line
    source: str
    transfers: int
    fit_error_pct: float
    identifiable: bool = True


class Fits:
    """The fits to the measured collectives of a job; a given latency and time per byte replace fitted ones."""

    def __init__(self, measured: Measured, step_ns: float | None = None, byte_ns: float | None = None) -> None:
        self._given = (step_ns, byte_ns)
        usable = (measured.ns > 0) & (measured.members > 1) & np.isin(measured.kind, [*RING])
        _, group, kind, members, size, ns = (column[usable] for column in measured)
        self._relative = costs(kind, members, size) / ns[:, None]
        """A row of steps and bytes for each collective, divided by its measured time."""
        self._rows = {
            (int(kinds[rows[0]]), int(groups[rows[0]])): rows
            for kinds, groups in product((kind, np.full_like(kind, ANY)), (group, np.full_like(group, ANY)))
            for rows in groupby(kinds, groups).rows()
        }
        self._fit = cache(self._fitted)

    @property
    def is_given(self) -> bool:
        """Whether lengths follow the given network instead of scaling measured ones."""
        return self._given != (None, None)

    def of(self, kind: int, group: int) -> Fit | None:
        """Returns the fit for a type in a group; None where no collective tells anything and nothing is given."""
        # whose collectives may determine it, the most specific first
        keys = (kind, group), (kind, ANY), (ANY, group), (ANY, ANY)
        measured = [(source, key) for source, key in zip(SOURCES, keys, strict=True) if key in self._rows]
        if not measured:
            step_ns, byte_ns = self._given
            return None if step_ns is None or byte_ns is None else Fit(Line(step_ns, byte_ns), "given", 0, 0.0)
        tries = () if self.is_given else product((SURE, 0.0), measured)
        fits = (self._fit(*where, sure) for sure, where in tries)
        return next(filter(None, fits), None) or self._fit(*measured[0])

    def _fitted(self, source: str, key: tuple[int, int], sure: float | None = None) -> Fit | None:
        """Returns the fit to some collectives; None where these do not determine it, unless none has to be `sure`."""
        relative = self._relative[self._rows[key]]
        if self.is_given:
            line: Line | None = _completed(relative, *self._given)
            source = f"as given; {source}"
        else:
            # any line through collectives of one size fits; this one has the least latency
            line = Line(*fitted_factors(relative)) if sure is None else _solved(relative, sure)
        if line is None:
            return None
        error = float(np.median(np.abs(line.ns(relative) - 1)))
        return Fit(line, source, len(relative), round(100 * error, 1), self.is_given or bool(sure))


def costs(kind: Int64, members: Int64, size: Int64) -> Factors:
    """Returns a row of steps and bytes for each collective."""
    rows = zip(kind.tolist(), members.tolist(), size.tolist(), strict=True)
    return np.array([RING[of_kind](count, nbytes) for of_kind, count, nbytes in rows], np.float64).reshape(-1, 2)


def _completed(relative: Factors, step_ns: float | None, byte_ns: float | None) -> Line:
    """Returns the given line; if only one factor is given, with the other one that fits best."""
    step, byte = relative.T

    def best(column: Factors, remainder: Factors) -> float:
        return max(0.0, float(column @ remainder) / max(float(column @ column), 1e-300))

    if byte_ns is None:
        return Line(step_ns or 0.0, best(byte, 1 - step * (step_ns or 0.0)))
    return Line(best(step, 1 - byte * byte_ns) if step_ns is None else step_ns, byte_ns)


def _solved(relative: Factors, sure: float) -> Line | None:
    """Returns the line of least relative squares, if both of its factors are above `sure` standard errors."""
    scale = np.abs(relative).max(axis=0)
    if not scale.all():
        return None
    columns, ones = relative / scale, np.ones(len(relative))
    solution, _, rank, _ = np.linalg.lstsq(columns, ones, rcond=1e-6)
    if rank < 2:
        return None
    left = float(((columns @ solution - ones) ** 2).sum()) / max(len(ones) - 2, 1)
    error = np.sqrt(left * np.diag(np.linalg.inv(columns.T @ columns)))
    step, byte = solution / scale
    return Line(float(step), float(byte)) if (solution > sure * error).all() else None


def shard(size: Int64, use: GroupUse, members: int) -> Int64:
    """Returns the bytes that each of so many members puts into a gathering; shards of what is reduced shrink."""
    return -(-size * len(use.members) // members) if use.scatters else size


def sizes(calls: Calls, target: str, uses: list[GroupUse], new_members: list[int]) -> tuple[Int64, int]:
    """Returns each call's new size, of a rank, and how many gather what may not be shards, which keep their size."""
    size, undivided = calls.size.copy(), 0
    # an all-gather of nothing, or of fewer bytes than its data set is split into, never ends in ASTRA-sim
    least = LEAST_BYTES if target == ASTRA_SIM else 1
    gathering = np.flatnonzero((calls.group >= 0) & np.isin(calls.kind, GATHERING))
    for number, rows in rows_by_number(gathering, calls.group).items():
        use, members = uses[number], new_members[number]
        if members != len(use.members):
            size[rows] = np.maximum(shard(size[rows], use, members), np.minimum(size[rows], least))
            undivided += 0 if use.scatters else len(rows)
    return size, undivided


class Grown(msgspec.Struct, frozen=True):
    """By which line the collectives of a type changed with their group; without `fitted_to` nothing determines it.

    They last so many `times` as long, in the mean, and so many as `times_of_latency` says if latency is all they have.
    """

    group: str
    collective: str
    collectives: int
    members: int
    scaled_members: int
    times_of_latency: float
    times: float = 1.0
    latency_ns: float = 0.0
    gib_s: float | None = None
    fitted_to: str = ""
    transfers: int = 0
    fit_error_pct: float = 0.0
    identifiable: bool = False


def measured_collectives(facts: Sequence[RankFacts], calls: Calls, uses: Sequence[GroupUse]) -> Measured:
    """Returns the collectives of a job. Their length is that of the member that came last, as all end together, or,
    where that one may be missing, the shortest of those that are alike.
    """
    calls = calls.take(calls.group >= 0)
    # those that a rank recorded first come first
    matches = groupby(calls.matched)
    matches = matches.in_order(np.argsort(matches.first))
    first, size, ns = matches.first, matches.largest(calls.size), matches.smallest(calls.end_ns - calls.start_ns)
    group, kind = calls.group[first], calls.kind[first]
    traced = {rank.rank for rank in facts if rank.source == rank.rank}
    is_partial = np.array([not traced.issuperset(use.members) for use in uses], np.bool_)[group]
    alike = groupby(group, kind, size)
    ns = np.where(is_partial, alike.smallest(ns)[alike.number], ns)
    members = np.array([len(use.members) for use in uses], np.int64)[group]
    return Measured(calls.matched[first], group, kind, members, size, ns)


def longer(
    measured: Measured, matches: int, uses: Sequence[GroupUse], new_members: Sequence[int], fits: Fits
) -> tuple[Int64, list[Grown]]:
    """Returns how many ns longer each match takes, if its group has `new_members`, and the fits."""
    added, grown = np.zeros(matches, np.int64), list[Grown]()
    for rows in groupby(measured.kind, measured.group).rows():
        kind, group = int(measured.kind[rows[0]]), int(measured.group[rows[0]])
        use, members = uses[group], new_members[group]
        if kind not in RING or members in (0, len(use.members)):
            continue
        (steps, _), (new_steps, _) = (RING[kind](count, 1) for count in (len(use.members), members))
        by_latency = round(new_steps / steps, 2) if steps else 0.0
        figures = use.group.text, CollectiveType(kind).name.lower(), len(rows), len(use.members), members, by_latency
        fit = fits.of(kind, group)
        if fit is None:
            grown.append(Grown(*figures))
            continue
        size, ns = measured.size[rows], measured.ns[rows]
        new_size = shard(size, use, members) if kind in GATHERING else size
        before = fit.line.ns(costs(measured.kind[rows], measured.members[rows], size))
        after = fit.line.ns(costs(measured.kind[rows], np.full(len(rows), members), new_size))
        # nothing was measured in a group of one
        scaled = after if fits.is_given else np.where(before == 0, after, ns * after / np.where(before == 0, 1, before))
        added[measured.matched[rows]] = whole_ns(scaled - ns, f"{figures[1]} among {members} members")
        gib_s = round(1e9 / GIB / fit.line.byte_ns, 3) if fit.line.byte_ns else None
        times = round(float(scaled.sum() / max(int(ns.sum()), 1)), 2)
        grown.append(Grown(*figures, times, round(fit.line.step_ns / LINKS, 1), gib_s, *fit[1:]))
    return added, grown
