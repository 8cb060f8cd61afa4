"""A small picture of a graph for notebooks: a strip for each thread and stream, as high as it is busy."""

from collections.abc import Iterator
from html import escape

import numpy as np

from .schema.columns import Int64
from .schema.graph import ExecutionGraph
from .tools.replay import NodeClass, gather
from .tools.view import lane_names

LANES, COLUMNS = 8, 200
STRIP_WIDTH, LEFT, STRIP, GAP = 600, 150, 16, 4
HOST, DEVICE = "#8b9aab", "#3b78b5"
"""Sizes in px, and the colours of threads and of streams."""


def lane_strips(graph: ExecutionGraph) -> str:
    """Returns the picture as SVG, of the busiest lanes; "" for a graph without times."""
    work = gather([graph])
    start, end = work.measured_start_ns, work.measured_end_ns
    is_drawn = work.is_timed & (end > start) & ~graph.name.equal("host idle") & (work.node_class != NodeClass.DELAY)
    rows = np.flatnonzero(is_drawn)
    if not len(rows):
        return ""
    busy = np.bincount(work.lane[rows], (end - start)[rows], len(work.lanes))
    busiest = np.argsort(-busy, kind="stable")[:LANES]
    lanes = sorted(busiest[busy[busiest] > 0].tolist(), key=lambda lane: work.lanes[lane].is_stream)
    edges, names = np.linspace(0, int(end[rows].max()), COLUMNS + 1), lane_names(work)
    height = len(lanes) * (STRIP + GAP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + STRIP_WIDTH}" height="{height}" font-size="11">']
    for number, lane in enumerate(lanes):
        lane_rows = rows[work.lane[rows] == lane]
        share = _busy_share(start[lane_rows], end[lane_rows], edges)
        parts += _strip(names[lane], number * (STRIP + GAP), share, DEVICE if work.lanes[lane].is_stream else HOST)
    return "".join([*parts, "</svg>"])


def _busy_share(start: Int64, end: Int64, edges: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> list[float]:
    """Returns for each column between two edges the share of its time in which a lane works."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    begun = np.maximum(start, np.concatenate(([0], end[:-1])))
    done = np.cumsum(end - begun)
    times = np.stack((begun, end), axis=1).reshape(-1)
    until = np.stack((np.concatenate(([0], done[:-1])), done), axis=1).reshape(-1)
    shares = np.diff(np.interp(edges, times, until)) / np.diff(edges)
    return [float(share) for share in np.clip(shares, 0, 1)]


def _strip(name: str, top: int, shares: list[float], colour: str) -> Iterator[str]:
    bottom, step = top + STRIP, STRIP_WIDTH / COLUMNS
    points = "".join(f"H{LEFT + column * step:.0f}V{bottom - STRIP * share:.1f}" for column, share in enumerate(shares))
    yield f'<text x="{LEFT - 6}" y="{bottom - 4}" text-anchor="end" fill="currentColor">{escape(name)}</text>'
    yield f'<path d="M{LEFT} {bottom}{points}H{LEFT + STRIP_WIDTH}V{bottom}Z" fill="{colour}"/>'
