"""Events and waits of a host thread: records, stream waits, waits for the device, and event queries."""

from collections.abc import Sequence

from .device import RecordedEvent, Running
from .host_work import do_work
from .instructions import (
    HOST,
    HostWork,
    QueryEvent,
    RecordEvent,
    SynchronizeDevice,
    SynchronizeEvent,
    SynchronizeStream,
    WaitEvent,
)
from .record import CONTEXT_SYNC, EVENT_SYNC, NONE, STREAM_SYNC, STREAM_WAIT
from .state import Simulation, Thread


def record_event(simulation: Simulation, thread: Thread, record: RecordEvent) -> bool:
    """Makes the event mean what the stream has pending now. Returns True always: the thread goes on."""
    process = thread.process
    call = simulation.call(thread, "cudaEventRecord", record.ns)
    process.events[record.event] = RecordedEvent(process.stream(record.stream).pending(), record.stream, call)
    return True


def wait_event(simulation: Simulation, thread: Thread, wait: WaitEvent) -> bool:
    """Makes later work of the stream wait for the event. Always True: the thread goes on."""
    process, event = thread.process, thread.process.events[wait.event]
    call = simulation.call(thread, "cudaStreamWaitEvent", wait.ns)
    process.record.syncs.append(STREAM_WAIT, call, wait.stream, wait.event, event.stream, event.call)
    process.stream(wait.stream).wait_for(source for source in event.sources if source.stream != wait.stream)
    return True


def synchronize_event(simulation: Simulation, thread: Thread, wait: SynchronizeEvent) -> bool:
    """Waits for what the event stands for. False while its end is not known."""
    event = thread.process.events[wait.event]
    call = _waiting_call(simulation, thread, "cudaEventSynchronize", EVENT_SYNC, event=wait.event)
    return await_activities(simulation, thread, call, event.sources, wait.ns)


def synchronize_stream(simulation: Simulation, thread: Thread, wait: SynchronizeStream) -> bool:
    """Waits for what the stream has pending. False while its end is not known."""
    call = _waiting_call(simulation, thread, "cudaStreamSynchronize", STREAM_SYNC, stream=wait.stream)
    return await_activities(simulation, thread, call, thread.process.stream(wait.stream).pending(), wait.ns)


def synchronize_device(simulation: Simulation, thread: Thread, wait: SynchronizeDevice) -> bool:
    """Waits for what all streams have pending. False while its end is not known."""
    call = _waiting_call(simulation, thread, "cudaDeviceSynchronize", CONTEXT_SYNC)
    pending = [source for stream in thread.process.streams.values() for source in stream.pending()]
    return await_activities(simulation, thread, call, pending, wait.ns)


def _waiting_call(
    simulation: Simulation, thread: Thread, name: str, kind: int, *, stream: int = NONE, event: int = NONE
) -> int:
    call = simulation.call(thread, name, 0)
    recorded = thread.process.events[event] if event != NONE else RecordedEvent((), NONE, NONE)
    thread.process.record.syncs.append(kind, call, stream, event, recorded.stream, recorded.call)
    return call


def await_activities(
    simulation: Simulation, thread: Thread, call: int, sources: Sequence[Running], return_ns: int
) -> bool:
    """Ends a call `return_ns` after the last source ends, or after now; False if the ends are not known yet."""
    calls, waits = thread.process.record.calls, thread.process.record.host_waits
    name = thread.process.record.call_names[calls.name[call]]
    for source in sources:
        waits.append(call, source.row)

    def finish() -> None:
        thread.time = max([thread.time, *(source.end for source in sources)])
        # what is left of a call after its wait goes by the call's name, whatever op it is in, as in the graphs
        thread.time += round(return_ns * simulation.factors.of(name, HOST))
        calls.end[call] = thread.time

    return simulation.when_known(thread, sources, finish)


def query_event(simulation: Simulation, thread: Thread, query: QueryEvent) -> bool:
    """Asks until the event has happened, with a pause after each time that it had not."""
    process, event = thread.process, thread.process.events[query.event]

    def ask() -> None:
        happened = max((source.end for source in event.sources), default=NONE)
        while True:
            began, has_happened = thread.time, thread.time >= happened
            call = simulation.call(thread, "cudaEventQuery", query.ns)
            process.record.syncs.append(EVENT_SYNC, call, NONE, query.event, event.stream, event.call)
            if has_happened:
                break
            do_work(simulation, thread, HostWork(query.pause_ns))
            if thread.time == began:
                # asking again and again takes no time: what was asked in between does not matter
                thread.time = happened
        for source in event.sources:
            process.record.host_waits.append(call, source.row)

    return simulation.when_known(thread, event.sources, ask)
