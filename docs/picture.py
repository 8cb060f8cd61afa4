"""Draws docs/graph.svg: part of the execution graph of the sample under tests/data/training. Needs matplotlib.

python docs/picture.py out/demo/graph.0.et docs/graph.svg
"""

import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from execgraph.schema.columns.column_types import ABSENT, Ragged
from execgraph.schema.graph.execution_graph import DependencyKind, ExecutionGraph, NodeType

WINDOW_US = (120.0, 1180.0)
COLOURS = {
    "host": "#9aa7b5",
    "wait or idle": "#e3e7ec",
    "computation": "#3b78b5",
    "communication": "#d9822b",
    "memory": "#6b9e4a",
}
ARROWS = {
    DependencyKind.LAUNCH: ("launch", "#b9c2cc", 0.5),
    DependencyKind.EVENT_WAIT: ("event wait", "#c23b3b", 1.6),
    DependencyKind.HANDOFF: ("hand-off", "#7a4fb5", 1.6),
    DependencyKind.HOST_SYNC: ("host sync", "#2a9d8f", 1.6),
}


def main(graph_path: str, picture_path: str) -> None:
    graph = ExecutionGraph.read(graph_path)
    start = (graph.start_ns - graph.start_ns.min()) / 1000
    end = start + graph.duration_ns / 1000
    lanes = lane_names(graph)
    order = sorted(set(lanes) - {"process groups"}, key=lambda name: (name.startswith("stream"), name))
    row = {name: len(order) - 1 - index for index, name in enumerate(order)}
    figure, axes = plt.subplots(figsize=(11, 3))
    seen = np.flatnonzero((end >= WINDOW_US[0]) & (start <= WINDOW_US[1]) & np.array([name in row for name in lanes]))
    for node in seen.tolist():
        width = max(end[node] - start[node], 0.4)
        axes.barh(
            row[lanes[node]],
            width,
            left=start[node],
            height=0.5,
            color=colour(graph, node),
            edgecolor="white",
            linewidth=0.3,
            zorder=2,
        )
    draw_arrows(graph, axes, set(seen.tolist()), start, end, [row.get(name, 0) for name in lanes])
    axes.set_yticks(list(row.values()), list(row))
    axes.set_xlim(*WINDOW_US)
    axes.set_xlabel("µs from the start of the trace")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    handles = [plt.Rectangle((0, 0), 1, 1, color=value) for value in COLOURS.values()]
    handles += [plt.Line2D([], [], color=value, linewidth=width) for _, value, width in ARROWS.values()]
    labels = [*COLOURS, *(name for name, _, _ in ARROWS.values())]
    axes.legend(
        handles,
        labels,
        ncols=9,
        loc="lower center",
        bbox_to_anchor=(0.46, 1.0),
        frameon=False,
        fontsize=7.5,
        handlelength=1.2,
    )
    figure.tight_layout()
    figure.savefig(picture_path, metadata={"Date": None})


def lane_names(graph: ExecutionGraph) -> list[str]:
    thread, stream = graph.integers("tid"), graph.integers("stream")
    numbers = {number: index for index, number in enumerate(np.unique(thread[thread != ABSENT]).tolist()[::-1])}
    known = {0: "autograd thread", 1: "main thread"}
    return [
        f"stream {stream[node]}" if is_activity else known.get(numbers[int(thread[node])], "process groups")
        for node, is_activity in enumerate(graph.is_activity.tolist())
    ]


def colour(graph: ExecutionGraph, node: int) -> str:
    if not graph.is_activity[node]:
        idle = graph.name[node] == "host idle" or "Synchronize" in graph.name[node]
        return COLOURS["wait or idle" if idle else "host"]
    if graph.type[node] == NodeType.COMM_COLL:
        return COLOURS["communication"]
    return COLOURS["memory" if graph.texts("cat")[node].startswith("gpu_mem") else "computation"]


def draw_arrows(
    graph: ExecutionGraph, axes: plt.Axes, seen: set[int], start: np.ndarray, end: np.ndarray, row: list[int]
) -> None:
    kinds = graph.attributes["data_dep_kinds"]
    assert isinstance(kinds, Ragged)
    for node in seen:
        for source, kind in zip((graph.data_deps[node] - 1).tolist(), kinds[node].tolist(), strict=True):
            for bit, (_, line, width) in ARROWS.items():
                if kind & bit and source in seen and row[source] != row[node]:
                    down = -0.25 if row[source] > row[node] else 0.25
                    points = {"xy": (start[node], row[node] - down), "xytext": (end[source], row[source] + down)}
                    axes.annotate(
                        "",
                        **points,
                        arrowprops={"arrowstyle": "->", "color": line, "lw": width, "shrinkA": 0, "shrinkB": 0},
                        zorder=3,
                    )


if __name__ == "__main__":
    main(*sys.argv[1:])
