"""From a played run to its linked trace, graph and replay, and what tests ask of them: who follows whom, when.

Random runs that could have happened: steps on one or two host threads and three streams, in the order of time.
"""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from execgraph.converter.convert import convert
from execgraph.converter.options import Options
from execgraph.converter.targets import AWAITED, EXCESS_TIME, READY
from execgraph.linker.link import link
from execgraph.linker.readers import DeviceTrace, HostTrace, read_device_trace, read_host_trace
from execgraph.schema.columns import Int64, Ragged
from execgraph.schema.graph import ConvertReport, Delay, DependencyKind, ExecutionGraph, NodeType
from execgraph.schema.linked import LinkedTrace
from execgraph.tools.replay import Replay, parse_scale, replay, time_by_kind
from hypothesis import strategies as st

from support.builder.records import LAYOUTS, Event
from support.builder.timeline import TraceBuilder
from support.graphs import LAUNCH, STREAM_ORDER, GraphBuilder


def read_pair(t: TraceBuilder, modules: bool = False) -> tuple[HostTrace, DeviceTrace]:
    with tempfile.TemporaryDirectory() as folder:
        host, device = t.write(Path(folder))
        return read_host_trace(str(host)), read_device_trace(str(device), modules=modules)


def link_run(t: TraceBuilder, modules: bool = False, **options: Any) -> LinkedTrace:
    return link(*read_pair(t, modules), **options)


def link_without_host(t: TraceBuilder, modules: bool = False) -> LinkedTrace:
    """The linked device trace alone: its row 0 is the first op, and no node of a thread as in a host trace."""
    with tempfile.TemporaryDirectory() as folder:
        device = t.write(Path(folder))[1]
        return link(None, read_device_trace(str(device), arguments=True, modules=modules))


def launchers(linked: LinkedTrace) -> dict[str, tuple[str, str]]:
    """For each activity, by name, the call that launched it and the op around the call; "" where there is none."""
    activities, calls, ops = linked.activities, linked.calls, linked.ops
    rows = zip(activities.call_row.tolist(), activities.op_row.tolist(), strict=True)
    return {
        activities.name[row]: (calls.name[call] if call >= 0 else "", ops.name[op] if op >= 0 else "")
        for row, (call, op) in enumerate(rows)
    }


def convert_run(t: TraceBuilder, **options: Any) -> "Nodes":
    """The graph of a played run, its times from the run's start."""
    return convert_linked(link_run(t), t.origin_ns, **options)


def convert_linked(linked: LinkedTrace, origin_ns: int = 0, **options: Any) -> "Nodes":
    graph = convert(linked, Options(**options))
    report = graph.report
    assert report is not None
    return Nodes(graph, report, origin_ns)


class Nodes:
    """A graph whose nodes are found by label: the name, or `name#k` for the k-th of several with one name, from 0."""

    def __init__(self, graph: ExecutionGraph, report: ConvertReport, origin_ns: int = 0) -> None:
        self.graph, self.report, self.origin_ns = graph, report, origin_ns
        names = [graph.name[row] for row in range(len(graph))]
        often, seen = Counter(names), Counter[str]()
        self.labels: list[str] = []
        for name in names:
            self.labels.append(f"{name}#{seen[name]}" if often[name] > 1 else name)
            seen[name] += 1
        self._row = {label: row for row, label in enumerate(self.labels)}

    def row(self, label: str) -> int:
        return self._row[label]

    def follows(self, label: str) -> dict[str, DependencyKind]:
        """What a node depends on, and why."""
        row, kinds = self.row(label), self.graph.attributes["data_dep_kinds"]
        assert isinstance(kinds, Ragged)
        sources = self.graph.rows_of(self.graph.data_deps[row]).tolist()
        pairs = zip(sources, kinds[row].tolist(), strict=True)
        return {self.labels[source]: DependencyKind(kind) for source, kind in pairs}

    def edges(self, kind: DependencyKind) -> set[tuple[str, str]]:
        """(source, target) of every edge that has this reason."""
        pairs = ((source, target, why) for target in self.labels for source, why in self.follows(target).items())
        return {(source, target) for source, target, why in pairs if why & kind}

    def caller(self, label: str) -> str | None:
        """The node's control dependency."""
        sources = self.graph.rows_of(self.graph.ctrl_deps[self.row(label)]).tolist()
        return self.labels[sources[0]] if sources else None

    def time(self, label: str) -> tuple[float, float]:
        """Start and end in µs since the start of the run."""
        row = self.row(label)
        start = int(self.graph.start_ns[row]) - self.origin_ns
        return start / 1000, (start + int(self.graph.duration_ns[row])) / 1000

    def times(self, thread: int) -> list[tuple[str, float, float]]:
        """(name, start, end) of every node of an OS thread, in order."""
        mine = np.flatnonzero(self.graph.integers("tid") == thread).tolist()
        return [(self.graph.name[row], *self.time(self.labels[row])) for row in mine]

    def lanes(self) -> list[tuple[int, int, int]]:
        """Where each node ran: a host thread, or a stream of a device; a delay each on a lane of its own."""
        host, columns = self.graph.integers("is_cpu_op", 0), ("tid", "device", "stream")
        tid, device, stream = (self.graph.integers(column, 0).tolist() for column in columns)
        rows = zip(
            self.graph.id.tolist(), host.tolist(), self.graph.is_delay.tolist(), tid, device, stream, strict=True
        )
        return [(2, n, 0) if delay else (1, t, 0) if on_host else (0, d, s) for n, on_host, delay, t, d, s in rows]

    def delays(self) -> dict[str, tuple[Delay, float]]:
        """Of each activity that was delayed, by label, why and for how many µs."""
        found = np.flatnonzero(self.graph.is_delay).tolist()
        cause, length = self.graph.integers("delay"), self.graph.duration_ns
        after = {self.labels[row]: (Delay(int(cause[row])), int(length[row]) / 1000) for row in found}
        follows = ((label, source) for label in self.labels for source in self.follows(label) if source in after)
        return {label: after[source] for label, source in follows}

    def start_ns(self) -> Int64:
        """Measured starts on the host's clock."""
        offset = int(self.graph.metadata.get("clock_offset_ns", 0))
        return self.graph.start_ns + np.where(self.graph.is_activity, offset, 0)

    def makespan_ns(self) -> int:
        """From the first node's start to the last node's end, as measured."""
        start = self.start_ns()
        return int((start + self.graph.duration_ns).max() - start.min())

    def earliest_start_makespan_ns(self) -> int:
        """The same by the dependencies alone; only a lane's first node is held to its measured start."""
        graph, start = self.graph, self.start_ns() - self.start_ns().min()
        end: dict[int, int] = {}
        begun: set[tuple[int, int, int]] = set()
        gap, duration = graph.integers("gap_ns", 0).tolist(), graph.duration_ns.tolist()
        for row, (node, lane) in enumerate(zip(graph.id.tolist(), self.lanes(), strict=True)):
            released = [end[source] for source in graph.data_deps[row].tolist()]
            alone = 0 if lane in begun else int(start[row])
            begun.add(lane)
            end[node] = (max(released) + gap[row] if released else alone) + duration[row]
        return max(end.values())

    def replay_error(self) -> float:
        """How far the earliest-start makespan is from the measured one, as a fraction."""
        measured = self.makespan_ns()
        return abs(self.earliest_start_makespan_ns() - measured) / measured


def broken_rules(nodes: Nodes) -> list[str]:
    """What any graph must not have: double, missing, forward or self dependencies, a gap in a stream's chain, or a
    delay that blocks anything but one activity.
    """
    graph, ids, broken = nodes.graph, nodes.graph.id.tolist(), []
    streams: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    if ids != list(range(1, len(ids) + 1)):
        broken.append("ids are not 1 to n")
    for row, lane in enumerate(nodes.lanes()):
        sources, caller = graph.data_deps[row].tolist(), graph.ctrl_deps[row].tolist()
        if len(set(sources)) < len(sources):
            broken.append(f"{nodes.labels[row]} has a dependency twice")
        if any(not 1 <= source < ids[row] for source in sources + caller):
            broken.append(f"{nodes.labels[row]} depends on a missing, later or the same node")
        if len(caller) > 1:
            broken.append(f"{nodes.labels[row]} has several control dependencies")
        if lane[0] == 0:
            if streams[lane] and streams[lane][-1] not in sources:
                broken.append(f"{nodes.labels[row]} is not chained to its stream")
            streams[lane].append(ids[row])
    held = np.bincount(graph.data_deps.values, minlength=len(ids) + 1)
    for row in np.flatnonzero(graph.is_delay).tolist():
        if held[ids[row]] != 1 or len(graph.data_deps[row]) > 1 or len(graph.ctrl_deps[row]):
            broken.append(f"{nodes.labels[row]} is not between what released one activity and that")
    # what carries work in from before a window stands beside what delayed an activity since
    delays = graph.id[graph.is_delay & (graph.integers("delay") != Delay.START_OF_RECORDING)]
    behind = graph.data_deps.rows()[np.isin(graph.data_deps.values, delays)]
    if len(np.unique(behind)) < len(behind) or not graph.is_activity[behind].all():
        broken.append("something else than an activity is delayed, or one twice")
    return broken


SEND, RECV, COLL = NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL

INTEGERS = ("comm_src", "comm_dst", "comm_tag", "comm_size")


def communications(graph: ExecutionGraph) -> list[dict[str, Any]]:
    """The recorded communication nodes in the order of their ids: type and what is known of them."""
    added = graph.name.where({AWAITED, EXCESS_TIME, READY}.__contains__)
    rows = np.flatnonzero(np.isin(graph.type, (SEND, RECV, COLL)) & ~added).tolist()
    names = ("comm_type", "comm_seq", *INTEGERS)
    known = [{name: int(graph.integers(name, -1)[row]) for name in names} for row in rows]
    return [{"type": NodeType(int(graph.type[row])), **facts} for row, facts in zip(rows, known, strict=True)]


def small_run(names: Sequence[str] = ("aten::mm", "aten::add"), **options: Any) -> TraceBuilder:
    t = TraceBuilder(**options)
    for name in names:
        with t.op(name, inputs=[t.tensor()]):
            t.work(2)
            t.launch(f"{name} kernel")
    return t


def rich_run(torch: str = "2.13") -> TraceBuilder:
    """Two threads, a collective, tensors, waits of both kinds, work outside ops and an activity without a call."""
    t = TraceBuilder(torch=torch, rank=0, world_size=2)
    group = t.group([0, 1])
    weight, gradient = t.tensor((8, 8)), t.tensor((8, 8), "c10::Half")
    schema = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
    with t.op("aten::mm", inputs=[weight, weight], outputs=[gradient], schema=schema, seq_id=0):
        t.work(3)
        t.launch("sgemm", 7, 20)
    with t.annotation("## backward ##"):
        with t.thread(2, start=t.now + 2), t.op("autograd::engine::evaluate_function: X", seq_id=0, fw_thread=1):
            work = t.collective("allreduce", group=group, tensors=[gradient], stream=20)
        t.join_thread(2)
    t.wait_collective(work, stream=7)
    t.launch("outside any op", 7, 5)
    t.memcpy("DtoH", 7)
    t.activity("orphan", 24, 40, 3)
    t.leaf('a "quoted" \\ name é', 2, only="host")
    t.leaf("only in the device trace", 2, only="device")
    return t


RECORDED = {"sync_records": True}

WITHOUT_EVENT = {"event_correlations": False}

UNRECORDED = {"sync_records": False}


def scripted(script: str, **known: Any) -> TraceBuilder:
    """A run of steps, which a semicolon separates, that ends with an op.

    `mm@7:50` launches a kernel of that name to a stream, of 50 µs, else of 5; `7>20` lets a stream wait for another;
    `record e 7` and `wait e 20` do so with an event of that name, `sync e`, `sync 7` and `sync` block the host for an
    event, a stream or the device, `query e` asks for an event, and `idle 100` and `copy DtoH` are what they say.
    """
    t, events = TraceBuilder(**known), dict[str, Event]()
    for step in script.split("; "):
        word, *of = step.split()
        if "@" in word:
            name, stream, duration = word.replace("@", ":").split(":") if ":" in word else (*word.split("@"), "5")
            t.launch(name, int(stream), float(duration))
        elif ">" in word:
            awaited, waiting = map(int, word.split(">"))
            t.wait_event(t.record_event(stream=awaited), stream=waiting)
        elif word == "record":
            events[of[0]] = t.record_event(events.get(of[0]), stream=int(of[1]))
        elif word == "wait":
            t.wait_event(events[of[0]], stream=int(of[1]))
        elif word == "sync" and of:
            t.stream_synchronize(int(of[0])) if of[0].isdecimal() else t.event_synchronize(events[of[0]])
        elif word == "sync":
            t.device_synchronize()
        elif word == "query":
            t.event_query(events[of[0]])
        else:
            t.idle(float(of[0])) if word == "idle" else t.memcpy(of[0], 7)
    t.leaf("aten::add", 5)
    return t


def device_waits(linked: LinkedTrace) -> set[tuple[str, str]]:
    """(awaited activity, activity that waited)."""
    waits, name = linked.device_waits, linked.activities.name
    return {(name[s], name[t]) for s, t in zip(waits.source_row.tolist(), waits.target_row.tolist(), strict=True)}


def host_waits(linked: LinkedTrace) -> set[tuple[str, str]]:
    """(awaited activity, call that waited); "" where nothing was pending."""
    waits, name, call = linked.host_waits, linked.activities.name, linked.calls.name
    rows = zip(waits.source_row.tolist(), waits.call_row.tolist(), strict=True)
    return {(name[source] if source >= 0 else "", call[row]) for source, row in rows}


def path_ns(replayed: Replay) -> dict[str, int]:
    return time_by_kind(replayed)


def scaled(graph: ExecutionGraph, *specs: str) -> Replay:
    return replay(graph, [parse_scale(spec) for spec in specs])


def delayed() -> ExecutionGraph:
    """10 ns of launching, a kernel of 20 ns, and a second one that starts 70 ns later than that and its gap explain."""
    g = GraphBuilder()
    op = g.host("op", 0, 10)
    first = g.activity("first", 10, 20, after=[(op, LAUNCH)])
    delay = g.delay(30, 68, after=[(first, STREAM_ORDER)])
    released = [(op, LAUNCH), (first, STREAM_ORDER), (delay, STREAM_ORDER)]
    g.activity("second", 100, 20, gap=2, after=released)
    return g.build()


STREAMS = (7, 20, 24)
MAIN, WORKER = 1, 9


class Step(NamedTuple):
    """`back` counts the events recorded since the one that is meant."""

    action: str
    stream: int
    back: int
    us: int


Action = Callable[[TraceBuilder, Step, Event, str], object]


def launch_in_op(t: TraceBuilder, step: Step, _: Event, name: str) -> None:
    with t.op("aten::linear"), t.op("aten::addmm"):
        t.work(1)
        t.launch(name, step.stream, step.us)
        t.work(1)


def launch_graph(t: TraceBuilder, step: Step, _: Event, name: str) -> None:
    """The graph ends when all its branches have."""
    streams = STREAMS[: step.back]
    t.graph_launch([(f"{name}.{number}", stream, step.us) for number, stream in enumerate(streams)])
    t.ready |= dict.fromkeys(streams, max(t.ready[stream] for stream in streams))


def backward(t: TraceBuilder, step: Step, _: Event, name: str, before: int = 1) -> None:
    """The main thread is blocked while the autograd worker launches, which begins `before` µs or more after that."""
    sequence = len(t.ops)
    with t.op("aten::mm", seq_id=sequence):
        t.work(2)
    with t.annotation("## backward ##"):
        t.work(before)
        with (
            t.thread(WORKER, start=t.now + step.back),
            t.op("autograd::engine::evaluate_function: MmBackward0", seq_id=sequence, fw_thread=MAIN),
        ):
            t.work(step.us)
            t.launch(name, step.stream, step.us)
        t.join_thread(WORKER)
        t.work(2)


def launch_late(t: TraceBuilder, step: Step, _: Event, name: str) -> None:
    """Nothing tells why the kernel starts so late."""
    with t.op("aten::linear"):
        t.launch(name, step.stream, step.us, start=max(t.now + 4, t.ready[step.stream] / 1000) + 50 * step.back)


ACTIONS: dict[str, Action] = {
    "work": lambda t, step, event, name: t.work(step.us),
    "op": lambda t, step, event, name: t.leaf("aten::view", step.us),
    "launch": lambda t, step, event, name: t.launch(name, step.stream, step.us),
    "early": lambda t, step, event, name: t.launch(name, step.stream, step.us, call_duration=20, latency=3),
    "launch in op": launch_in_op, "graph": launch_graph,
    "set": lambda t, step, event, name: t.memset(step.stream, step.us),
    "upload": lambda t, step, event, name: t.memcpy("HtoD", step.stream, step.us),
    "download": lambda t, step, event, name: t.memcpy("DtoH", step.stream, step.us),
    "wait event": lambda t, step, event, name: t.wait_event(event, stream=step.stream),
    "event synchronize": lambda t, step, event, name: t.event_synchronize(event),
    "event query": lambda t, step, event, name: t.event_query(event),
    "stream synchronize": lambda t, step, event, name: t.stream_synchronize(step.stream),
    "device synchronize": lambda t, step, event, name: t.device_synchronize(),
}  # fmt: skip
STEPS = st.builds(
    Step,
    st.sampled_from([*ACTIONS, "record", "record", "enter op", "leave ops"]),
    st.sampled_from(STREAMS),
    st.integers(1, 3),
    st.sampled_from([1, 2, 3, 5, 17, 40]),
)
BACKWARD = st.builds(Step, st.just("backward"), st.sampled_from(STREAMS), st.integers(0, 3), st.integers(1, 20))
AT_ONCE = st.builds(Step, st.just("backward at once"), st.sampled_from(STREAMS), st.integers(0, 1), st.integers(1, 20))
LATE = st.builds(Step, st.just("late"), st.sampled_from(STREAMS), st.integers(1, 3), st.integers(1, 40))
RARE: dict[str, Action] = {
    "backward": backward,
    "backward at once": lambda t, step, event, name: backward(t, step, event, name, before=0),
    "late": launch_late,
}
VERSIONS = st.sampled_from(sorted(LAYOUTS))

one_thread = st.lists(STEPS | BACKWARD, min_size=3, max_size=30)
with_backwards = st.lists(STEPS | AT_ONCE | AT_ONCE, min_size=3, max_size=30)
with_delays = st.lists(STEPS | BACKWARD | LATE, min_size=3, max_size=30)
two_threads = st.lists(STEPS, min_size=3, max_size=30)


def play(steps: list[Step], *, threads: int = 1, **options: object) -> TraceBuilder:
    """Each step is taken by the thread whose clock is behind, so that calls are made in the order they are listed."""
    return go_on(TraceBuilder(**options), steps, threads)  # type: ignore[arg-type]


def go_on(t: TraceBuilder, steps: list[Step], threads: int = 1) -> TraceBuilder:
    """The same in a run that has begun."""
    opened = {number: ExitStack() for number in range(MAIN, MAIN + threads)}
    for number in opened:
        with t.thread(number):
            t.leaf("aten::empty", 2 * number)
    events = [t.record_event(stream=STREAMS[0])]
    for number, step in enumerate(steps):
        thread = min(opened, key=lambda candidate: t.threads[candidate].clock)
        with t.thread(thread):
            if step.action == "record":
                events.append(t.record_event(stream=step.stream))
            elif step.action == "enter op":
                opened[thread].enter_context(t.op("aten::outer"))
            elif step.action == "leave ops":
                opened[thread].close()
            else:
                action = (ACTIONS | RARE)[step.action]
                action(t, step, events[-min(step.back or 1, len(events))], f"{step.action} {number}")
    for number, ops in opened.items():
        with t.thread(number):
            ops.close()
    return t
