"""Boxes and links in words."""

from ...schema.columns import bytes_text, time_text
from ..replay import WAITS
from .boxes import Box
from .data_flow import DataFlow
from .flows import DATA
from .layers import Link, weight

LONGEST, LISTED = 32, 12
DATA_LABEL, OTHER_LABEL = "data", "other order"


def label_of(box: Box) -> str:
    """Returns the name of a box, shortened, and how many calls it is of."""
    label = box.label if len(box.label) <= LONGEST else f"{box.label[: LONGEST - 1]}…"
    return f"{label} ×{box.calls:,}" if box.calls > 1 else label


def share_of_path(flow: DataFlow, box: Box) -> float:
    """Returns the share of the critical path that is spent in a box."""
    return box.critical_ns / flow.critical_ns if flow.critical_ns else 0


def figures_of(flow: DataFlow, box: Box) -> str:
    """Returns the time of a box, and its share of the critical path."""
    time, share = weight(box, flow.root), share_of_path(flow, box)
    of = " device" if flow.root.device_ns else ""
    figures = [f"{time_text(time / 1000)}{of}"] if time else []
    if not time and box.host_ns:
        figures.append(f"{time_text(box.host_ns / 1000)} host")
    if share >= 0.005:
        figures.append(f"{100 * share:.0f} % of path")
    return " · ".join(figures)


def full_text(flow: DataFlow, box: Box) -> str:
    """Returns all that is known of a box, in lines."""
    lines = [" / ".join(each.label for each in box.path()[1:])]
    lines += [f"{box.calls:,} calls"] if box.calls > 1 else []
    path = f", {100 * share_of_path(flow, box):.1f} % of the critical path" if flow.critical_ns else ""
    device = f"{time_text(box.device_ns / 1000)} on the device, " if flow.root.device_ns else ""
    lines.append(f"{device}{time_text(box.host_ns / 1000)} on the host{path}")
    if box.inner:
        more = f" and {len(box.inner) - LISTED} more" if len(box.inner) > LISTED else ""
        lines.append(f"in it: {', '.join(map(label_of, box.inner[:LISTED]))}{more}")
    return "\n".join(lines)


def kind_of(link: Link) -> str:
    """Returns the kind of a link: data, or the most specific reason."""
    if DATA in link.kinds:
        return DATA_LABEL
    return next((label for bit, label in WAITS if any(kind & bit for kind in link.kinds)), OTHER_LABEL)


def link_text(link: Link) -> str:
    """Returns what flows.

    >>> link_text(Link({DATA}, size=3 << 20, count=2)), link_text(Link({8}))
    ('2 tensors, 3.0 MiB', 'event wait')
    """
    if DATA not in link.kinds:
        return kind_of(link)
    return f"{link.count:,} tensor{'s' if link.count > 1 else ''}, {bytes_text(link.size)}"
