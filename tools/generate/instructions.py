"""What a host thread can do: open and close ops, work, call the CUDA runtime, hand off to other threads.

An instruction is one of these functions with all arguments but the thread, or a Launch. Programs may have others.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..replay import NodeClass
from .job import NONE, STEP, Activity, Op
from .record import EVENT_SYNC, STREAM_SYNC, STREAM_WAIT
from .simulation import IDLE, QUEUE_LIMIT, RecordedEvent, Rendezvous, Running, Thread

SYNC_CALLS = ("cudaEventSynchronize", "cudaStreamWaitEvent", "cudaStreamSynchronize", "cudaDeviceSynchronize")
"""By the kind of synchronisation."""


def begin(op: Op, sequence: int, forward_thread: int, comm_sequence: int, thread: Thread) -> None:
    """Opens an op. `sequence` is its autograd sequence number, `forward_thread` the thread of the differentiated op."""
    process, forward = thread.process, NONE
    if op.scope == 1 and forward_thread:
        forward = process.threads[forward_thread - 1].op
    row = process.ops[op], thread.index, thread.time, NONE, thread.op, sequence, forward_thread, forward, comm_sequence
    factor = None if op.name.startswith(STEP) else thread.simulation.factors.of(op.name, NodeClass.HOST)
    thread.open.append((process.record.ops.append(*row), factor))


def end(thread: Thread) -> None:
    """Closes the innermost open op."""
    row, _ = thread.open.pop()
    thread.process.record.ops.end[row] = thread.time


def work(ns: int, thread: Thread) -> None:
    """Works for the innermost open op."""
    thread.time += thread.host_ns(IDLE, ns)


def call(name: str, ns: int, thread: Thread) -> None:
    """Makes a runtime call without effect on any queue."""
    thread.call(name, ns)


@dataclass(slots=True)
class Launch:
    """A call that enqueues an activity, which the device has `submit_ns` into the call plus `latency_ns`.

    It starts `gap_ns` after its predecessor. With `return_ns` the call blocks until so long after its end.
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
    return_ns: int | None = None

    def __call__(self, thread: Thread) -> Iterator[None]:
        """Submits the activity once there is room in the stream's queue, and waits for the end of a blocking copy."""
        record, stream = thread.process.record, thread.process.streams[self.stream]
        start = thread.time
        if len(stream.queue) == QUEUE_LIMIT and self.return_ns is None:
            oldest, before = stream.queue[0]
            yield from thread.until_known([oldest])
            if before is not None and oldest.start > thread.time:
                record.host_waits.append(len(record.calls), before.row)
            start = max(thread.time, oldest.start)
        call = thread.call(self.call, 0)
        submitted = start + thread.host_ns(self.call, self.submit_ns)
        thread.time = record.calls.end[call] = start + thread.host_ns(self.call, self.host_ns)
        waits, branches = stream.waits, stream.branches
        activity = self.enqueue(thread, stream.pending(), (call, 0), submitted + self.latency_ns)
        for source in waits.values():
            record.event_waits.append(source.row, activity.row)
        for source in branches:
            record.graph_order.append(source.row, activity.row)
        if self.return_ns is not None:
            thread.time = submitted
            yield from thread.wait_in_call(self.call, call, (activity,), self.return_ns)

    def enqueue(self, thread: Thread, sources: Iterable[Running], origin: tuple[int, int], available: int) -> Running:
        """Submits the activity to its stream; `origin` is the launching call and the activity's number in a graph."""
        process, table = thread.process, thread.process.record.activities
        row = table.append(process.activities[self.activity], self.stream, NONE, NONE, *origin, self.comm_sequence)
        ns = round(self.device_ns * thread.simulation.factors.of(self.activity.name, self.activity.kind))
        rank, gap = process.record.rank, self.gap_ns
        activity = Running(rank, table, row, self.stream, available, gap, ns, self.rendezvous)
        process.streams[self.stream].append(activity)
        thread.simulation.submit(activity, sources)
        return activity


def record_event(event: int, stream: int, ns: int, thread: Thread) -> None:
    """Lets the event stand for everything enqueued on the stream so far."""
    row = thread.call("cudaEventRecord", ns)
    thread.process.events[event] = RecordedEvent(thread.process.streams[stream].pending(), stream, row)


def wait_event(stream: int, event: int, ns: int, thread: Thread) -> None:
    """Lets what is enqueued on the stream later wait for the event as recorded now."""
    process = thread.process
    process.record_sync(STREAM_WAIT, thread.call("cudaStreamWaitEvent", ns), stream, event)
    waits = process.streams[stream].waits
    for source in process.events[event].sources:
        # of several sources on one stream the last one says all
        earlier = waits.get(source.stream)
        if source.stream != stream and (earlier is None or earlier.row < source.row):
            waits[source.stream] = source


def synchronize(kind: int, stream: int, event: int, ns: int, thread: Thread) -> Iterator[None]:
    """Waits for an event as recorded now, or for all that was enqueued on the stream, or on any; returns `ns` later."""
    process, name = thread.process, SYNC_CALLS[kind]
    row = thread.call(name, 0)
    process.record_sync(kind, row, stream, event)
    if kind == EVENT_SYNC:
        return thread.wait_in_call(name, row, process.events[event].sources, ns)
    streams = [process.streams[stream]] if kind == STREAM_SYNC else process.streams.values()
    return thread.wait_in_call(name, row, [source for each in streams for source in each.pending()], ns)


def put(name: str, capacity: int, thread: Thread) -> Iterator[None]:
    """Gives an item to another host thread; blocks while the queue holds `capacity` items (0: unbounded)."""
    queue = thread.process.queues[name]
    if queue.getters:
        getter, wake_ns = queue.getters.popleft()
        getter.resume(wake_ns, by=thread)
        return
    queue.items.append((thread, thread.time))
    if 0 < capacity < len(queue.items):
        queue.putters.append(thread)
        yield


def get(name: str, wake_ns: int, thread: Thread) -> Iterator[None]:
    """Takes an item from a queue; a thread that had to wait runs `wake_ns` after the item came."""
    queue = thread.process.queues[name]
    if not queue.items:
        queue.getters.append((thread, wake_ns))
        yield
        return
    thread.take(*queue.items.popleft(), waited=False)
    if queue.putters:
        queue.putters.popleft().resume(wake_ns, by=thread)
