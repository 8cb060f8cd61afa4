"""The ways of arrows between placed boxes: down to the next layer, across to a box beside it, else around."""

from .boxes import Box
from .placement import DOWN, Placement

HEADS = {"down": "m-3 -5l3 5 3 -5", "right": "m-5 -3l5 3 -5 3", "left": "m5 -3l-5 3 5 3"}
OUT, FARTHER, FARTHEST = 14, 14, 44
"""How far an arrow goes around, px: at least, a px more for so many px of length, and that much more at most."""


def way(placement: Placement, source: Box, target: Box) -> tuple[str, str]:
    """Returns the path of an arrow in SVG, and how prominent it is: `near`, `far`, or `between` boxes of two groups."""
    a, b = placement.places[source], placement.places[target]
    of_two_phases = bool(placement.phases) and source.path()[1] is not target.path()[1]
    if of_two_phases or (a.y < b.bottom and b.y < a.bottom):
        look = "near" if source.around is target.around else "between"
        if a.right <= b.x:
            bend = max((b.x - a.right) / 2, 4)
            return _curve((a.right, a.middle), (bend, 0), (b.x, b.middle), (-bend, 0), "right"), look
        if b.right <= a.x:
            bend = max((a.x - b.right) / 2, 4)
            return _curve((a.x, a.middle), (-bend, 0), (b.right, b.middle), (bend, 0), "left"), look
    gap = b.y - a.bottom
    if 0 < gap <= 3 * DOWN:
        start, end = (a.x + a.width / 2, a.bottom), (b.x + b.width / 2, b.y)
        return _curve(start, (0, gap / 2), end, (0, -gap / 2), "down"), "near"
    start, end = (a.right, a.y + 0.7 * a.height), (b.right, b.y + 0.3 * b.height)
    farthest = max(a.right, b.right) + OUT + min(abs(end[1] - start[1]) / FARTHER, FARTHEST)
    return _curve(start, (farthest - a.right, 0), end, (farthest - b.right, 0), "left"), "far"


Point = tuple[float, float]


def _curve(start: Point, leaving: Point, end: Point, arriving: Point, head: str) -> str:
    """Returns a curve that leaves and arrives in these directions, with a head."""
    controls = (start[0] + leaving[0], start[1] + leaving[1]), (end[0] + arriving[0], end[1] + arriving[1])
    points = " ".join(f"{x:.1f} {y:.1f}" for x, y in (*controls, end))
    return f"M{start[0]:.1f} {start[1]:.1f}C{points}{HEADS[head]}"
