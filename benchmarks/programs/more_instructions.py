"""What host threads do in the jobs of developers alone: they launch CUDA graphs, and ask for events again and again."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from execgraph.tools.generate import Activity, Script, instructions, record, simulation

GRAPH_LAUNCH = "cudaGraphLaunch"
GRAPH_LATENCY = 25 / 12
"""How much longer a graph is on its way than a single activity."""


class GraphNode(NamedTuple):
    """An activity of a CUDA graph; it follows the nodes at the positions `after`, or the launch if there are none."""

    activity: Activity
    stream: int
    device_ns: int
    gap_ns: int
    after: tuple[int, ...]


@dataclass(slots=True)
class GraphLaunch:
    """Enqueues a graph on `stream`: its first nodes follow the stream's tail, later work follows all of it."""

    stream: int
    nodes: tuple[GraphNode, ...]
    host_ns: int
    submit_ns: int
    latency_ns: int

    def __call__(self, thread: simulation.Thread) -> None:
        """Submits all nodes of the graph."""
        start, streams = thread.time, thread.process.streams
        call = thread.call(GRAPH_LAUNCH, self.host_ns)
        available = start + thread.host_ns(GRAPH_LAUNCH, self.submit_ns) + self.latency_ns
        stream = streams[self.stream]
        before, waits = stream.pending(), set(stream.waits.values())
        nodes: list[simulation.Running] = []
        for number, node in enumerate(self.nodes, 1):
            after = tuple(nodes[position] for position in node.after) or before
            tail = streams[node.stream].tail
            launch = instructions.Launch(GRAPH_LAUNCH, node.activity, node.stream, node.device_ns, 0, 0, 0, node.gap_ns)
            activity = launch.enqueue(thread, (*after, tail) if tail else after, (call, number), available)
            edges = thread.process.record
            for source in after:
                if source.stream != node.stream:
                    (edges.event_waits if source in waits else edges.graph_order).append(source.row, activity.row)
            nodes.append(activity)
        used = {position for node in self.nodes for position in node.after}
        stream.waits = {}
        stream.branches = [nodes[i] for i, node in enumerate(nodes) if i not in used and node is not stream.tail]


@dataclass(slots=True)
class QueryEvent:
    """Asks for the event until it has happened, `pause_ns` of work between the calls."""

    event: int
    ns: int
    pause_ns: int

    def __call__(self, thread: simulation.Thread) -> Iterator[None]:
        """Asks once it is known when the event happens."""
        event = thread.process.events[self.event]
        yield from thread.until_known(event.sources)
        happened = max((source.end for source in event.sources), default=-1)
        while True:
            began, has_happened = thread.time, thread.time >= happened
            call = thread.call("cudaEventQuery", self.ns)
            thread.process.record_sync(record.EVENT_SYNC, call, event=self.event)
            if has_happened:
                break
            thread.time += thread.host_ns(simulation.IDLE, self.pause_ns)
            if thread.time == began:
                # asking again and again takes no time: what was asked in between does not matter
                thread.time = happened
        for source in event.sources:
            thread.process.record.host_waits.append(call, source.row)


def launch_graph(script: Script, nodes: tuple[GraphNode, ...], stream: int) -> None:
    """Launches a CUDA graph."""
    host = script.draw_ns(3000 + 400 * len(nodes))
    script.instructions.append(GraphLaunch(stream, nodes, host, host, script.draw_latency_ns(GRAPH_LATENCY)))


def query_event(script: Script, event: str, pause_us: float = 20.0) -> None:
    """Asks for the event until it has happened, with pauses of about `pause_us`."""
    ns, pause_ns = script.draw_ns(1500), script.draw_ns(pause_us * 1000)
    script.instructions.append(QueryEvent(script.event(event), ns, pause_ns))
