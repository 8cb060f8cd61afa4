"""The memory in use over time, its peak, and the ops that hold it there."""

from collections import defaultdict

import numpy as np

from ...schema.columns import Int64, Tree
from ...schema.linked import LinkedTrace, op_tree
from .annotations import op_path
from .first_start import first_start_ns
from .memory_curves import RECORDED, Curve, curves_of
from .rank_trace import AnalysisOptions, RankTrace, per_rank
from .steps import steps_of
from .table import Column, Floats, Table, integers, microseconds, percentage, rank_column

NONE = "allocations were not recorded (profile_memory=True), nor the identities of tensors (a host trace)"
BY_TENSORS = (
    "from the tensors that ops name, each storage from the op that made it to the last that names it, or throughout if "
    "it was there before: allocations were not recorded (profile_memory=True)"
)
BEFORE, NO_OP = "before the recording", "outside of ops"
BYTES = "B"


def _table(rank: RankTrace, _: AnalysisOptions) -> Table:
    curves = curves_of(rank)
    lengths = [len(curve.time) for curve in curves]
    time, allocated, reserved = (
        np.concatenate([getattr(curve, name) for curve in curves] or [np.empty(0, np.int64)])
        for name in ("time", "allocated", "reserved")
    )
    note = _note(curves)
    columns = [
        rank_column(rank.rank, sum(lengths)),
        Column("device", "", np.repeat([curve.device for curve in curves], lengths).astype(np.int64)),
        Column("step", "", _step_names(rank.linked, time)),
        microseconds("ts", np.maximum(time - first_start_ns(rank.linked), 0)),
        Column("allocated", BYTES, allocated),
        Column("reserved", BYTES, _as_integers(reserved)),
    ]
    return Table(NAME, "Memory in use", columns, note, (_peaks(rank, curves, note), _live(rank, curves, note)))


def _note(curves: list[Curve]) -> str:
    if not curves:
        return NONE
    if curves[0].source != RECORDED:
        return BY_TENSORS
    skipped = sum(curve.skipped for curve in curves)
    return f"{skipped} allocations are of allocators that keep no total and are not in it" if skipped else ""


def _step_names(linked: LinkedTrace, time: Int64) -> list[str]:
    """Returns the step that contains each time, "" before the first step."""
    steps = steps_of(linked)
    names = [*steps.name, ""]
    return [names[step] for step in (np.searchsorted(steps.start, time, side="right") - 1).tolist()]


def _peaks(rank: RankTrace, curves: list[Curve], note: str) -> Table:
    time = np.array([curve.time[curve.peak] for curve in curves], np.int64)
    columns = [
        rank_column(rank.rank, len(curves)),
        integers("device", [curve.device for curve in curves]),
        Column("step", "", _step_names(rank.linked, time)),
        microseconds("ts", np.maximum(time - first_start_ns(rank.linked), 0)),
        integers("peak", [curve.allocated[curve.peak] for curve in curves], BYTES),
        integers("before", [curve.before for curve in curves], BYTES),
        Column("reserved", BYTES, _as_integers(np.array([_largest(curve) for curve in curves], np.float64))),
        Column("known_by", "", [curve.source for curve in curves]),
    ]
    return Table(f"{NAME}_peak", "Peaks of memory", columns, note)


def _as_integers(values: Floats) -> Floats | Int64:
    """Returns whole numbers if all values are known."""
    return values.astype(np.float64) if np.isnan(values).any() else values.astype(np.int64)


def _largest(curve: Curve) -> float:
    recorded = curve.reserved[~np.isnan(curve.reserved)]
    return float(recorded.max()) if len(recorded) else np.nan


def _live(rank: RankTrace, curves: list[Curve], note: str) -> Table:
    """Returns the memory in use at each peak by op, the largest first."""
    tree = op_tree(rank.linked.ops) if curves else None
    rows: list[tuple[int, str, str, int, int, int]] = []
    for curve in curves:
        by_op: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        op_names = (
            {row: _outer_and_inner_op(rank.linked, tree, row) for row in np.unique(curve.op_row).tolist()}
            if tree
            else {}
        )
        for row, size in zip(curve.op_row.tolist(), curve.live.tolist(), strict=True):
            by_op[op_names[row]][0] += 1
            by_op[op_names[row]][1] += size
        peak = int(curve.allocated[curve.peak])
        live = [(curve.device, *names, blocks, size, peak) for names, (blocks, size) in by_op.items()]
        live += [(curve.device, BEFORE, "", 0, curve.before, peak)] if curve.before else []
        rows += sorted(live, key=lambda row: -row[4])
    device, op, maker, blocks, size, totals = zip(*rows, strict=True) if rows else ((),) * 6
    columns = [
        rank_column(rank.rank, len(rows)),
        integers("device", device),
        Column("op", "", [*op]),
        Column("allocated_by", "", [*maker]),
        integers("blocks", blocks),
        integers("size", size, BYTES),
        percentage("pct", np.array(size, np.int64), np.array(totals, np.int64)),
    ]
    return Table(f"{NAME}_live", "What lives at the peak", columns, note)


def _outer_and_inner_op(linked: LinkedTrace, tree: Tree, row: int) -> tuple[str, str]:
    """Returns the names of the outermost enclosing op and of the innermost, which allocated the memory."""
    path = op_path(linked, tree, row)
    return (path[0], path[-1]) if path else (NO_OP, "")


NAME = "memory_timeline"
memory_timeline = per_rank(NAME, _table)
