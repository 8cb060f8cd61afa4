"""Holds a changed run in graphs: the same nodes and dependencies, with the times of a replay.

Communication that ranks share lasts as replayed, as a member also waits for the others. What waited for a free slot of
its device does so as a host delay, so that a replay of these graphs gives the changed run again.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...converter.rewiring import control_edges, edited_graph, recorded_edges
from ...schema.arguments import ASTRA_SIM
from ...schema.columns import ABSENT, Int64
from ...schema.errors import RequestError
from ...schema.graph import CHANGED_BY, MEASURED_BESIDE, STEP_START, UNPROFILED, DependencyKind, ExecutionGraph
from ...schema.linked import NEVER
from .execution import Replay


def changed_graphs(replay: Replay) -> list[ExecutionGraph]:
    """Returns a graph for each rank that holds the replayed run in place of the measured one. O(n + e).

    Raises RequestError for graphs made for ASTRA-sim, which computes the times of communication itself.
    """
    work = replay.work
    if any(graph.metadata.get("target") == ASTRA_SIM for graph in work.graphs):
        raise RequestError(f"graphs for {ASTRA_SIM} cannot hold a changed run: change generic graphs")
    duration, delay, chain_gap = work.duration_ns.copy(), work.host_delay_ns.copy(), np.full(len(work), ABSENT)
    met = work.members.row
    duration[met] = (replay.end_ns - replay.start_ns)[met]
    ready = np.full(len(work), NEVER)
    np.maximum.at(ready, work.target, replay.end_ns[work.source] + work.lag_ns)
    waited = (replay.schedule.slot_after[: len(work)] >= 0) & ~work.is_rooted
    delay[waited] += np.maximum(replay.start_ns - ready - work.wait_ns, 0)[waited]
    chained = work.kind & (DependencyKind.LAUNCH | DependencyKind.HOST_SYNC) == 0
    chain_gap[work.target[chained]] = work.lag_ns[chained]
    shift = np.where(work.is_timed, replay.start_ns - work.measured_start_ns, 0)
    columns = {"duration_ns": duration, "host_delay_ns": delay, "chain_gap_ns": chain_gap, "start_time_ns": shift}
    specs = ", ".join(change.spec for change in replay.changes)
    made_by = ({CHANGED_BY: specs} if specs else {}) | ({UNPROFILED: 1} if work.unprofiled else {})
    graphs = []
    between = np.unique(work.source * len(work) + work.target)
    for first, graph in zip(work.first_row.tolist(), work.graphs, strict=True):
        # what is left out waits for nothing
        data = recorded_edges(graph)
        edge = (data.source + first) * len(work) + data.target + first
        kept = between.searchsorted(edge, "right") > between.searchsorted(edge)
        kept |= (data.source < 0) | graph.is_start_offset[data.source]
        graph = graph if kept.all() else edited_graph(graph, data.where(kept), control_edges(graph))
        of_rank = {name: column[first : first + len(graph)] for name, column in columns.items()}
        graphs.append(_changed(graph, made_by, of_rank))
    return graphs


def _changed(graph: ExecutionGraph, made_by: dict[str, str | int], columns: Mapping[str, Int64]) -> ExecutionGraph:
    """Returns the graph with other times, by their attributes; that of the start is how much later each node starts."""
    before, gap, shift = graph.duration_ns, graph.integers("gap_ns", 0), columns["start_time_ns"]
    duration_ns, host_delay_ns, chain_gap_ns = (
        columns[f"{name}_ns"] for name in ("duration", "host_delay", "chain_gap")
    )
    chained = graph.integers("chain_gap_ns")
    chained = np.where(chained == ABSENT, gap, chained)
    delayed = graph.integers("host_delay_ns", 0)
    is_delayed, is_chained = host_delay_ns != delayed, (chain_gap_ns != ABSENT) & (chain_gap_ns != chained)
    start = graph.start_ns + shift
    times = {
        "start_time_ns": start,
        "duration_ns": duration_ns,
        "host_delay_ns": np.where(is_delayed, host_delay_ns, graph.integers("host_delay_ns")),
        "chain_gap_ns": np.where(is_chained, chain_gap_ns, graph.integers("chain_gap_ns")),
    }
    longer = duration_ns - before + np.where(is_delayed, host_delay_ns - delayed, 0)
    micros = graph.duration_micros + np.diff(np.rint(np.cumsum(longer) / 1000).astype(np.int64), prepend=0)
    # a step begins with the first host work after its mark, as work before it may come closer
    clock = graph.host_clock_start_ns
    order = np.flatnonzero(~graph.is_delay & (~graph.is_activity | graph.is_activity.all()))
    order = order[np.argsort(clock[order], kind="stable")]
    begins = clock[order]
    metadata = {name: value for name, value in graph.metadata.items() if name not in MEASURED_BESIDE} | made_by
    for name, value in graph.metadata.items():
        if (
            name.startswith(STEP_START)
            and isinstance(value, int)
            and (at := np.searchsorted(begins, value)) < len(order)
        ):
            metadata[name] = int(begins[at] + shift[order[at]])
    attributes = graph.attributes | {name: column for name, column in times.items() if (column != ABSENT).any()}
    return replace(
        graph, attributes=attributes, metadata=metadata, start_time_micros=start // 1000,
        duration_micros=np.maximum(micros, 0), report=None,
    )  # fmt: skip
