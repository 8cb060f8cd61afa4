"""The simulator: a job and a scaling in, the run out.

Host threads advance in the order of time, what they launch runs on the devices' streams, and a thread that waits for
a device or for another thread stands still meanwhile. Equal input gives the equal run. Not modelled: kernels that
slow each other down otherwise than by keeping each other from starting.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ..instructions import (
    HOST,
    Begin,
    Call,
    End,
    Get,
    GraphLaunch,
    GraphNode,
    HostWork,
    Instruction,
    Launch,
    Put,
    QueryEvent,
    RecordEvent,
    SynchronizeDevice,
    SynchronizeEvent,
    SynchronizeStream,
    WaitEvent,
)
from ..job import Job
from .device import Devices, Event, Running, Stream
from .record import CONTEXT_SYNC, EVENT_SYNC, NONE, STREAM_SYNC, STREAM_WAIT, RankRun, Run
from .scaling import Factors

IDLE = "host idle"
GRAPH_LAUNCH = "cudaGraphLaunch"
T = TypeVar("T")


def simulate(job: Job, scale: Mapping[str, float] | None = None) -> Run:
    """Runs a job with durations multiplied as `scale` says (see `scaling`): host work, calls, activities.

    Waiting follows from that; launch latencies and the gaps between activities stay as they are. O(n log n) in the
    instructions, which are made step by step. Raises ValueError for an unknown scaling.
    """
    return _Engine(job, Factors(scale or {})).run()


class _Thread:
    """A host thread: clock, program, open ops and the factors of their work; `open` counts what it waits for."""

    __slots__ = ("factors", "index", "instructions", "number", "open", "process", "rows", "time")

    def __init__(self, process: "_Process", index: int, number: int, instructions: Iterator[Instruction]) -> None:
        self.process, self.index, self.number, self.instructions = process, index, number, instructions
        self.time = self.open = 0
        self.rows: list[int] = []
        self.factors: list[float | None] = []

    @property
    def op(self) -> int:
        return self.rows[-1] if self.rows else NONE


class _Queue:
    """Items between threads, and the threads that wait for one or for room."""

    __slots__ = ("getters", "items", "putters")

    def __init__(self) -> None:
        self.items: deque[tuple[_Thread, int]] = deque()
        self.getters: deque[tuple[_Thread, int]] = deque()
        self.putters: deque[_Thread] = deque()


class _Process:
    """A rank: its streams, events and queues, and the record of its run."""

    def __init__(self, rank: int) -> None:
        self.record = RankRun(rank)
        self.streams: dict[int, Stream] = {}
        self.events: dict[int, Event] = {}
        self.queues: dict[str, _Queue] = {}
        self.threads: list[_Thread] = []
        self.codes: dict[object, int] = {}

    def stream(self, number: int) -> Stream:
        return self.streams.setdefault(number, Stream())

    def queue(self, name: str) -> _Queue:
        return self.queues.setdefault(name, _Queue())

    def code(self, item: T, table: list[T]) -> int:
        """The position of an item in the table that lists each one once."""
        code = self.codes.get(item)
        if code is None:
            code = self.codes[item] = len(table)
            table.append(item)
        return code


class _Engine:
    """A handler of an instruction lets it happen and says whether the thread goes on; a thread that does not is woken
    later.
    """

    def __init__(self, job: Job, factors: Factors) -> None:
        self._job, self._factors = job, factors
        self._devices = Devices(job.ranks, job.machine.at_once)
        self._processes = [_Process(rank) for rank in range(job.ranks)]
        self._ready: list[tuple[int, int, _Thread]] = []
        self._handlers: dict[type, Callable[[_Thread, Any], bool]] = {
            Begin: self._begin,
            End: self._end,
            HostWork: self._work,
            Call: self._plain_call,
            Launch: self._launch,
            GraphLaunch: self._graph_launch,
            RecordEvent: self._record_event,
            WaitEvent: self._wait_event,
            SynchronizeEvent: self._synchronize_event,
            QueryEvent: self._query_event,
            SynchronizeStream: self._synchronize_stream,
            SynchronizeDevice: self._synchronize_device,
            Put: self._put,
            Get: self._get,
        }

    def run(self) -> Run:
        for process in self._processes:
            for index, instructions in enumerate(self._job.instructions(process.record.rank)):
                number = process.record.rank * len(self._job.threads) + index
                process.threads.append(_Thread(process, index, number, instructions))
                self._wake(process.threads[-1])
        while self._go_on():
            pass
        if self._devices.unmet:
            raise RuntimeError(
                f"job {self._job.name}: {self._devices.unmet} collectives wait for members that never come"
            )
        return Run(self._job, [process.record for process in self._processes])

    def _go_on(self) -> bool:
        """Lets happen what is next in time, on a device or a host thread; False at the end of the run.

        What a thread submits reaches its device later than the thread's own time, so activities that are ready by then come in order.
        """
        device = self._devices.next_ready
        if device is not None and (not self._ready or device <= self._ready[0][0]):
            self._devices.start_next()
        elif self._ready:
            self._advance(heapq.heappop(self._ready)[2])
        else:
            return False
        return True

    def _wake(self, thread: _Thread) -> None:
        heapq.heappush(self._ready, (thread.time, thread.number, thread))

    def _advance(self, thread: _Thread) -> None:
        """Runs a thread until it waits or another one is behind it in time."""
        ready, handlers = self._ready, self._handlers
        for instruction in thread.instructions:
            if not handlers[type(instruction)](thread, instruction):
                return
            if ready and ready[0][0] < thread.time:
                self._wake(thread)
                return

    # host work

    def _begin(self, thread: _Thread, begin: Begin) -> bool:
        process, op = thread.process, begin.op
        record = process.record
        forward = process.threads[begin.forward_thread - 1].op if op.scope == 1 and begin.forward_thread else NONE
        row = record.ops.append(
            process.code(op, record.op_table),
            thread.index,
            thread.time,
            NONE,
            thread.op,
            begin.sequence,
            begin.forward_thread,
            forward,
            begin.comm_sequence,
        )
        thread.rows.append(row)
        thread.factors.append(None if op.is_step else self._factors.of(op.name, HOST))
        return True

    def _end(self, thread: _Thread, _: End) -> bool:
        thread.process.record.ops.end[thread.rows.pop()] = thread.time
        thread.factors.pop()
        return True

    def _work(self, thread: _Thread, work: HostWork) -> bool:
        thread.time += self._host_ns(thread, IDLE, work.ns)
        return True

    def _host_ns(self, thread: _Thread, alone: str, ns: int) -> int:
        """Host work belongs to the innermost open op, and goes by the name `alone` where there is none."""
        factor = thread.factors[-1] if thread.factors else None
        return round(ns * (self._factors.of(alone, HOST) if factor is None else factor))

    def _call(self, thread: _Thread, name: str, ns: int) -> int:
        """Records a call that starts now and lasts `ns` if nothing holds it up."""
        record = thread.process.record
        start, thread.time = thread.time, thread.time + self._host_ns(thread, name, ns)
        return record.calls.append(
            thread.process.code(name, record.call_names), thread.index, start, thread.time, thread.op
        )

    def _plain_call(self, thread: _Thread, call: Call) -> bool:
        self._call(thread, call.name, call.ns)
        return True

    # launches

    def _launch(self, thread: _Thread, launch: Launch) -> bool:
        held_by = thread.process.stream(launch.stream).oldest_in_queue()
        if held_by is None or launch.blocking:
            return self._submit(thread, launch)
        oldest, before = held_by

        def go() -> None:
            held_until = oldest.start if oldest.start > thread.time else thread.time
            if before is not None and held_until > thread.time:
                thread.process.record.host_waits.append(len(thread.process.record.calls), before.row)
            self._submit(thread, launch, held_until)

        return self._when_known(thread, (oldest,), go)

    def _submit(self, thread: _Thread, launch: Launch, held_until: int = 0) -> bool:
        process, record = thread.process, thread.process.record
        stream = process.stream(launch.stream)
        call = self._call(thread, launch.call, 0)
        start = max(thread.time, held_until)
        thread.time = record.calls.end[call] = start + self._host_ns(thread, launch.call, launch.host_ns)
        code = process.code(launch.activity, record.activity_table)
        row = record.activities.append(code, launch.stream, NONE, NONE, call, 0, launch.comm_sequence)
        activity = Running(record.rank, record.activities, row, launch.stream, stream.pending())
        activity.available = start + self._host_ns(thread, launch.call, launch.submit_ns) + launch.latency_ns
        activity.gap, activity.rendezvous = launch.gap_ns, launch.rendezvous
        activity.ns = round(launch.device_ns * self._factors.of(launch.activity.name, launch.activity.kind))
        for source in stream.waits.values():
            record.event_waits.append(source.row, row)
        for source in stream.branches:
            record.graph_order.append(source.row, row)
        stream.append(activity)
        self._devices.submit(activity)
        if not launch.blocking:
            return True
        thread.time = start + self._host_ns(thread, launch.call, launch.submit_ns)
        return self._await(thread, call, (activity,), launch.return_ns)

    def _graph_launch(self, thread: _Thread, launch: GraphLaunch) -> bool:
        process, start = thread.process, thread.time
        call = self._call(thread, GRAPH_LAUNCH, launch.host_ns)
        available = start + self._host_ns(thread, GRAPH_LAUNCH, launch.submit_ns) + launch.latency_ns
        stream = process.stream(launch.stream)
        before, waits = stream.pending(), set(stream.waits.values())
        nodes: list[Running] = []
        for number, node in enumerate(launch.nodes, 1):
            after = [nodes[position] for position in node.after] or before
            activity = self._graph_node(process, node, after, waits, (call, number))
            activity.available = available
            nodes.append(activity)
            self._devices.submit(activity)
        used = {position for node in launch.nodes for position in node.after}
        stream.waits = {}
        stream.branches = [nodes[i] for i, node in enumerate(nodes) if i not in used and node is not stream.tail]
        return True

    def _graph_node(
        self, process: _Process, node: GraphNode, after: Sequence[Running], waits: set[Running], origin: tuple[int, int]
    ) -> Running:
        """Appends a node of a graph to its stream; `origin` is the launching call and the node's number."""
        record, stream = process.record, process.stream(node.stream)
        code = process.code(node.activity, record.activity_table)
        row = record.activities.append(code, node.stream, NONE, NONE, *origin, 0)
        for source in after:
            if source.stream != node.stream:
                (record.event_waits if source in waits else record.graph_order).append(source.row, row)
        activity = Running(
            record.rank, record.activities, row, node.stream, [*after, stream.tail] if stream.tail else after
        )
        activity.gap = node.gap_ns
        activity.ns = round(node.device_ns * self._factors.of(node.activity.name, node.activity.kind))
        stream.append(activity)
        return activity

    # events and synchronisation

    def _record_event(self, thread: _Thread, record: RecordEvent) -> bool:
        process = thread.process
        call = self._call(thread, "cudaEventRecord", record.ns)
        process.events[record.event] = Event(process.stream(record.stream).pending(), record.stream, call)
        return True

    def _wait_event(self, thread: _Thread, wait: WaitEvent) -> bool:
        process, event = thread.process, thread.process.events[wait.event]
        call = self._call(thread, "cudaStreamWaitEvent", wait.ns)
        process.record.syncs.append(STREAM_WAIT, call, wait.stream, wait.event, event.stream, event.call)
        process.stream(wait.stream).wait_for(source for source in event.sources if source.stream != wait.stream)
        return True

    def _synchronize_event(self, thread: _Thread, wait: SynchronizeEvent) -> bool:
        event = thread.process.events[wait.event]
        call = self._waiting_call(thread, "cudaEventSynchronize", EVENT_SYNC, NONE, wait.event)
        return self._await(thread, call, event.sources, wait.ns)

    def _synchronize_stream(self, thread: _Thread, wait: SynchronizeStream) -> bool:
        call = self._waiting_call(thread, "cudaStreamSynchronize", STREAM_SYNC, wait.stream, NONE)
        return self._await(thread, call, thread.process.stream(wait.stream).pending(), wait.ns)

    def _synchronize_device(self, thread: _Thread, wait: SynchronizeDevice) -> bool:
        call = self._waiting_call(thread, "cudaDeviceSynchronize", CONTEXT_SYNC, NONE, NONE)
        pending = [source for stream in thread.process.streams.values() for source in stream.pending()]
        return self._await(thread, call, pending, wait.ns)

    def _waiting_call(self, thread: _Thread, name: str, kind: int, stream: int, event: int) -> int:
        call = self._call(thread, name, 0)
        recorded = thread.process.events[event] if event != NONE else Event((), NONE, NONE)
        thread.process.record.syncs.append(kind, call, stream, event, recorded.stream, recorded.call)
        return call

    def _await(self, thread: _Thread, call: int, sources: Sequence[Running], return_ns: int) -> bool:
        """Ends a call `return_ns` after the last of the sources, or after now; False if the sources' ends are not
        known yet.
        """
        calls, waits = thread.process.record.calls, thread.process.record.host_waits
        name = thread.process.record.call_names[calls.name[call]]
        for source in sources:
            waits.append(call, source.row)

        def finish() -> None:
            thread.time = max(thread.time, *(source.end for source in sources)) if sources else thread.time
            # what is left of a call after its wait goes by the call's name, whatever op it is in, as in the graphs
            thread.time += round(return_ns * self._factors.of(name, HOST))
            calls.end[call] = thread.time

        return self._when_known(thread, sources, finish)

    def _when_known(self, thread: _Thread, sources: Sequence[Running], finish: Callable[[], None]) -> bool:
        """Lets `finish` happen once the sources' ends are known; False, and the thread is woken then, if that is
        later.
        """
        unknown = [source for source in sources if source.end == NONE]
        if not unknown:
            finish()
            return True
        thread.open = len(unknown)

        def one_less() -> None:
            thread.open -= 1
            if not thread.open:
                finish()
                self._wake(thread)

        for source in unknown:
            source.waiters.append(one_less)
        return False

    def _query_event(self, thread: _Thread, query: QueryEvent) -> bool:
        process, event = thread.process, thread.process.events[query.event]

        def ask() -> None:
            happened = max((source.end for source in event.sources), default=NONE)
            while True:
                began, known = thread.time, thread.time >= happened
                call = self._call(thread, "cudaEventQuery", query.ns)
                process.record.syncs.append(EVENT_SYNC, call, NONE, query.event, event.stream, event.call)
                if known:
                    break
                self._work(thread, HostWork(query.pause_ns))
                if thread.time == began:
                    # asking again and again takes no time: what was asked in between does not matter
                    thread.time = happened
            for source in event.sources:
                process.record.host_waits.append(call, source.row)

        return self._when_known(thread, event.sources, ask)

    # host threads among themselves

    def _put(self, thread: _Thread, put: Put) -> bool:
        queue = thread.process.queue(put.queue)
        if queue.getters:
            getter, wake_ns = queue.getters.popleft()
            getter.time = thread.time + self._host_ns(getter, IDLE, wake_ns)
            self._hand_over(thread, thread.time, getter, waited=True)
            self._wake(getter)
            return True
        queue.items.append((thread, thread.time))
        if put.capacity and len(queue.items) > put.capacity:
            queue.putters.append(thread)
            return False
        return True

    def _get(self, thread: _Thread, get: Get) -> bool:
        queue = thread.process.queue(get.queue)
        if not queue.items:
            queue.getters.append((thread, get.wake_ns))
            return False
        giver, given = queue.items.popleft()
        self._hand_over(giver, given, thread, waited=False)
        if queue.putters:
            putter = queue.putters.popleft()
            putter.time = thread.time + self._host_ns(putter, IDLE, get.wake_ns)
            self._hand_over(thread, thread.time, putter, waited=True)
            self._wake(putter)
        return True

    def _hand_over(self, giver: _Thread, given: int, taker: _Thread, waited: bool) -> None:
        giver.process.record.hand_overs.append(giver.index, given, taker.index, taker.time, int(waited))
