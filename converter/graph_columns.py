"""Fills the graph's columns in the order of ids: names, types, times, dependencies and attributes of every node.

A kernel that starts 2 µs after the one before it has a gap of 2 µs. A wait that returns 8 µs after the end of what it
awaited, where calls that have nothing to wait for take 2 µs, has a gap of 6 µs and lasts 2.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..schema.arguments import GENERIC
from ..schema.columns import (
    ABSENT,
    AttributeTable,
    Categorical,
    Int64,
    Intervals,
    NodeIds,
    NodeNumbers,
    OpRows,
    Ragged,
    cumcount,
    rows_by_number,
)
from ..schema.graph import (
    DATA_WAIT_WITHOUT_PROFILER_NS,
    DEVICE_NAME,
    STEP_START,
    STEP_WITHOUT_PROFILER_NS,
    STEPS,
    Column,
    ExecutionGraph,
    NodeType,
    TensorText,
)
from ..schema.linked import FOREVER, HOST, NEVER, NO_TENSORS, member_texts, step_count, step_starts
from ..schema.reasons import Counts
from .communication import CommunicationColumns, CommunicationNode, communication_columns
from .edges import Edges
from .options import Options
from .rewiring import lanes_of, used, whole_microseconds
from .timeline import ConversionContext, StartTiming, SyntheticNodes
from .work import KernelWork, highest_within, kernel_work, lifetimes, live_bytes


class Gaps(NamedTuple):
    """Attributes of nodes in graph order (ns), ABSENT for nodes without them.

    `gap` is the one of the run. `latency` after a launch and `chain` after other dependencies are the least ones, where
    they differ from it.
    """

    gap: Int64
    latency: Int64
    chain: Int64


def gaps_of(
    context: ConversionContext, timing: StartTiming, order: NodeNumbers, edges: Edges, times: Intervals
) -> Gaps:
    """Returns the gaps of the nodes `order`; `edges` and `times` are of the graph's rows."""
    activities = range(context.activities_from, context.unrecorded_from)
    is_activity = (order >= activities.start) & (order < activities.stop)
    waits = np.flatnonzero((context.timeline.return_ns > 0) | (context.timeline.call_ns > 0))
    row_of = np.full(len(order), -1, np.int64)
    row_of[order] = np.arange(len(order))

    def spread(of_activities: Int64) -> Int64:
        column = np.full(len(order), ABSENT, np.int64)
        column[row_of[activities.start : activities.stop]] = of_activities
        return column

    gap = np.where(is_activity, _since_dependencies(edges, times), ABSENT)
    latency, chain = spread(timing.latency), spread(timing.gap)
    gap[row_of[waits]], chain[row_of[waits]] = context.timeline.return_ns[waits], context.timeline.call_ns[waits]
    return Gaps(gap, *(np.where(column == gap, ABSENT, column) for column in (latency, chain)))


def _since_dependencies(edges: Edges, times: Intervals) -> Int64:
    """Returns the time (ns) from the end of each row's last dependency, or from the trace's start, to its own start."""
    start, end = times
    ready = np.full(len(start), start.min(initial=FOREVER))
    ready[edges.target] = NEVER
    np.maximum.at(ready, edges.target, end[edges.source])
    return np.asarray(np.maximum(start - ready, 0))


class LiveBytes(NamedTuple):
    """Bytes for each node of the host's timeline and each activity; ABSENT where no tensors are recorded."""

    host: Int64
    activities: Int64


def most_live_bytes(context: ConversionContext) -> LiveBytes:
    """Returns the most bytes that are live on the host during each slice of an op, and the bytes that are live on the
    device when each activity is launched. O(n log n).

    The host allocates and frees memory in its own order, ahead of the device.
    """
    storages, timeline = lifetimes(context.linked.ops), context.timeline
    host, activities = (np.full(count, ABSENT) for count in (len(timeline), len(context.linked.activities)))
    slices = np.flatnonzero((timeline.op_row >= 0) & ~timeline.is_wait)
    on_host = storages.where(storages.device == HOST)
    if len(on_host.storage):
        host[slices] = highest_within(live_bytes(on_host), timeline.start[slices], timeline.end[slices])
    has_call = np.flatnonzero(context.linked.activities.call_row >= 0)
    device = _as_tensors_number(context.linked.activities.device, storages.device)
    launched = rows_by_number(has_call, device)
    for number, living in rows_by_number(np.flatnonzero(storages.device != HOST), storages.device).items():
        if (rows := launched.get(number)) is None:
            continue
        curve = live_bytes(storages.where(living))
        activities[rows] = highest_within(curve, context.launched[rows], context.launched[rows])
    return LiveBytes(host, activities)


def _as_tensors_number(device: Int64, of_tensors: Int64) -> Int64:
    """Returns the device numbers of activities as tensors number the devices.

    PyTorch numbers the devices that a process sees, some profilers those of the machine. A single device is the same.
    """
    ran, named = np.unique(device), np.unique(of_tensors[of_tensors != HOST])
    return np.broadcast_to(named, device.shape) if len(ran) == len(named) == 1 else device


class GraphEdges(NamedTuple):
    """The nodes of a graph in its order, and the dependencies between its rows; `order[row]` is a node's number."""

    order: NodeNumbers
    data: Edges
    control: Edges


class BuiltGraph(NamedTuple):
    """A graph, its communication and kernel work, and the number of unusable arguments of ops by reason."""

    graph: ExecutionGraph
    communication: CommunicationColumns
    work: KernelWork
    unusable_arguments: Counts


def graph_of(
    context: ConversionContext,
    synthetic: SyntheticNodes,
    timing: StartTiming,
    edges: GraphEdges,
    *,
    options: Options,
    work: KernelWork | None,
) -> BuiltGraph:
    """Returns the graph with these nodes and edges; ids are rows + 1. `work` is computed if it is None."""
    order = edges.order
    columns = _Columns(context, synthetic, order)
    communication = communication_columns(context.linked, len(order), columns.communications())
    communication.types[columns.group_nodes()] = NodeType.METADATA
    if work is None:
        work = kernel_work(context.linked, context.op_parent)
    dependencies, kinds = _by_target(edges.data, len(order))
    attributes = AttributeTable()
    attributes.extend(columns.time_attributes(timing, edges.data))
    attributes.extend(columns.host_attributes())
    attributes.extend(columns.python_attributes())
    attributes.extend(columns.device_attributes())
    attributes.extend(columns.work_attributes(work))
    if options.live_bytes:
        attributes.extend(columns.live_bytes())
    attributes.extend(communication.attributes.items())
    graph = ExecutionGraph(
        id=NodeIds(np.arange(1, len(order) + 1, dtype=np.int64)),
        name=synthetic.names(context).take(order),
        type=communication.types,
        data_deps=dependencies,
        ctrl_deps=_by_target(edges.control, len(order))[0],
        start_time_micros=attributes["start_time_ns"] // 1000,
        duration_micros=np.zeros(len(order), np.int64),
        attributes=used(attributes) | {"data_dep_kinds": kinds},
        metadata=_metadata(context),
    )
    unusable = Counts()
    graph.duration_micros = whole_microseconds(graph.duration_ns + graph.integers("gap_ns", 0), lanes_of(graph))
    if options.io == "full":
        graph.tensors = columns.tensors(unusable)
    return BuiltGraph(graph, communication, work, unusable)


def _by_target(edges: Edges, count: int) -> tuple[Ragged, Ragged]:
    """Returns the ids on which each node depends, and the kinds of these dependencies."""
    order = np.lexsort((edges.source, edges.target))
    sources = Ragged.grouped(edges.target[order], edges.source[order] + 1, count)
    return sources, Ragged(sources.starts, edges.kind[order])


class _Columns:
    """Puts columns of host nodes, activities and synthetic nodes into the order of the graph."""

    def __init__(self, context: ConversionContext, synthetic: SyntheticNodes, order: NodeNumbers) -> None:
        self.context, self.synthetic, self.order = context, synthetic, order
        self.is_activity = (order >= context.activities_from) & (order < context.unrecorded_from)
        self._first_group = synthetic.first + len(synthetic.delays)
        self.is_host = ~self.is_activity & ((order < synthetic.first) | (order >= self._first_group))
        # waits and idle time belong to no op
        self._op_of_slice = np.where(context.timeline.is_wait, -1, context.timeline.op_row)

    def _spread(self, *parts: tuple[int, Int64], missing: int = ABSENT) -> Int64:
        """Returns the values of `parts`, (number of the first node, a value for it and each following one), in graph
        order; `missing` for other nodes.
        """
        column = np.full(self.synthetic.node_count, missing, np.int64)
        for first, values in parts:
            column[first : first + len(values)] = values
        return column[self.order]

    def _of_activities(self, values: Int64) -> Int64:
        return self._spread((self.context.activities_from, values))

    def _clock_shift(self) -> Int64:
        """Returns what was added to the recorded time of each node: 0 but for activities, which have the device's
        clock.
        """
        return self._spread((self.context.activities_from, self.context.clock_shift), missing=0)

    def _threads(self) -> Int64:
        synthetic = self.synthetic.threads(self.context)
        return self._spread((0, self.context.timeline.thread), (self.context.unrecorded_from, synthetic))

    def _op_rows(self) -> OpRows:
        """Returns the row of each host slice's op, -1 for none."""
        return OpRows(self._spread((0, self._op_of_slice), missing=-1))

    def time_attributes(self, timing: StartTiming, data: Edges) -> Iterator[tuple[str, Column]]:
        """Yields the columns of all nodes' times, and of what the time before an activity is."""
        context, synthetic, order = self.context, self.synthetic, self.order
        start, end = synthetic.start(context)[order], synthetic.end(context)[order]
        gap, latency, chain_gap = gaps_of(context, timing, order, data, Intervals(start, end))
        yield "is_cpu_op", self.is_host.astype(np.int64)
        yield "start_time_ns", start - self._clock_shift()
        yield "duration_ns", end - start
        yield "gap_ns", gap
        yield "latency_ns", latency
        yield "chain_gap_ns", chain_gap
        yield "delay", self._spread((synthetic.first, synthetic.delays.cause))
        yield "overlap_ns", self._of_activities(context.linked.activities.end - context.activity_end)

    def work_attributes(self, work: KernelWork) -> Iterator[tuple[str, Column]]:
        """Yields the columns of the kernels' operations, bytes and sizes of elements."""
        yield "num_ops", self._of_activities(work.operations)
        yield "tensor_size", self._of_activities(work.bytes)
        yield "element_size", self._of_activities(work.element)

    def host_attributes(self) -> Iterator[tuple[str, Column]]:
        ops, rows = self.context.linked.ops, self._op_rows()
        by_host = ops.recorded_by_host
        # an activity belongs to the op that launched it
        launches = self.context.activities_from, self.context.linked.activities.op_row
        launched_by = OpRows(self._spread((0, self._op_of_slice), launches, missing=-1))

        def spread(values: Int64, rows: OpRows = rows) -> Int64:
            # the row -1, of nodes without an op, takes the last value: ABSENT
            return np.append(values, ABSENT)[rows]

        schema = np.append(np.where(ops.op_schema.where(bool), ops.op_schema.codes, -1), -1)[rows]
        yield "op_id", spread(np.where(by_host, ops.id, ABSENT), launched_by)
        yield "slice", _slice_numbers(rows)
        yield "tid", self._threads()
        yield "rf_id", spread(ops.rf_id)
        yield "fw_parent", spread(np.where(by_host, ops.fw_parent, ABSENT))
        yield "seq_id", spread(ops.seq_id)
        yield "scope", spread(ops.scope)
        yield "fw_tid", spread(ops.fw_tid)
        yield "op_schema", Categorical(schema.astype(np.int32), ops.op_schema.table)

    def python_attributes(self) -> Iterator[tuple[str, Column]]:
        """Yields the columns of the modules and functions of host nodes, by their op or call, and of activities."""
        linked, timeline = self.context.linked, self.context.timeline
        for name in ("module", "python_function"):
            of_op, of_call, of_activity = (
                getattr(table, name) for table in (linked.ops, linked.calls, linked.activities)
            )
            if of_op is None or of_call is None or of_activity is None:
                continue
            names = Categorical.joined((of_op, of_call, of_activity))
            ops, calls, activities = np.split(names.codes.astype(np.int64), np.cumsum([len(of_op), len(of_call)]))
            of_called = np.append(calls, -1)[timeline.call_row]
            of_host = np.where(self._op_of_slice >= 0, np.append(ops, -1)[self._op_of_slice], of_called)
            codes = self._spread((0, of_host), (self.context.activities_from, activities), missing=-1)
            yield name, Categorical(codes.astype(np.int32), names.table)

    def device_attributes(self) -> Iterator[tuple[str, Column]]:
        activities = self.context.linked.activities
        codes = activities.category.codes.astype(np.int64)
        category = self._spread((self.context.activities_from, codes), missing=-1)
        yield "device", self._of_activities(activities.device)
        yield "stream", self._of_activities(activities.stream)
        yield "correlation", self._of_activities(np.where(activities.correlation != 0, activities.correlation, ABSENT))
        yield "cat", Categorical(category.astype(np.int32), activities.category.table)

    def live_bytes(self) -> Iterator[tuple[str, Column]]:
        live = most_live_bytes(self.context)
        yield "live_bytes", self._spread((0, live.host), (self.context.activities_from, live.activities))

    def communications(self) -> list[CommunicationNode]:
        """Returns the nodes that communicate, in graph order: activities, and the longest slice of each host op that
        does.
        """
        linked, op_rows = self.context.linked, self._op_rows()
        of_activity = self._spread((self.context.activities_from, linked.activities.communication_row), missing=-1)
        activity = self.order - self.context.activities_from
        nodes = [
            CommunicationNode(row, int(of_activity[row]), linked.activities.name[int(activity[row])])
            for row in np.flatnonzero(of_activity >= 0).tolist()
        ]
        slices = np.flatnonzero(op_rows >= 0)
        slices = slices[linked.ops.communication_row[op_rows[slices]] >= 0]
        length = (self.synthetic.end(self.context) - self.synthetic.start(self.context))[self.order[slices]]
        longest = {int(op_rows[row]): row for row in slices[np.argsort(length, kind="stable")].tolist()}
        nodes += [CommunicationNode(row, int(linked.ops.communication_row[op]), "") for op, row in longest.items()]
        return sorted(nodes)

    def group_nodes(self) -> NodeNumbers:
        """Returns the rows of the process-group metadata."""
        return NodeNumbers(np.flatnonzero(self.order >= self._first_group))

    def tensors(self, unusable: Counts) -> TensorText:
        """Returns the tensors of each op, on its first slice, and of the metadata; counts in `unusable` those that
        cannot be used.
        """
        ops = self.context.linked.ops
        op_rows = self._spread((0, self._op_of_slice), (self._first_group, self.synthetic.groups), missing=-1)
        rows = np.flatnonzero((_slice_numbers(self._op_rows()) == 0) | (self.order >= self._first_group))
        op = op_rows[rows]
        has_lists = ops.inputs.take(op).differ(NO_TENSORS) | ops.outputs.take(op).differ(NO_TENSORS)
        rows, op, arguments = rows[has_lists], op[has_lists], ops.arguments
        return TensorText(
            rows,
            *member_texts(ops.inputs.take(op), arguments.input_form[op], unusable),
            *member_texts(ops.outputs.take(op), arguments.output_form[op], unusable),
        )


def _slice_numbers(op_rows: OpRows) -> Int64:
    """Returns the number of each slice within its op, from 0; ABSENT for a node without an op."""
    return np.where(op_rows >= 0, cumcount(op_rows), ABSENT)


def _metadata(context: ConversionContext) -> dict[str, str | int]:
    import importlib.metadata  # slow to load

    info, ops = context.linked.info, context.linked.ops
    return {
        "tool": f"execgraph {importlib.metadata.version('execgraph')}",
        "schema": info.schema,
        "rank": info.rank,
        "world_size": info.world_size,
        "pid": info.pid,
        "base_time_ns": info.base_time_ns,
        "target": GENERIC,
        "resolution_ns": info.machine.resolution_ns,
        "clock_offset_ns": info.machine.clock_offset_ns + info.machine.clock_drift_ns // 2,
        "source_host": info.source_host,
        "source_device": info.source_device,
        **{f"{STEP_START}{number}": start for number, start in step_starts(ops.name, ops.start).items()},
        **{f"{DEVICE_NAME}{device}": name for device, name in info.devices.items()},
        **_steps(context),
    }


def _steps(context: ConversionContext) -> dict[str, str | int]:
    """Returns how many steps there are and what was measured of them without a profiler."""
    ops, info = context.linked.ops, context.linked.info
    count = step_count(ops.name, ops.end - ops.start)
    if not count or info.step_without_profiler_ns <= 0:
        return {}
    times = {
        STEP_WITHOUT_PROFILER_NS: info.step_without_profiler_ns,
        DATA_WAIT_WITHOUT_PROFILER_NS: info.data_wait_without_profiler_ns,
    }
    return {STEPS: count, **{key: time_ns for key, time_ns in times.items() if time_ns > 0}}
