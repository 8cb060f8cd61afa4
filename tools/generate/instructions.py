"""What a host thread can do: open and close ops, work, call the CUDA runtime, hand off to other threads.

Each says what it does to the thread that runs it. Programs may have others, with a method `run` alike.
"""

from typing import NamedTuple

from .job import HOST, NONE, STEP, Activity, Op
from .record import EVENT_SYNC, STREAM_SYNC, STREAM_WAIT
from .simulation import IDLE, QUEUE_LIMIT, RecordedEvent, Rendezvous, Running, Thread

SYNC_CALLS = ("cudaEventSynchronize", "cudaStreamWaitEvent", "cudaStreamSynchronize", "cudaDeviceSynchronize")
"""By the kind of synchronisation."""


class Begin(NamedTuple):
    """Opens an op. `sequence` is its autograd sequence number, `forward_thread` the thread of the differentiated op."""

    op: Op
    sequence: int = -1
    forward_thread: int = 0
    comm_sequence: int = 0

    def run(self, thread: Thread) -> bool:
        process, op, forward = thread.process, self.op, NONE
        if op.scope == 1 and self.forward_thread:
            forward = process.threads[self.forward_thread - 1].op
        code = process.ops[op]
        order = (self.sequence, self.forward_thread, forward, self.comm_sequence)
        thread.rows.append(process.record.ops.append(code, thread.index, thread.time, NONE, thread.op, *order))
        thread.factors.append(None if op.name.startswith(STEP) else thread.simulation.factors.of(op.name, HOST))
        return True


class End(NamedTuple):
    """Closes the innermost open op."""

    def run(self, thread: Thread) -> bool:
        thread.process.record.ops.end[thread.rows.pop()] = thread.time
        thread.factors.pop()
        return True


class HostWork(NamedTuple):
    """Host work of the innermost open op."""

    ns: int

    def run(self, thread: Thread) -> bool:
        thread.time += thread.host_ns(IDLE, self.ns)
        return True


class Call(NamedTuple):
    """A runtime call without effect on any queue."""

    name: str
    ns: int

    def run(self, thread: Thread) -> bool:
        thread.call(self.name, self.ns)
        return True


class Launch(NamedTuple):
    """A call that enqueues an activity: the device has it `submit_ns` into the call plus `latency_ns`; after its
    predecessor the activity starts with a gap of `gap_ns`. A blocking call returns `return_ns` after the activity's
    end.
    """

    call: str
    activity: Activity
    stream: int
    device_ns: int
    host_ns: int
    submit_ns: int
    latency_ns: int
    gap_ns: int
    rendezvous: Rendezvous | None = None
    comm_sequence: int = 0
    blocking: bool = False
    return_ns: int = 0

    def run(self, thread: Thread) -> bool:
        """Submits the activity once there is room in the stream's queue, and waits for the end of a blocking copy."""
        queue = thread.process.streams[self.stream].queue
        if len(queue) < QUEUE_LIMIT or self.blocking:
            return self._submit(thread, 0)
        oldest, before = queue[0]

        def go() -> None:
            if before is not None and oldest.start > thread.time:
                record = thread.process.record
                record.host_waits.append(len(record.calls), before.row)
            self._submit(thread, oldest.start)

        return thread.when_known((oldest,), go)

    def _submit(self, thread: Thread, blocked_until: int) -> bool:
        record, stream = thread.process.record, thread.process.streams[self.stream]
        call = thread.call(self.call, 0)
        start = max(thread.time, blocked_until)
        submitted = start + thread.host_ns(self.call, self.submit_ns)
        thread.time = record.calls.end[call] = start + thread.host_ns(self.call, self.host_ns)
        waits, branches = stream.waits, stream.branches
        activity = self.enqueue(thread, stream.pending(), (call, 0), submitted + self.latency_ns)
        for source in waits.values():
            record.event_waits.append(source.row, activity.row)
        for source in branches:
            record.graph_order.append(source.row, activity.row)
        thread.simulation.devices.submit(activity)
        if not self.blocking:
            return True
        thread.time = submitted
        return thread.wait_in_call(self.call, call, (activity,), self.return_ns)

    def enqueue(self, thread: Thread, sources: tuple[Running, ...], origin: tuple[int, int], available: int) -> Running:
        """Appends the activity to its stream; `origin` is the launching call and the activity's number in a graph."""
        process, table = thread.process, thread.process.record.activities
        row = table.append(process.activities[self.activity], self.stream, NONE, NONE, *origin, self.comm_sequence)
        ns = round(self.device_ns * thread.simulation.factors.of(self.activity.name, self.activity.kind))
        rank, gap = process.record.rank, self.gap_ns
        activity = Running(rank, table, row, self.stream, sources, available, gap, ns, self.rendezvous)
        process.streams[self.stream].append(activity)
        return activity


class RecordEvent(NamedTuple):
    """The event stands for everything enqueued on the stream so far."""

    event: int
    stream: int
    ns: int

    def run(self, thread: Thread) -> bool:
        call = thread.call("cudaEventRecord", self.ns)
        pending = thread.process.streams[self.stream].pending()
        thread.process.events[self.event] = RecordedEvent(pending, self.stream, call)
        return True


class WaitEvent(NamedTuple):
    """What is enqueued on the stream later waits for the event as recorded now."""

    stream: int
    event: int
    ns: int

    def run(self, thread: Thread) -> bool:
        process = thread.process
        process.record_sync(STREAM_WAIT, thread.call("cudaStreamWaitEvent", self.ns), self.stream, self.event)
        waits = process.streams[self.stream].waits
        for source in process.events[self.event].sources:
            # of several sources on one stream the last one says all
            earlier = waits.get(source.stream)
            if source.stream != self.stream and (earlier is None or earlier.row < source.row):
                waits[source.stream] = source
        return True


class Synchronize(NamedTuple):
    """Waits for an event as recorded now, or for all that was enqueued on the stream, or on any; returns `ns` later."""

    kind: int
    ns: int
    stream: int = NONE
    event: int = NONE

    def run(self, thread: Thread) -> bool:
        process = thread.process
        name = SYNC_CALLS[self.kind]
        call = thread.call(name, 0)
        process.record_sync(self.kind, call, self.stream, self.event)
        if self.kind == EVENT_SYNC:
            return thread.wait_in_call(name, call, process.events[self.event].sources, self.ns)
        streams = [process.streams[self.stream]] if self.kind == STREAM_SYNC else process.streams.values()
        pending = [source for stream in streams for source in stream.pending()]
        return thread.wait_in_call(name, call, pending, self.ns)


class Put(NamedTuple):
    """Gives an item to another host thread; blocks while the queue holds `capacity` items (0: unbounded)."""

    queue: str
    capacity: int = 0

    def run(self, thread: Thread) -> bool:
        queue = thread.process.queues[self.queue]
        if queue.getters:
            getter, wake_ns = queue.getters.popleft()
            getter.resume(wake_ns, by=thread)
            return True
        queue.items.append((thread, thread.time))
        is_full = 0 < self.capacity < len(queue.items)
        if is_full:
            queue.putters.append(thread)
        return not is_full


class Get(NamedTuple):
    """Takes an item from a queue; a thread that had to wait runs `wake_ns` after the item came."""

    queue: str
    wake_ns: int

    def run(self, thread: Thread) -> bool:
        queue = thread.process.queues[self.queue]
        if not queue.items:
            queue.getters.append((thread, self.wake_ns))
            return False
        thread.take(*queue.items.popleft(), waited=False)
        if queue.putters:
            queue.putters.popleft().resume(self.wake_ns, by=thread)
        return True
