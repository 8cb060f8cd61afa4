"""How long collectives take and how many bytes they move when their group changes its size, by a latency per step and a
time per byte, fitted.

The measured time of a collective is what its members share, from the last arrival to the end; it scales with the fitted
line, or becomes that of the given network. The time for which a member waited for the others stays. The fit uses the
most specific collectives that determine both latency and bandwidth: those of one type in one group, of the type, of the
group, or of the job.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import msgspec
import numpy as np

from ...schema.arguments import ASTRA_SIM
from ...schema.columns import Int64
from ...schema.graph import CollectiveType, NodeType
from ..ranks import GIB, RING, Cost, Factors, Matching, Transfer, fitted_factors
from ..targets import LEAST_BYTES
from .facts import RankFacts
from .roles import GATHERING, GroupUse

SURE = 2.0
"""A factor is determined if it is at least this many standard errors above 0 (a confidence of 95 %)."""
ANY = -1
Key = tuple[int, int]
"""A type, or ANY, and a group, or ANY."""
SOURCES = (
    "collectives of this type in this group",
    "collectives of this type in all groups",
    "collectives of all types in this group",
    "collectives of all types in all groups",
)


class Line(NamedTuple):
    """The ns of a step, and of a byte."""

    step_ns: float
    byte_ns: float

    def ns(self, cost: Cost) -> float:
        """Returns how long steps and bytes take one after the other."""
        return self.step_ns * cost.steps + self.byte_ns * cost.bytes


class Fit(NamedTuple):
    """A line, the transfers to which it was fitted (`source` in words, and their number), and its median error in %.

    If not `identifiable`, other latencies and bandwidths fit nearly as well.
    """

    line: Line
    source: str
    transfers: int
    fit_error_pct: float
    identifiable: bool = True


class GroupTransfer(NamedTuple):
    """A measured collective, and the number of its group."""

    transfer: Transfer
    group: int


class Fits:
    """The fits to the measured transfers of a job; a given latency and time per byte replace fitted ones."""

    def __init__(
        self, transfers: Iterable[GroupTransfer], step_ns: float | None = None, byte_ns: float | None = None
    ) -> None:
        self._given = (step_ns, byte_ns)
        self._measured = defaultdict[Key, list[Transfer]](list)
        for transfer, group in transfers:
            if transfer.ns > 0 and transfer.members > 1 and transfer.kind in RING:
                for key in _keys(transfer.kind, group):
                    self._measured[key].append(transfer)
        self._solved = cache(lambda key, sure: _solved(self._measured[key], sure))

    @property
    def is_given(self) -> bool:
        """Whether lengths follow the given network instead of scaling measured ones."""
        return self._given != (None, None)

    def of(self, kind: int, group: int) -> Fit | None:
        """Returns the fit for a type in a group; None where no collective tells anything and nothing is given."""
        measured = {
            key: source for key, source in zip(_keys(kind, group), SOURCES, strict=True) if key in self._measured
        }
        if not measured:
            step_ns, byte_ns = self._given
            return None if step_ns is None or byte_ns is None else _scored(Line(step_ns, byte_ns), "given", [])
        first, source = next(iter(measured.items()))
        if self.is_given:
            completed = _completed(self._measured[first], *self._given)
            return _scored(completed, f"as given; {source}", self._measured[first])
        for sure in (SURE, 0.0):
            for key, source in measured.items():
                if line := self._solved(key, sure):
                    return _scored(line, source, self._measured[key], identifiable=sure > 0)
        # any line through collectives of one size fits; this one has the least latency
        least = Line(*fitted_factors(_relative(self._measured[first])))
        return _scored(least, measured[first], self._measured[first], identifiable=False)


def _keys(kind: int, group: int) -> tuple[Key, ...]:
    """Returns whose collectives may determine a fit for a type in a group, the most specific first, as SOURCES."""
    return (kind, group), (kind, ANY), (ANY, group), (ANY, ANY)


def _scored(line: Line, source: str, transfers: Sequence[Transfer], identifiable: bool = True) -> Fit:
    off = [abs(line.ns(cost_of(transfer)) / transfer.ns - 1) for transfer in transfers]
    return Fit(line, source, len(transfers), round(100 * float(np.median(off)), 1) if off else 0.0, identifiable)


def cost_of(transfer: Transfer) -> Cost:
    """Returns the steps and bytes of a transfer."""
    return RING[transfer.kind](transfer.members, transfer.size)


def _relative(transfers: Sequence[Transfer]) -> Factors:
    """Returns a row of steps and bytes for each transfer, divided by its measured time."""
    costs = np.array([cost_of(transfer) for transfer in transfers], np.float64)
    return np.asarray(costs / np.array([[transfer.ns] for transfer in transfers], np.float64))


def _completed(transfers: Sequence[Transfer], step_ns: float | None, byte_ns: float | None) -> Line:
    """Returns the given line; if only one factor is given, with the other one that fits best."""
    step, byte = _relative(transfers).T

    def best(column: Factors, remainder: Factors) -> float:
        return max(0.0, float(column @ remainder) / max(float(column @ column), 1e-300))

    if byte_ns is None:
        return Line(step_ns or 0.0, best(byte, 1 - step * (step_ns or 0.0)))
    return Line(best(step, 1 - byte * byte_ns) if step_ns is None else step_ns, byte_ns)


def _solved(transfers: Sequence[Transfer], sure: float) -> Line | None:
    """Returns the line of least relative squares, if both of its factors are above `sure` standard errors."""
    relative = _relative(transfers)
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


def shard(size: int, use: GroupUse, kind: int, members: int) -> int:
    """Returns the bytes that a member puts in when there are so many members.

    If the group scatters what it reduces, it gathers shards of a whole that stays, so these shrink, rounded up.
    """
    if kind not in GATHERING or not use.scatters:
        return size
    return -(-size * len(use.members) // members)


def sizes(rank: RankFacts, group: Int64, uses: list[GroupUse], new_members: list[int]) -> tuple[Int64, int]:
    """Returns each call's new size, and how many gather what may not be shards, which keep their size."""
    size, undivided = rank.calls.size.copy(), 0
    # an all-gather of nothing, or of fewer bytes than its data set is split into, never ends in ASTRA-sim
    least = LEAST_BYTES if rank.target == ASTRA_SIM else 1
    for row in np.flatnonzero((group >= 0) & np.isin(rank.calls.kind, GATHERING)).tolist():
        use, members = uses[group[row]], new_members[group[row]]
        if members != len(use.members):
            before, kind = int(size[row]), int(rank.calls.kind[row])
            size[row] = max(shard(before, use, kind, members), min(before, least))
            undivided += not use.scatters
    return size, undivided


class Grown(msgspec.Struct, frozen=True):
    """By which line the collectives of a type changed whose group has other members then, and how right that is; a line
    that nothing determines has no `fitted_to`.
    """

    group: str
    collective: str
    collectives: int
    members: int
    scaled_members: int
    step_ns: float = 0.0
    gib_s: float | None = None
    fitted_to: str = ""
    transfers: int = 0
    fit_error_pct: float = 0.0
    identifiable: bool = False


def measured(facts: Sequence[RankFacts], matching: Matching, uses: Sequence[GroupUse]) -> dict[int, GroupTransfer]:
    """Returns each collective by the number of its match. Its length is that of the member that came last, as all end
    together. If that one may be missing, the length is the shortest of those that are alike.
    """
    transfers: dict[int, GroupTransfer] = {}
    for rank, groups, matched in zip(facts, matching.group, matching.matched, strict=True):
        rows = np.flatnonzero((rank.calls.type == NodeType.COMM_COLL) & (groups >= 0))
        columns = (matched, groups, rank.calls.kind, rank.calls.size, rank.length_ns)
        for number, group, kind, size, ns in zip(*(column[rows].tolist() for column in columns), strict=True):
            if number in transfers:
                before = transfers[number].transfer
                kind, size, ns = before.kind, max(size, before.size), min(ns, before.ns)
            transfers[number] = GroupTransfer(Transfer(kind, len(uses[group].members), size, ns), group)
    traced = {rank.rank for rank in facts if rank.source == rank.rank}
    is_partial = [not traced.issuperset(use.members) for use in uses]
    shortest = dict[tuple[int, int, int], int]()
    for transfer, group in transfers.values():
        alike = group, transfer.kind, transfer.size
        shortest[alike] = min(transfer.ns, shortest.get(alike, transfer.ns))
    for number, (transfer, group) in transfers.items():
        if is_partial[group]:
            ns = shortest[group, transfer.kind, transfer.size]
            transfers[number] = GroupTransfer(transfer._replace(ns=ns), group)
    return transfers


def longer(
    transfers: Mapping[int, GroupTransfer], uses: Sequence[GroupUse], new_members: Sequence[int], fits: Fits
) -> tuple[dict[int, int], list[Grown]]:
    """Returns how many ns longer each collective takes, by the number of its match, if its group has `new_members`; and
    the fits. A group that keeps no member has neither.
    """
    counts = Counter(
        (transfer.kind, group)
        for transfer, group in transfers.values()
        if transfer.kind in RING and new_members[group] not in (0, transfer.members)
    )
    fit_of = {key: fits.of(*key) for key in counts}
    added: dict[int, int] = {}
    for number, (transfer, group) in transfers.items():
        if fit := fit_of.get((transfer.kind, group)):
            size = shard(transfer.size, uses[group], transfer.kind, new_members[group])
            before = fit.line.ns(cost_of(transfer))
            after = fit.line.ns(cost_of(transfer._replace(members=new_members[group], size=size)))
            # nothing was measured in a group of one
            scaled = after if fits.is_given or not before else transfer.ns * after / before
            added[number] = round(scaled - transfer.ns)
    grown = []
    for (kind, group), count in sorted(counts.items()):
        use, fit = uses[group], fit_of[kind, group]
        figures = use.group.text, CollectiveType(kind).name.lower(), count, len(use.members), new_members[group]
        if fit is None:
            grown.append(Grown(*figures))
        else:
            gib_s = round(1e9 / GIB / fit.line.byte_ns, 3) if fit.line.byte_ns else None
            grown.append(Grown(*figures, round(fit.line.step_ns, 1), gib_s, *fit[1:]))
    return added, grown
