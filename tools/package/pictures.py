"""Pictures of graphs, runs and jobs: Altair charts of work over time and by rank."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .schema.columns import Categorical, Frame, Int64, Rows
from .schema.errors import require
from .tools.options import checked
from .tools.replay import NodeClass, Workload
from .tools.view import lane_names

if TYPE_CHECKING:
    import altair as alt

COLOURS = {
    NodeClass.HOST: "#8b9aab", NodeClass.COMPUTATION: "#3b78b5", NodeClass.COMMUNICATION: "#d07d22",
    NodeClass.MEMORY: "#5d9140", NodeClass.UNRECORDED: "#dde3e9", NodeClass.METADATA: "#eeeeee",
    NodeClass.DELAY: "#c23b3b",
}  # fmt: skip
ON_DEVICE = (NodeClass.COMPUTATION, NodeClass.COMMUNICATION, NodeClass.MEMORY)
ON_HOST = (NodeClass.HOST, NodeClass.COMMUNICATION)
WIDTH, LANE_HEIGHT, RANK_HEIGHT = 800, 26, 22
FADED = 0.35
US = ",.1f"


def lanes_chart(
    work: Workload,
    start_ns: Int64,
    end_ns: Int64,
    stream: int | None,
    time_us: tuple[float, float] | None,
    max_nodes: int,
    critical: Rows | None = None,
) -> "alt.Chart":
    """Returns a chart with a lane for each thread and stream, and a bar for each node; raises ValueError without any.

    It is of one stream, a time in µs, and at most so many nodes, the longest. Beside `critical` nodes others are faded.
    """
    require("chart")
    import altair as alt

    checked("plot", time_us=time_us)
    is_chosen = ~np.isin(work.node_class, (NodeClass.METADATA, NodeClass.DELAY)) & (end_ns > start_ns)
    if stream is not None:
        of_stream = [lane.is_stream and lane.stream == stream for lane in work.lanes]
        is_chosen &= np.array(of_stream, bool)[work.lane]
    if time_us is not None:
        is_chosen &= (end_ns > time_us[0] * 1000) & (start_ns < time_us[1] * 1000)
    chosen = np.flatnonzero(is_chosen)
    rows = chosen[np.argsort(-(end_ns - start_ns)[chosen], kind="stable")][:max_nodes]
    if not len(rows):
        streams = sorted({lane.stream for lane in work.lanes if lane.is_stream})
        raise ValueError(f"there is no node in this part of the run, which has the streams {streams}")
    names, classes = _lane_labels(work), [kind.label for kind in NodeClass]
    bars: dict[str, Any] = {
        "name": Categorical.joined(graph.name for graph in work.graphs).take(rows),
        "id": np.concatenate([graph.id for graph in work.graphs])[rows],
        "class": Categorical(work.node_class[rows].astype(np.int32), classes),
        "lane": Categorical(work.lane[rows].astype(np.int32), names), "start": start_ns[rows] / 1000,
        "end": end_ns[rows] / 1000, "time": (end_ns - start_ns)[rows] / 1000,
        "critical": np.isin(rows, rows if critical is None else critical),
    }  # fmt: skip
    values = Frame("bars", bars).rows()
    left_out = f"the {len(rows):,} longest of {len(chosen):,} nodes" if len(rows) < len(chosen) else ""
    lanes = sorted({*work.lane[rows].tolist()}, key=lambda lane: (work.lanes[lane].rank, work.lanes[lane].is_stream))
    chart = _bar_chart(
        values, LANE_HEIGHT, title=left_out, x=alt.X("start:Q", title="time [µs]", scale=alt.Scale(zero=False)),
        x2=alt.X2("end:Q"), y=alt.Y("lane:N", title=None, sort=[names[lane] for lane in lanes]),
        opacity=alt.condition("datum.critical", alt.value(1), alt.value(FADED)),
        tooltip=["name:N", "class:N", "id:Q", *(alt.Tooltip(f"{time}:Q", format=US) for time in ("start", "time"))],
    )  # fmt: skip
    return chart.interactive(bind_y=False)


def _lane_labels(work: Workload) -> list[str]:
    names, ranks = lane_names(work), work.rank_labels()
    if len(work.graphs) == 1:
        return names
    return [f"rank {ranks[lane.rank]} · {name}" for lane, name in zip(work.lanes, names, strict=True)]


def ranks_chart(work: Workload, start_ns: Int64, end_ns: Int64) -> "alt.Chart":
    """Returns a chart with a bar for each rank: how long its streams, or without any its threads, work, by class."""
    require("chart")
    import altair as alt

    on_device = np.isin(work.node_class, ON_DEVICE) & work.is_activity
    kinds, is_counted = (ON_DEVICE, on_device) if on_device.any() else (ON_HOST, np.isin(work.node_class, ON_HOST))
    position, time = work.ranks_of(np.arange(len(work))), (end_ns - start_ns) / 1000
    values = [
        {"rank": label, "class": kind.label, "order": kind, "time": float(time[chosen].sum())}
        for number, label in enumerate(work.rank_labels())
        for kind in kinds
        if (chosen := is_counted & (position == number) & (work.node_class == kind)).any()
    ]
    return _bar_chart(
        values, RANK_HEIGHT, x=alt.X("time:Q", title=f"work of all {'streams' if on_device.any() else 'threads'} [µs]"),
        y=alt.Y("rank:N", sort=work.rank_labels()), order=alt.Order("order:Q"),
        tooltip=["rank:N", "class:N", alt.Tooltip("time:Q", format=US)],
    )  # fmt: skip


def _bar_chart(values: list[dict[str, Any]], height: int, *, title: str | None = None, **channels: Any) -> "alt.Chart":
    """Returns a chart of bars, coloured by their class, with rows of this height."""
    import altair as alt

    present = {value["class"] for value in values}
    colours = {kind.label: colour for kind, colour in COLOURS.items() if kind.label in present}
    scale = alt.Scale(domain=[*colours], range=[*colours.values()])
    colour = alt.Color("class:N", scale=scale, legend=alt.Legend(orient="top", title=None))
    settings: dict[str, Any] = {} if title is None else {"title": title}
    data = alt.InlineData(values=[])
    data["values"] = values  # given at first, each would be checked against the whole schema
    bars = alt.Chart(data, **settings).mark_bar().encode(color=colour, **channels)
    chart: alt.Chart = bars.properties(width=WIDTH, height=alt.Step(height))
    return chart
