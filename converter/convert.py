"""Turns a linked trace into an execution graph: nodes of the host timeline, edges by the rules, columns by id. A kernel
that starts 2 µs after the one before it has a gap of 2 µs. A wait that returns 8 µs after the end of what it awaited,
where calls that have nothing to wait for take 2 µs, has a gap of 6 µs and lasts 2.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import chain

import numpy as np

from ..schema.arguments import GENERIC, wrong_argument
from ..schema.columns import ABSENT, ActivityRows, Categorical, Int64, NodeIds, OpRows, Ragged, cumcount, positions
from ..schema.comm_groups import RankList
from ..schema.graph import (
    CONCURRENCY_LIMIT,
    DATA_WAIT_WITHOUT_PROFILER_NS,
    DEVICE_NAME,
    LOSSES,
    STEP_START,
    STEP_WITHOUT_PROFILER_NS,
    STEPS,
    Column,
    ConvertReport,
    DependencyKind,
    ExecutionGraph,
    NodeType,
    TensorText,
)  # fmt: skip
from ..schema.linked import (
    FOREVER,
    GROUP_INIT,
    NEVER,
    NO_TENSORS,
    LinkedTrace,
    on_host_clock,
    step_count,
    step_starts,
    without_guesses,
)  # fmt: skip
from ..schema.machine import of_name
from ..schema.reasons import Counts, Reason
from .communication import CommunicationColumns, CommunicationNode, communication_columns
from .dependencies import LOOKED_BACK, RULES, calling_slices, inferred, launch, with_synchronous_launches
from .edges import Edges, check, deduplicated, order_through_circles
from .options import Options
from .rewiring import HOST_TIME_AFTER, lanes_of, used, whole_microseconds, without_host
from .targets import lower_for_target
from .timeline import (
    ConversionContext,
    Delays,
    GraphNodes,
    StartTiming,
    by_cause,
    concurrency_limit,
    find_delays,
    slice_host,
    start_timing,
)  # fmt: skip
from .work import KernelWork, kernel_work


def convert(
    linked: LinkedTrace,
    options: Options | None = None,
    groups: Mapping[RankList, int] | None = None,
    work: KernelWork | None = None,
) -> ExecutionGraph:
    """Converts a linked trace into the execution graph of one rank, with the numbers of the job's communicator `groups`
    and the `work` of kernels where they are known. O(n log n) in ops, calls and activities.

    Raises DataError if the trace holds nothing that the options keep, TypeError if an argument is of another kind.
    """
    if not isinstance(linked, LinkedTrace):
        raise wrong_argument("convert(linked)", "a LinkedTrace, which link and read_linked return", linked)
    if not isinstance(options, Options | None):
        raise wrong_argument("convert(linked, options)", 'Options, such as Options(target="astra-sim")', options)
    options = options or Options()
    return lower_for_target(build_generic_graph(linked, options, work), options.target, groups)


def build_generic_graph(linked: LinkedTrace, options: Options, work: KernelWork | None = None) -> ExecutionGraph:
    """Returns the generic graph for `lower_for_target`, for callers that have to see the graphs of all ranks first."""
    linked = linked if options.inferred else without_guesses(linked)
    recorded = linked.activities
    linked = replace(linked, activities=on_host_clock(recorded, linked.info.machine))
    shift = linked.activities.start - recorded.start
    context = ConversionContext(linked, slice_host(linked, options.shortest_slice), shift)
    edges, dropped = _dependencies(context, options)
    timing = start_timing(context, edges)
    slot_counts, waited_for_slot = concurrency_limit(context, timing)
    if slot_counts:
        # usual latencies and gaps are those of activities that did not wait for a slot of a full device
        timing = start_timing(context, edges, waited_for_slot)
    delays = find_delays(context, timing, waited_for_slot)
    kept_delays = delays if options.delays else delays.none()
    # ops that only describe process groups: simulators read these from a separate file
    is_group = linked.ops.name.where(lambda name: options.target == GENERIC and GROUP_INIT in name)
    nodes = GraphNodes(context, kept_delays, OpRows(np.flatnonzero(is_group)))
    if options.promote == "all":
        edges = deduplicated(with_synchronous_launches(context, edges), len(nodes))
    nodes, edges, control, in_circles = _ordered(nodes, Edges.joined([edges, nodes.edges()]))
    graph, communication, work, unusable = _graph_of(nodes, timing, edges, control, options=options, work=work)
    if options.host:
        graph.metadata |= {f"{CONCURRENCY_LIMIT}{device}": count for device, count in slot_counts.items()}
    else:
        graph = without_host(graph)
    report = _report(context, graph, communication, work, kept_delays)
    graph.report = replace(report, dropped=dropped.add(in_circles, unusable))
    return graph


def _dependencies(context: ConversionContext, options: Options) -> tuple[Edges, Counts]:
    """Returns the edges of all rules, and by reason the number of waits that were not searched for."""
    rules = [rule(context) for rule in RULES if rule.__name__ not in options.left_out]
    edges = Edges.joined(rules)
    if not options.inferred:
        edges = edges.where(edges.kind & int(DependencyKind.INFERRED) == 0)
    edges = deduplicated(edges, context.node_count)
    info = context.linked.info
    if not options.inferred or (info.sync_records and not info.unresolved_waits):
        return edges, Counts()
    is_late = start_timing(context, edges).delay > 0
    # what follows work of its own graph waits for nothing outside
    is_late[edges.target[edges.kind & int(DependencyKind.LAUNCHED_GRAPH) != 0] - context.activities_from] = False
    late = ActivityRows(np.flatnonzero(is_late))
    inferred_edges, cut_off = inferred(context, late, of_name(info.machine.launch, "").upper)
    dropped = Counts().add({Reason.LATE_BEYOND_SEARCH.of(LOOKED_BACK): cut_off})
    return deduplicated(Edges.joined([edges, inferred_edges]), context.node_count), dropped


def _ordered(nodes: GraphNodes, edges: Edges) -> tuple[GraphNodes, Edges, Edges, Counts]:
    """Returns the nodes in order, their edges by target and source, and how many data edges of circles were dropped."""
    control = Edges.joined([launch(nodes.context), calling_slices(nodes.context)])
    order, backward = order_through_circles(nodes.start, Edges.joined([edges, control]))
    dropped = Counts()
    if backward.any():
        in_circles, in_control = np.split(backward, [len(edges.source)])
        dropped[Reason.DEPENDENCIES_IN_CIRCLES] = int(in_circles.sum())
        edges, control = edges.where(~in_circles), control.where(~in_control)
    row_of = positions(order, len(order))
    edges, control = edges.renumbered(row_of, row_of).in_order(), control.renumbered(row_of, row_of).in_order()
    check(edges, control, len(order))
    return replace(nodes, order=order), edges, control, dropped


def _report(
    context: ConversionContext,
    graph: ExecutionGraph,
    communication: CommunicationColumns,
    work: KernelWork,
    delays: Delays,
) -> ConvertReport:
    kinds = graph.attributes["data_dep_kinds"]
    values = kinds.values if isinstance(kinds, Ragged) else np.empty(0, np.int64)
    edges = {kind.label: int((values & int(kind) != 0).sum()) for kind in DependencyKind}
    overlap = context.linked.activities.end - context.activity_end
    delay_counts, delays_us = by_cause(delays)
    return ConvertReport(
        nodes=len(graph), edges={name: count for name, count in edges.items() if count},
        host_slices=int((~graph.is_activity & ~graph.is_delay).sum()), activities=len(context.linked.activities),
        folded_slices=context.timeline.folded, zero_length_ops=context.timeline.zero_length,
        gaps_us=float(graph.integers("gap_ns", 0)[graph.is_activity].sum()) / 1000,
        overlap_us=float(overlap.sum()) / 1000,
        host_time_after_us=float(graph.integers("host_delay_ns", 0)[graph.name.equal(HOST_TIME_AFTER)].sum()) / 1000,
        span_us=float(context.end.max(initial=context.start_of_trace) - context.start_of_trace) / 1000,
        delays=delay_counts, delays_us=delays_us, kernels_with_work=work.with_work,
        kernels_without_work=work.without_work,
        time_with_work_pct=100 * work.with_work_ns / work.total_ns if work.total_ns else 0.0,
        unknown_communications=communication.unknown_types, unknown_dtypes=communication.unknown_dtypes,
    )  # fmt: skip


def _graph_of(
    nodes: GraphNodes, timing: StartTiming, data: Edges, control: Edges, *, options: Options, work: KernelWork | None
) -> tuple[ExecutionGraph, CommunicationColumns, KernelWork, Counts]:
    """Returns the graph, its communication, its work, and the number of unusable arguments of ops by reason."""
    context, columns = nodes.context, _Columns(nodes)
    count = len(columns.order)
    communication = communication_columns(context.linked, count, columns.communications())
    communication.types[columns.order >= nodes.first_group] = NodeType.METADATA
    work = kernel_work(context.linked, context.op_tree) if work is None else work
    dependencies = Ragged.grouped(data.target, data.source + 1, count)
    of_all = columns.times(timing, data), columns.of_ops(), columns.of_python(), columns.of_activities(work)
    attributes = used(chain(*of_all, communication.attributes.items()))
    graph = ExecutionGraph(
        id=NodeIds(np.arange(1, count + 1, dtype=np.int64)), name=nodes.names, type=communication.types,
        data_deps=dependencies, ctrl_deps=Ragged.grouped(control.target, control.source + 1, count),
        start_time_micros=np.zeros(count, np.int64), duration_micros=np.zeros(count, np.int64),
        attributes=attributes | {"data_dep_kinds": Ragged(dependencies.starts, data.kind)}, metadata=_metadata(context),
    )  # fmt: skip
    graph.start_time_micros = graph.integers("start_time_ns") // 1000
    graph.duration_micros = whole_microseconds(graph.duration_ns + graph.integers("gap_ns", 0), lanes_of(graph))
    unusable = Counts()
    if options.io == "full":
        graph.tensors = columns.tensors(unusable)
    return graph, communication, work, unusable.without_zeros()


class _Columns:
    """Columns of nodes in the order of the graph."""

    def __init__(self, nodes: GraphNodes) -> None:
        self.nodes, self.context, self.order = nodes, nodes.context, np.arange(len(nodes))[nodes.order]
        timeline = self.context.timeline
        # waits and idle time belong to no op
        self.op_of_slice = np.where(timeline.is_wait, -1, timeline.op_row)
        self.op = OpRows(nodes.column(self.op_of_slice, missing=-1))
        self.slice = np.where(self.op >= 0, cumcount(self.op), ABSENT)
        """The number of each slice within its op, from 0; ABSENT for a node without an op."""

    def times(self, timing: StartTiming, data: Edges) -> Iterator[tuple[str, Column]]:
        """Yields the columns of times; `latency_ns` and `chain_gap_ns` are there where they differ from `gap_ns`."""
        context, timeline, order = self.context, self.context.timeline, self.order
        start, end = self.nodes.start, self.nodes.end
        # the time from the end of each row's last dependency, or from the trace's start, to its own start
        ready = np.full(len(start), start.min(initial=FOREVER))
        ready[data.target] = NEVER
        np.maximum.at(ready, data.target, end[data.source])
        is_activity = (order >= context.activities_from) & (order < context.unrecorded_from)
        has_gap = (timeline.return_ns > 0) | (timeline.call_ns > 0)
        of_waits, call_ns = (np.where(has_gap, column, ABSENT) for column in (timeline.return_ns, timeline.call_ns))
        gap = np.where(is_activity, np.maximum(start - ready, 0), self.nodes.column(of_waits))
        latency, chain = self.nodes.column(activities=timing.latency), self.nodes.column(call_ns, timing.gap)
        is_delay = (order >= context.node_count) & (order < self.nodes.first_group)
        yield "is_cpu_op", (~is_activity & ~is_delay).astype(np.int64)
        yield "start_time_ns", start - self.nodes.column(activities=context.clock_shift, missing=0)
        yield "duration_ns", end - start
        yield "gap_ns", gap
        yield "latency_ns", np.where(latency == gap, ABSENT, latency)
        yield "chain_gap_ns", np.where(chain == gap, ABSENT, chain)
        yield "delay", self.nodes.column(delays=self.nodes.delays.cause)
        yield "overlap_ns", self.nodes.column(activities=context.linked.activities.end - context.activity_end)

    def of_ops(self) -> Iterator[tuple[str, Column]]:
        """Yields the columns of what is recorded of ops, on their slices; of activities the op that launched them."""
        ops, activities = self.context.linked.ops, self.context.linked.activities
        by_host = ops.recorded_by_host

        def of_op(values: Int64, rows: OpRows = self.op) -> Int64:
            # the row -1, of nodes without an op, takes the last value: ABSENT
            return np.append(values, ABSENT)[rows]

        launched_by = OpRows(self.nodes.column(self.op_of_slice, activities.op_row, missing=-1))
        schema = np.append(np.where(ops.op_schema.where(bool), ops.op_schema.codes, -1), -1)[self.op]
        yield "op_id", of_op(np.where(by_host, ops.id, ABSENT), launched_by)
        yield "slice", self.slice
        yield "tid", self.nodes.threads
        yield "rf_id", of_op(ops.rf_id)
        yield "fw_parent", of_op(np.where(by_host, ops.fw_parent, ABSENT))
        yield "seq_id", of_op(ops.seq_id)
        yield "scope", of_op(ops.scope)
        yield "fw_tid", of_op(ops.fw_tid)
        yield "op_schema", Categorical(schema.astype(np.int32), ops.op_schema.table)

    def of_python(self) -> Iterator[tuple[str, Column]]:
        """Yields the columns of the modules and functions of host nodes, by their op or call, and of activities."""
        linked, timeline = self.context.linked, self.context.timeline
        tables = linked.ops, linked.calls, linked.activities
        for name in ("module", "python_function"):
            of_op, of_call, of_activity = (getattr(table, name) for table in tables)
            if of_op is None or of_call is None or of_activity is None:
                continue
            names = Categorical.joined((of_op, of_call, of_activity))
            ops, calls, activities = np.split(names.codes.astype(np.int64), np.cumsum([len(of_op), len(of_call)]))
            of_called = np.append(calls, -1)[timeline.call_row]
            of_host = np.where(self.op_of_slice >= 0, np.append(ops, -1)[self.op_of_slice], of_called)
            codes = self.nodes.column(of_host, activities, missing=-1)
            yield name, Categorical(codes.astype(np.int32), names.table)

    def of_activities(self, work: KernelWork) -> Iterator[tuple[str, Column]]:
        """Yields the columns of where activities ran, and of the operations, bytes and sizes of elements of kernels."""
        activities = self.context.linked.activities
        category = self.nodes.column(activities=activities.category.codes.astype(np.int64), missing=-1)
        correlation = np.where(activities.correlation != 0, activities.correlation, ABSENT)
        yield "device", self.nodes.column(activities=activities.device)
        yield "stream", self.nodes.column(activities=activities.stream)
        yield "correlation", self.nodes.column(activities=correlation)
        yield "cat", Categorical(category.astype(np.int32), activities.category.table)
        yield "num_ops", self.nodes.column(activities=work.operations)
        yield "tensor_size", self.nodes.column(activities=work.bytes)
        yield "element_size", self.nodes.column(activities=work.element)

    def communications(self) -> list[CommunicationNode]:
        """Returns the nodes that communicate, in order: activities, and a slice of each host op that does."""
        linked = self.context.linked
        of_activity = self.nodes.column(activities=linked.activities.communication_row, missing=-1)
        activity = self.order - self.context.activities_from
        nodes = [
            CommunicationNode(row, int(of_activity[row]), linked.activities.name[int(activity[row])])
            for row in np.flatnonzero(of_activity >= 0).tolist()
        ]
        of_host = self.nodes.column(self.context.timeline.communicates.astype(np.int64), missing=0)
        slices = np.flatnonzero(of_host)
        rows = linked.ops.communication_row[self.op[slices]]
        nodes += [CommunicationNode(*pair, "") for pair in zip(slices.tolist(), rows.tolist(), strict=True)]
        return sorted(nodes)

    def tensors(self, unusable: Counts) -> TensorText:
        """Returns the tensors of each op, on its first slice, and of metadata; counts in `unusable` what is no list."""
        ops = self.context.linked.ops
        rows = np.flatnonzero((self.slice == 0) | (self.order >= self.nodes.first_group))
        op = self.nodes.column(self.op_of_slice, groups=self.nodes.groups, missing=-1)[rows]
        has_lists = ops.inputs.take(op).differ(NO_TENSORS) | ops.outputs.take(op).differ(NO_TENSORS)
        return TensorText(rows[has_lists], *ops.arguments.member_texts(OpRows(op[has_lists]), unusable))


@cache
def this_tool() -> str:
    """Name and version. Looking it up takes a tenth of the time of converting a small trace."""
    import importlib.metadata  # slow to load

    return f"execgraph {importlib.metadata.version('execgraph')}"


def _metadata(context: ConversionContext) -> dict[str, str | int]:
    info, ops = context.linked.info, context.linked.ops
    steps: dict[str, str | int] = {}
    count = step_count(ops.name, ops.end - ops.start)
    if count:
        steps |= info.measured or {}
    if count and info.step_without_profiler_ns > 0:
        steps |= {STEPS: count, STEP_WITHOUT_PROFILER_NS: info.step_without_profiler_ns}
        if info.data_wait_without_profiler_ns > 0:
            steps[DATA_WAIT_WITHOUT_PROFILER_NS] = info.data_wait_without_profiler_ns
    report = context.linked.report
    lost = Counts().add(report.oddities, report.dropped)
    steps |= {name: count for name, reason in LOSSES.items() if (count := lost.of(reason.reason))}
    return {
        "tool": this_tool(), "schema": info.schema, "rank": info.rank,
        "world_size": info.world_size, "pid": info.pid, "base_time_ns": info.base_time_ns, "target": GENERIC,
        "resolution_ns": info.machine.resolution_ns,
        "clock_offset_ns": info.machine.clock_offset_ns + info.machine.clock_drift_ns // 2,
        "source_host": info.source_host, "source_device": info.source_device,
        **{f"{STEP_START}{number}": start for number, start in step_starts(ops.name, ops.start).items()},
        **{f"{DEVICE_NAME}{device}": name for device, name in info.devices.items()}, **steps,
    }  # fmt: skip
