"""Simulates a job, with durations scaled where asked: a job in, what ran when out.

Host threads advance in the order of time, what they launch runs on the devices' streams, and a thread that waits for
a device or for another thread stands still until it is woken. Equal input gives the equal run. Not modelled: kernels
that slow each other down otherwise than by keeping each other from starting.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from .devices import Devices, RecordedEvent, Running, Stream
from .instructions import (
    HOST,
    Begin,
    Call,
    End,
    Get,
    GraphLaunch,
    GraphNode,
    HostWork,
    Instruction,
    Job,
    Launch,
    Put,
    QueryEvent,
    RecordEvent,
    SynchronizeDevice,
    SynchronizeEvent,
    SynchronizeStream,
    WaitEvent,
)
from .machine import Factors
from .record import CONTEXT_SYNC, EVENT_SYNC, NONE, STREAM_SYNC, STREAM_WAIT, RankRun, Run

IDLE = "host idle"
GRAPH_LAUNCH = "cudaGraphLaunch"
T = TypeVar("T")


class Process:
    """A rank: its streams, events and queues, and the record of its run."""

    def __init__(self, rank: int) -> None:
        self.record = RankRun(rank)
        self.streams: dict[int, Stream] = {}
        self.events: dict[int, RecordedEvent] = {}
        self.queues: dict[str, Queue] = {}
        self.threads: list[Thread] = []
        self._codes: dict[object, int] = {}

    def stream(self, number: int) -> Stream:
        """Returns the stream of that number, made when it first comes."""
        return self.streams.setdefault(number, Stream())

    def queue(self, name: str) -> "Queue":
        """Returns the queue of that name, made when it first comes."""
        return self.queues.setdefault(name, Queue())

    def code(self, item: T, table: list[T]) -> int:
        """Returns the position of an item in the table, to which it is added when it first comes."""
        code = self._codes.get(item)
        if code is None:
            code = self._codes[item] = len(table)
            table.append(item)
        return code


class Queue:
    """Items between threads, each with its giver and time; and the threads that wait for an item or for room."""

    __slots__ = ("getters", "items", "putters")

    def __init__(self) -> None:
        self.items: deque[tuple[Thread, int]] = deque()
        self.getters: deque[tuple[Thread, int]] = deque()
        self.putters: deque[Thread] = deque()


class Simulation:
    """A run on its way. `ready` is a heap of the threads that can go on, by their time."""

    def __init__(self, job: Job, factors: Factors) -> None:
        self.factors = factors
        self.devices = Devices(job.ranks, job.machine.at_once)
        self.processes = [Process(rank) for rank in range(job.ranks)]
        self.ready: list[tuple[int, int, Thread]] = []
        for process in self.processes:
            rank = process.record.rank
            for index, instructions in enumerate(job.instructions(rank)):
                thread = Thread(self, process, index, rank * len(job.threads) + index, instructions)
                process.threads.append(thread)
                self.wake(thread)

    def wake(self, thread: "Thread") -> None:
        """Puts a thread among those that can go on."""
        heapq.heappush(self.ready, (thread.time, thread.number, thread))

    def advance(self) -> bool:
        """Lets happen what is next in time, on a device or a host thread; False at the end of the run.

        What a thread submits reaches its device later than the thread's own time, so activities that are ready by then
        come in order.
        """
        device = self.devices.next_ready
        if device is not None and (not self.ready or device <= self.ready[0][0]):
            self.devices.start_next()
        elif self.ready:
            heapq.heappop(self.ready)[2].run()
        else:
            return False
        return True


class Thread:
    """A host thread: clock, program, open ops and the factors of their work; `open` counts what it waits for.

    The methods that carry instructions out return whether the thread goes on; else it waits, and is woken later.
    """

    __slots__ = ("factors", "index", "instructions", "number", "open", "process", "rows", "simulation", "time")

    def __init__(
        self, simulation: Simulation, process: Process, index: int, number: int, instructions: Iterator[Instruction]
    ) -> None:
        self.simulation, self.process = simulation, process
        self.index, self.number, self.instructions = index, number, instructions
        self.time = self.open = 0
        self.rows: list[int] = []
        self.factors: list[float | None] = []

    @property
    def op(self) -> int:
        """The row of the innermost open op."""
        return self.rows[-1] if self.rows else NONE

    def run(self) -> None:
        """Runs until the thread waits or another one is behind it in time."""
        ready = self.simulation.ready
        for instruction in self.instructions:
            if not STEPS[type(instruction)](self, instruction):
                return
            if ready and ready[0][0] < self.time:
                self.simulation.wake(self)
                return

    def host_ns(self, name: str, ns: int) -> int:
        """Returns how long host work of the innermost open op lasts; `name` stands for it where no op is open."""
        factor = self.factors[-1] if self.factors else None
        return round(ns * (self.simulation.factors.of(name, HOST) if factor is None else factor))

    def device_ns(self, node: Launch | GraphNode) -> int:
        """Returns how long an activity lasts."""
        return round(node.device_ns * self.simulation.factors.of(node.activity.name, node.activity.kind))

    def call(self, name: str, ns: int) -> int:
        """Records a call that starts now and lasts `ns` if nothing holds it up; returns its row."""
        start, record = self.time, self.process.record
        self.time += self.host_ns(name, ns)
        code = self.process.code(name, record.call_names)
        return record.calls.append(code, self.index, start, self.time, self.op)

    def when_known(self, sources: Sequence[Running], finish: Callable[[], None]) -> bool:
        """Calls `finish` once the ends of all sources are known; False if that is later, when it wakes the thread."""
        unknown = [source for source in sources if source.end == NONE]
        if not unknown:
            finish()
            return True
        self.open = len(unknown)

        def one_less() -> None:
            self.open -= 1
            if not self.open:
                finish()
                self.simulation.wake(self)

        for source in unknown:
            source.waiters.append(one_less)
        return False

    # what the thread does by itself

    def begin_op(self, begin: Begin) -> bool:
        """Opens an op."""
        process, op = self.process, begin.op
        forward = process.threads[begin.forward_thread - 1].op if op.scope == 1 and begin.forward_thread else NONE
        code = process.code(op, process.record.op_table)
        order = (begin.sequence, begin.forward_thread, forward, begin.comm_sequence)
        self.rows.append(process.record.ops.append(code, self.index, self.time, NONE, self.op, *order))
        self.factors.append(None if op.is_step else self.simulation.factors.of(op.name, HOST))
        return True

    def end_op(self, _: End) -> bool:
        """Closes the innermost open op."""
        self.process.record.ops.end[self.rows.pop()] = self.time
        self.factors.pop()
        return True

    def do_work(self, work: HostWork) -> bool:
        """Works for the innermost open op."""
        self.time += self.host_ns(IDLE, work.ns)
        return True

    def make_call(self, call: Call) -> bool:
        """Makes a call that neither launches nor waits."""
        self.call(call.name, call.ns)
        return True

    # launches

    def launch(self, launch: Launch) -> bool:
        """Submits an activity; waits for room in the stream's queue, and for the end of a blocking copy."""
        queue_head = self.process.stream(launch.stream).oldest_in_queue()
        if queue_head is None or launch.blocking:
            return self._submit(launch)
        oldest, before = queue_head

        def go() -> None:
            blocked_until = max(oldest.start, self.time)
            if before is not None and blocked_until > self.time:
                self.process.record.host_waits.append(len(self.process.record.calls), before.row)
            self._submit(launch, blocked_until)

        return self.when_known((oldest,), go)

    def _submit(self, launch: Launch, blocked_until: int = 0) -> bool:
        record, stream = self.process.record, self.process.stream(launch.stream)
        call = self.call(launch.call, 0)
        start = max(self.time, blocked_until)
        submitted = start + self.host_ns(launch.call, launch.submit_ns)
        self.time = record.calls.end[call] = start + self.host_ns(launch.call, launch.host_ns)
        code = self.process.code(launch.activity, record.activity_table)
        row = record.activities.append(code, launch.stream, NONE, NONE, call, 0, launch.comm_sequence)
        activity = Running(record.rank, record.activities, row, launch.stream, stream.pending())
        activity.available = submitted + launch.latency_ns
        activity.gap, activity.rendezvous, activity.ns = launch.gap_ns, launch.rendezvous, self.device_ns(launch)
        for source in stream.waits.values():
            record.event_waits.append(source.row, row)
        for source in stream.branches:
            record.graph_order.append(source.row, row)
        stream.append(activity)
        self.simulation.devices.submit(activity)
        if not launch.blocking:
            return True
        self.time = submitted
        return self._await(call, (activity,), launch.return_ns)

    def launch_graph(self, launch: GraphLaunch) -> bool:
        """Submits all activities of a graph."""
        start = self.time
        call = self.call(GRAPH_LAUNCH, launch.host_ns)
        available = start + self.host_ns(GRAPH_LAUNCH, launch.submit_ns) + launch.latency_ns
        stream = self.process.stream(launch.stream)
        before, waits = stream.pending(), set(stream.waits.values())
        nodes: list[Running] = []
        for number, node in enumerate(launch.nodes, 1):
            after = [nodes[position] for position in node.after] or before
            activity = self._graph_node(node, after, waits=waits, origin=(call, number))
            activity.available = available
            nodes.append(activity)
            self.simulation.devices.submit(activity)
        used = {position for node in launch.nodes for position in node.after}
        stream.waits = {}
        stream.branches = [nodes[i] for i, node in enumerate(nodes) if i not in used and node is not stream.tail]
        return True

    def _graph_node(
        self, node: GraphNode, after: Sequence[Running], *, waits: set[Running], origin: tuple[int, int]
    ) -> Running:
        """Appends a node of a graph to its stream; `origin` is the launching call and the node's number."""
        record, stream = self.process.record, self.process.stream(node.stream)
        code = self.process.code(node.activity, record.activity_table)
        row = record.activities.append(code, node.stream, NONE, NONE, *origin, 0)
        for source in after:
            if source.stream != node.stream:
                (record.event_waits if source in waits else record.graph_order).append(source.row, row)
        sources = [*after, stream.tail] if stream.tail else after
        activity = Running(record.rank, record.activities, row, node.stream, sources)
        activity.gap, activity.ns = node.gap_ns, self.device_ns(node)
        stream.append(activity)
        return activity

    # events and waits

    def record_event(self, record: RecordEvent) -> bool:
        """Makes the event mean what the stream has pending now."""
        call = self.call("cudaEventRecord", record.ns)
        pending = self.process.stream(record.stream).pending()
        self.process.events[record.event] = RecordedEvent(pending, record.stream, call)
        return True

    def wait_event(self, wait: WaitEvent) -> bool:
        """Makes later work of the stream wait for the event."""
        event = self.process.events[wait.event]
        self._record_sync(STREAM_WAIT, self.call("cudaStreamWaitEvent", wait.ns), wait.stream, wait.event)
        stream = self.process.stream(wait.stream)
        stream.wait_for(source for source in event.sources if source.stream != wait.stream)
        return True

    def synchronize_event(self, wait: SynchronizeEvent) -> bool:
        """Waits for what the event stands for."""
        call = self.call("cudaEventSynchronize", 0)
        self._record_sync(EVENT_SYNC, call, event=wait.event)
        return self._await(call, self.process.events[wait.event].sources, wait.ns)

    def synchronize_stream(self, wait: SynchronizeStream) -> bool:
        """Waits for what the stream has pending."""
        call = self.call("cudaStreamSynchronize", 0)
        self._record_sync(STREAM_SYNC, call, wait.stream)
        return self._await(call, self.process.stream(wait.stream).pending(), wait.ns)

    def synchronize_device(self, wait: SynchronizeDevice) -> bool:
        """Waits for what all streams have pending."""
        call = self.call("cudaDeviceSynchronize", 0)
        self._record_sync(CONTEXT_SYNC, call)
        pending = [source for stream in self.process.streams.values() for source in stream.pending()]
        return self._await(call, pending, wait.ns)

    def query_event(self, query: QueryEvent) -> bool:
        """Asks until the event has happened, with a pause after each time that it had not."""
        event = self.process.events[query.event]

        def ask() -> None:
            happened = max((source.end for source in event.sources), default=NONE)
            while True:
                began, has_happened = self.time, self.time >= happened
                call = self.call("cudaEventQuery", query.ns)
                self._record_sync(EVENT_SYNC, call, event=query.event)
                if has_happened:
                    break
                self.time += self.host_ns(IDLE, query.pause_ns)
                if self.time == began:
                    # asking again and again takes no time: what was asked in between does not matter
                    self.time = happened
            for source in event.sources:
                self.process.record.host_waits.append(call, source.row)

        return self.when_known(event.sources, ask)

    def _record_sync(self, kind: int, call: int, stream: int = NONE, event: int = NONE) -> None:
        recorded = self.process.events[event] if event != NONE else RecordedEvent((), NONE, NONE)
        self.process.record.syncs.append(kind, call, stream, event, recorded.stream, recorded.call)

    def _await(self, call: int, sources: Sequence[Running], return_ns: int) -> bool:
        """Ends a call `return_ns` after the last source ends, or after now."""
        record = self.process.record
        name = record.call_names[record.calls.name[call]]
        for source in sources:
            record.host_waits.append(call, source.row)

        def finish() -> None:
            self.time = max([self.time, *(source.end for source in sources)])
            # what is left of a call after its wait goes by the call's name, whatever op it is in, as in the graphs
            self.time += round(return_ns * self.simulation.factors.of(name, HOST))
            record.calls.end[call] = self.time

        return self.when_known(sources, finish)

    # queues between threads

    def put_item(self, put: Put) -> bool:
        """Hands an item to a thread that waits for one, or into the queue; waits while that is too full."""
        queue = self.process.queue(put.queue)
        if queue.getters:
            getter, wake_ns = queue.getters.popleft()
            getter._resume(wake_ns, by=self)
            return True
        queue.items.append((self, self.time))
        if put.capacity and len(queue.items) > put.capacity:
            queue.putters.append(self)
            return False
        return True

    def get_item(self, get: Get) -> bool:
        """Takes the oldest item; waits while there is none."""
        queue = self.process.queue(get.queue)
        if not queue.items:
            queue.getters.append((self, get.wake_ns))
            return False
        giver, given_at = queue.items.popleft()
        self._record_handoff(giver, given_at, waited=False)
        if queue.putters:
            queue.putters.popleft()._resume(get.wake_ns, by=self)
        return True

    def _resume(self, wake_ns: int, by: "Thread") -> None:
        """Resumes after a wait, `wake_ns` after what another thread has just done."""
        self.time = by.time + self.host_ns(IDLE, wake_ns)
        self._record_handoff(by, by.time, waited=True)
        self.simulation.wake(self)

    def _record_handoff(self, giver: "Thread", given_at: int, waited: bool) -> None:
        self.process.record.handoffs.append(giver.index, given_at, self.index, self.time, int(waited))


STEPS: dict[type, Callable[[Thread, Any], bool]] = {
    Begin: Thread.begin_op,
    End: Thread.end_op,
    HostWork: Thread.do_work,
    Call: Thread.make_call,
    Launch: Thread.launch,
    GraphLaunch: Thread.launch_graph,
    RecordEvent: Thread.record_event,
    WaitEvent: Thread.wait_event,
    SynchronizeEvent: Thread.synchronize_event,
    QueryEvent: Thread.query_event,
    SynchronizeStream: Thread.synchronize_stream,
    SynchronizeDevice: Thread.synchronize_device,
    Put: Thread.put_item,
    Get: Thread.get_item,
}
"""What each instruction does."""


def simulate(job: Job, scale: Mapping[str, float] | None = None, *, refuse_unused: bool = False) -> Run:
    """Runs a job with durations multiplied as `scale` says (see `Factors`): host work, calls, activities.

    Waiting follows from that; launch latencies and the gaps between activities stay as they are. O(n log n) in the
    instructions, which are made step by step. Raises ValueError for an unknown scaling, with `refuse_unused`
    RequestError for one that applies to nothing in the job.
    """
    factors = Factors(scale or {})
    simulation = Simulation(job, factors)
    while simulation.advance():
        pass
    if unmet := simulation.devices.unmet:
        raise RuntimeError(f"job {job.name}: {unmet} collectives wait for members that never come")
    if refuse_unused:
        factors.check_all_used()
    return Run(job, [process.record for process in simulation.processes])
