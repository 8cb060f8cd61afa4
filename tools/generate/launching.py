"""Launches of a host thread: of one activity, which blocks while the stream's queue is full, and of a CUDA graph."""

from collections.abc import Sequence

from .device import Running
from .instructions import GraphLaunch, GraphNode, Launch
from .record import NONE
from .state import Process, Simulation, Thread
from .waiting import await_activities

GRAPH_LAUNCH = "cudaGraphLaunch"


def launch_activity(simulation: Simulation, thread: Thread, launch: Launch) -> bool:
    """Submits an activity. False while the thread waits: for room in the queue, or for the end of a blocking copy."""
    queue_head = thread.process.stream(launch.stream).oldest_in_queue()
    if queue_head is None or launch.blocking:
        return _submit(simulation, thread, launch)
    oldest, before = queue_head

    def go() -> None:
        blocked_until = max(oldest.start, thread.time)
        if before is not None and blocked_until > thread.time:
            thread.process.record.host_waits.append(len(thread.process.record.calls), before.row)
        _submit(simulation, thread, launch, blocked_until)

    return simulation.when_known(thread, (oldest,), go)


def _submit(simulation: Simulation, thread: Thread, launch: Launch, blocked_until: int = 0) -> bool:
    process, record = thread.process, thread.process.record
    stream = process.stream(launch.stream)
    call = simulation.call(thread, launch.call, 0)
    start = max(thread.time, blocked_until)
    submitted = start + simulation.host_ns(thread, launch.call, launch.submit_ns)
    thread.time = record.calls.end[call] = start + simulation.host_ns(thread, launch.call, launch.host_ns)
    code = process.code(launch.activity, record.activity_table)
    row = record.activities.append(code, launch.stream, NONE, NONE, call, 0, launch.comm_sequence)
    activity = Running(record.rank, record.activities, row, launch.stream, stream.pending())
    activity.available = submitted + launch.latency_ns
    activity.gap, activity.rendezvous = launch.gap_ns, launch.rendezvous
    activity.ns = round(launch.device_ns * simulation.factors.of(launch.activity.name, launch.activity.kind))
    for source in stream.waits.values():
        record.event_waits.append(source.row, row)
    for source in stream.branches:
        record.graph_order.append(source.row, row)
    stream.append(activity)
    simulation.devices.submit(activity)
    if not launch.blocking:
        return True
    thread.time = submitted
    return await_activities(simulation, thread, call, (activity,), launch.return_ns)


def launch_graph(simulation: Simulation, thread: Thread, launch: GraphLaunch) -> bool:
    """Submits all activities of a graph. Always True: the thread goes on."""
    process, start = thread.process, thread.time
    call = simulation.call(thread, GRAPH_LAUNCH, launch.host_ns)
    available = start + simulation.host_ns(thread, GRAPH_LAUNCH, launch.submit_ns) + launch.latency_ns
    stream = process.stream(launch.stream)
    before, waits = stream.pending(), set(stream.waits.values())
    nodes: list[Running] = []
    for number, node in enumerate(launch.nodes, 1):
        after = [nodes[position] for position in node.after] or before
        activity = _graph_node(simulation, process, node, after, waits=waits, origin=(call, number))
        activity.available = available
        nodes.append(activity)
        simulation.devices.submit(activity)
    used = {position for node in launch.nodes for position in node.after}
    stream.waits = {}
    stream.branches = [nodes[i] for i, node in enumerate(nodes) if i not in used and node is not stream.tail]
    return True


def _graph_node(
    simulation: Simulation,
    process: Process,
    node: GraphNode,
    after: Sequence[Running],
    *,
    waits: set[Running],
    origin: tuple[int, int],
) -> Running:
    """Appends a node of a graph to its stream; `origin` is the launching call and the node's number."""
    record, stream = process.record, process.stream(node.stream)
    code = process.code(node.activity, record.activity_table)
    row = record.activities.append(code, node.stream, NONE, NONE, *origin, 0)
    for source in after:
        if source.stream != node.stream:
            (record.event_waits if source in waits else record.graph_order).append(source.row, row)
    sources = [*after, stream.tail] if stream.tail else after
    activity = Running(record.rank, record.activities, row, node.stream, sources)
    activity.gap = node.gap_ns
    activity.ns = round(node.device_ns * simulation.factors.of(node.activity.name, node.activity.kind))
    stream.append(activity)
    return activity
