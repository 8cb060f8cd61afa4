"""Turns a linked trace into an execution graph.

The steps: cut the host timeline into nodes, apply the dependency rules, order the nodes, fill the columns.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..schema.arguments import GENERIC, wrong_argument
from ..schema.columns import ActivityRows, OpRows, Ragged
from ..schema.comm_groups import RankList
from ..schema.counts import Counts
from ..schema.graph import CONCURRENCY_LIMIT, ConvertReport, DependencyKind, ExecutionGraph
from ..schema.linked import GROUP_INIT, LinkedTrace, on_host_clock, without_guesses
from ..schema.machine import of_name
from ..schema.reasons import Reason
from .dependencies import LOOKED_BACK, RULES, calling_slices, inferred, launch, with_synchronous_launches
from .edges import Edges, check, deduplicated, order_through_circles
from .graph_columns import BuiltGraph, graph_of
from .options import Options
from .rewiring import HOST_TIME_AFTER, without_host
from .targets import lower_for_target
from .timeline import (
    ConversionContext,
    Delays,
    GraphNodes,
    by_cause,
    concurrency_limit,
    find_delays,
    slice_host,
    start_timing,
)
from .work import KernelWork


def convert(
    linked: LinkedTrace,
    options: Options | None = None,
    groups: Mapping[RankList, int] | None = None,
    work: KernelWork | None = None,
) -> ExecutionGraph:
    """Converts a linked trace into the execution graph of one rank. O(n log n) in ops, calls and activities.

    >>> from execgraph import link
    >>> folder = "tests/data/training"
    >>> graph = convert(link(f"{folder}/host_rank0.json.gz", f"{folder}/device_rank0.json.gz"))
    >>> graph.report.activities
    63

    The graph's `report` says what became of everything in the trace, its `changes` what was then made different for
    the target.

    Args:
        linked: The linked trace.
        options: How to convert; by default everything that is known is kept.
        groups: The numbers of the job's communicator groups, by rank list; by default they follow from this rank
            alone.
        work: The work of the trace's kernels, if it is known already.

    Raises:
        DataError: The trace holds nothing that the options keep.
        TypeError: `linked` is no linked trace, or `options` are no Options.
    """
    if not isinstance(linked, LinkedTrace):
        raise wrong_argument("convert(linked)", "a LinkedTrace, which link and read_linked return", linked)
    if not isinstance(options, Options | None):
        raise wrong_argument("convert(linked, options)", 'Options, such as Options(target="astra-sim")', options)
    options = options or Options()
    return lower_for_target(build_generic_graph(linked, options, work), options.target, groups)


def build_generic_graph(linked: LinkedTrace, options: Options, work: KernelWork | None = None) -> ExecutionGraph:
    """Returns the generic graph from which `lower_for_target` makes the one for `options.target`.

    For callers that have to see the graphs of all ranks first.
    """
    linked = linked if options.inferred else without_guesses(linked)
    recorded = linked.activities
    linked = replace(linked, activities=on_host_clock(recorded, linked.info.machine))
    shift = linked.activities.start - recorded.start
    context = ConversionContext(linked, slice_host(linked, options.shortest_slice), shift)
    edges, dropped = _dependencies(context, options)
    timing = start_timing(context, edges)
    limit = concurrency_limit(context, timing)
    if limit.slot_counts:
        # usual latencies and gaps are those of activities that did not wait for a slot of a full device
        timing = start_timing(context, edges, limit.waited_for_slot)
    delays = find_delays(context, timing, limit)
    kept_delays = delays if options.delays else delays.none()
    # ops that only describe process groups: simulators read these from a separate file
    is_group = linked.ops.name.where(lambda name: options.target == GENERIC and GROUP_INIT in name)
    nodes = GraphNodes(context, kept_delays, OpRows(np.flatnonzero(is_group)))
    if options.promote == "all":
        edges = deduplicated(with_synchronous_launches(context, edges), len(nodes))
    nodes, data, control, in_circles = _ordered(nodes, Edges.joined([edges, nodes.edges()]))
    built = graph_of(nodes, timing, data, control, options=options, work=work)
    graph = built.graph
    if options.host:
        graph.metadata |= {f"{CONCURRENCY_LIMIT}{device}": count for device, count in limit.slot_counts.items()}
    else:
        graph = without_host(graph)
    dropped.add(in_circles, built.unusable_arguments)
    graph.report = replace(_report(context, built._replace(graph=graph), kept_delays), dropped=dropped)
    return graph


def _dependencies(context: ConversionContext, options: Options) -> tuple[Edges, Counts]:
    """Returns the edges of all rules, and by reason the number of waits that were not searched for.

    In a trace that does not record all waits, edges for activities that start late by the rules are inferred.
    """
    rules = [rule(context) for rule in RULES if rule.__name__ not in options.left_out]
    edges = Edges.joined(rules)
    if not options.inferred:
        edges = edges.where(edges.kind & int(DependencyKind.INFERRED) == 0)
    edges = deduplicated(edges, context.node_count)
    info = context.linked.info
    if not options.inferred or (info.sync_records and not info.unresolved_waits):
        return edges, Counts()
    late = ActivityRows(np.flatnonzero(start_timing(context, edges).delay > 0))
    inferred_edges, cut_off = inferred(context, late, of_name(info.machine.launch, "").upper)
    dropped = Counts().add({Reason.LATE_BEYOND_SEARCH.of(LOOKED_BACK): cut_off})
    return deduplicated(Edges.joined([edges, inferred_edges]), context.node_count), dropped


def _ordered(nodes: GraphNodes, edges: Edges) -> tuple[GraphNodes, Edges, Edges, Counts]:
    """Returns the nodes in order, their edges, and how many data dependencies were dropped as they form circles."""
    control = Edges.joined([launch(nodes.context), calling_slices(nodes.context)])
    order, backward = order_through_circles(nodes.start, Edges.joined([edges, control]))
    dropped = Counts()
    if backward.any():
        in_circles, in_control = np.split(backward, [len(edges.source)])
        dropped[Reason.DEPENDENCIES_IN_CIRCLES] = int(in_circles.sum())
        edges, control = edges.where(~in_circles), control.where(~in_control)
    row_of = np.empty(len(order), np.int64)
    row_of[order] = np.arange(len(order))
    edges, control = edges.renumbered(row_of), control.renumbered(row_of)
    check(edges, control, len(order))
    return replace(nodes, order=order), edges, control, dropped


def _report(context: ConversionContext, built: BuiltGraph, delays: Delays) -> ConvertReport:
    graph, communication, work, _ = built
    kinds = graph.attributes["data_dep_kinds"]
    values = kinds.values if isinstance(kinds, Ragged) else np.empty(0, np.int64)
    edges = {kind.label: int((values & int(kind) != 0).sum()) for kind in DependencyKind}
    overlap = context.linked.activities.end - context.activity_end
    delay_counts, delays_us = by_cause(delays)
    return ConvertReport(
        nodes=len(graph),
        edges={name: count for name, count in edges.items() if count},
        host_slices=int((~graph.is_activity & ~graph.is_delay).sum()),
        activities=len(context.linked.activities),
        folded_slices=context.timeline.folded,
        zero_length_ops=context.timeline.zero_length,
        gaps_us=float(graph.integers("gap_ns", 0)[graph.is_activity].sum()) / 1000,
        overlap_us=float(overlap.sum()) / 1000,
        host_time_after_us=float(graph.integers("host_delay_ns", 0)[graph.name.equal(HOST_TIME_AFTER)].sum()) / 1000,
        span_us=float(context.end.max(initial=context.start_of_trace) - context.start_of_trace) / 1000,
        delays=delay_counts,
        delays_us=delays_us,
        kernels_with_work=work.with_work,
        kernels_without_work=work.without_work,
        time_with_work_pct=100 * work.with_work_ns / work.total_ns if work.total_ns else 0.0,
        unknown_communications=communication.unknown_types,
        unknown_dtypes=communication.unknown_dtypes,
    )
