"""Turns a linked trace into an execution graph: cut the host timeline, apply the dependency rules, order the nodes, write columns."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ..schema.columns import Int64, Ragged
from ..schema.graph import ConvertReport, DependencyKind, ExecutionGraph
from ..schema.linked import LinkedTrace, without_guesses
from .annex import Annex
from .attributes import graph_of
from .calling import calling_slices
from .communication_columns import CommunicationColumns
from .dependencies import RULES
from .dependencies.inferred import inferred
from .dependencies.launch import launch
from .device_only import without_host
from .order import check, deduplicated, topological_order
from .promotion import block_on_activities
from .run import Edges, Run
from .timeline import slice_host

GROUP_INIT = "process_group:init"


@dataclass(slots=True)
class Options:
    """How to convert; without `host` only activities are in the graph.

    Where only some ranks of a job are simulated, groups lose the members that are not, unless `whole_groups`: then what such groups
    communicate takes its measured time. Times in ns: slices below `shortest_slice` are folded, device gaps up to `largest_gap` kept.
    """

    target: str = "generic"
    promote: str = "sync"
    io: str = "full"
    inferred: bool = True
    host: bool = True
    whole_groups: bool = False
    shortest_slice: int = 1_000
    largest_gap: int = 10_000


def convert(linked: LinkedTrace, options: Options | None = None) -> ExecutionGraph:
    """The execution graph of one rank; its `report` says what became of everything. O(n log n) in ops, calls and activities."""
    options = options or Options()
    linked = linked if options.inferred else without_guesses(linked)
    run = Run(linked, slice_host(linked, options.shortest_slice))
    edges = _trusted(Edges.joined([rule(run) for rule in RULES]), options.inferred)
    edges = deduplicated(edges, run.node_count)
    if options.inferred and (not linked.info.sync_records or linked.info.unresolved_waits):
        late = _late(run, edges, options.largest_gap)
        edges = deduplicated(Edges.joined([edges, inferred(run, late, options.largest_gap)]), run.node_count)
    delay = run.linked.activities.start - release(run, edges)
    late = np.flatnonzero(delay > options.largest_gap)
    annex = Annex(_held_from_before(run, late), _group_nodes(run, options.target), run.node_count)
    edges = Edges.joined([edges, annex.edges(run)])
    if options.promote == "all":
        edges = deduplicated(block_on_activities(run, edges), annex.node_count)
    control = Edges.joined([launch(run), calling_slices(run)])
    order = topological_order(annex.start(run), Edges.joined([edges, control]), lambda: annex.names(run))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    edges = Edges(place[edges.source], place[edges.target], edges.kind)
    control = Edges(place[control.source], place[control.target], control.kind)
    check(edges, control, len(order))
    gap = np.where((delay > 0) & (delay <= options.largest_gap), delay, 0)
    graph, communication = graph_of(run, annex, gap, order, edges, control, options)
    unexplained = delay[np.setdiff1d(late, annex.carried)]
    if not options.host:
        graph = without_host(graph)
    graph.report = _report(run, graph, annex, gap, unexplained, communication)
    return graph


def _trusted(edges: Edges, with_inferred: bool) -> Edges:
    if with_inferred:
        return edges
    known = (edges.kind & int(DependencyKind.INFERRED)) == 0
    return Edges(edges.source[known], edges.target[known], edges.kind[known])


def release(run: Run, edges: Edges) -> Int64:
    """When each activity's dependencies had all ended, as measured; the trace's start for one without any."""
    first = run.activities_from
    to_activity = (edges.target >= first) & (edges.target < run.unrecorded_from)
    released = np.full(len(run.linked.activities), run.start_of_trace, np.int64)
    np.maximum.at(released, edges.target[to_activity] - first, run.end[edges.source[to_activity]])
    return released


def _late(run: Run, edges: Edges, largest: int) -> Int64:
    """Activities that started later than their dependencies explain."""
    return np.flatnonzero(run.linked.activities.start - release(run, edges) > largest)


def _held_from_before(run: Run, rows: Int64) -> Int64:
    """Those of the activities that nothing recorded came before on their stream, or that waited for what the trace does not hold."""
    waits = run.linked.device_waits
    held = np.ones(len(run.linked.activities), np.bool_)
    following = run.stream_next
    held[following[following >= 0]] = False
    held[waits.target_row[waits.source_row < 0]] = True
    return rows[held[rows]]


def _group_nodes(run: Run, target: str) -> Int64:
    """Ops that only describe process groups; simulators read them from a file of their own, so only generic graphs have them."""
    ops = run.linked.ops
    codes = [code for code, name in enumerate(ops.name.table) if GROUP_INIT in name]
    return np.flatnonzero(np.isin(ops.name.codes, codes)) if target == "generic" else np.empty(0, np.int64)


def _report(
    run: Run, graph: ExecutionGraph, annex: Annex, gap: Int64, unexplained: Int64, communication: CommunicationColumns
) -> ConvertReport:
    kinds = graph.attributes["data_dep_kinds"]
    values = kinds.values if isinstance(kinds, Ragged) else np.empty(0, np.int64)
    counted = Counter[str]()
    for kind in DependencyKind:
        counted[str(kind.name).lower().replace("_", " ")] = int((values & int(kind) != 0).sum())
    overlap = run.linked.activities.end - run.activity_end
    return ConvertReport(
        nodes=len(graph),
        edges={name: count for name, count in counted.items() if count},
        host_slices=int((~graph.is_activity).sum()),
        activities=len(run.linked.activities),
        folded_slices=run.timeline.folded,
        zero_length_ops=run.timeline.zero_length,
        gaps_us=float(gap.sum()) / 1000,
        overlap_us=float(overlap.sum()) / 1000,
        unexplained_delays=len(unexplained),
        unexplained_us=float(unexplained.sum()) / 1000,
        carried_in=len(annex.carried),
        unknown_communications=communication.unknown_types,
        unknown_dtypes=communication.unknown_dtypes,
    )
