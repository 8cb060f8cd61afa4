"""Simulates a job, with durations scaled where asked.

Host threads advance in the order of time, what they launch runs on the devices' streams, and a thread that waits for
a device or for another thread stands still meanwhile. Equal input gives the equal run. Not modelled: kernels that
slow each other down otherwise than by keeping each other from starting.
"""

import heapq
from collections.abc import Callable, Mapping
from typing import Any

from . import host_work, launching, thread_queues, waiting
from .instructions import (
    Begin,
    Call,
    End,
    Get,
    GraphLaunch,
    HostWork,
    Launch,
    Put,
    QueryEvent,
    RecordEvent,
    SynchronizeDevice,
    SynchronizeEvent,
    SynchronizeStream,
    WaitEvent,
)
from .job import Job
from .record import Run
from .scaling import Factors
from .state import Simulation, Thread

STEPS: dict[type, Callable[[Simulation, Thread, Any], bool]] = {
    Begin: host_work.begin_op,
    End: host_work.end_op,
    HostWork: host_work.do_work,
    Call: host_work.make_call,
    Launch: launching.launch_activity,
    GraphLaunch: launching.launch_graph,
    RecordEvent: waiting.record_event,
    WaitEvent: waiting.wait_event,
    SynchronizeEvent: waiting.synchronize_event,
    QueryEvent: waiting.query_event,
    SynchronizeStream: waiting.synchronize_stream,
    SynchronizeDevice: waiting.synchronize_device,
    Put: thread_queues.put_item,
    Get: thread_queues.get_item,
}
"""What each instruction does. A step returns False if its thread has to wait; the thread is woken later."""


def simulate(job: Job, scale: Mapping[str, float] | None = None, *, refuse_unused: bool = False) -> Run:
    """Runs a job with durations multiplied as `scale` says (see `scaling`): host work, calls, activities.

    Waiting follows from that; launch latencies and the gaps between activities stay as they are. O(n log n) in the
    instructions, which are made step by step. Raises ValueError for an unknown scaling, with
    `refuse_unused` RequestError for one that applies to nothing in the job.
    """
    factors = Factors(scale or {})
    simulation = Simulation(job, factors)
    _start_threads(simulation, job)
    while _advance(simulation):
        pass
    if unmet := simulation.devices.unmet:
        raise RuntimeError(f"job {job.name}: {unmet} collectives wait for members that never come")
    if refuse_unused:
        factors.check_all_used()
    return Run(job, [process.record for process in simulation.processes])


def _start_threads(simulation: Simulation, job: Job) -> None:
    for process in simulation.processes:
        rank = process.record.rank
        for index, instructions in enumerate(job.instructions(rank)):
            thread = Thread(process, index, rank * len(job.threads) + index, instructions)
            process.threads.append(thread)
            simulation.wake(thread)


def _advance(simulation: Simulation) -> bool:
    """Lets happen what is next in time, on a device or a host thread; False at the end of the run.

    What a thread submits reaches its device later than the thread's own time, so activities that are ready by then come
    in order.
    """
    ready, device = simulation.ready, simulation.devices.next_ready
    if device is not None and (not ready or device <= ready[0][0]):
        simulation.devices.start_next()
    elif ready:
        _run_thread(simulation, heapq.heappop(ready)[2])
    else:
        return False
    return True


def _run_thread(simulation: Simulation, thread: Thread) -> None:
    """Runs a thread until it waits or another one is behind it in time."""
    ready = simulation.ready
    for instruction in thread.instructions:
        if not STEPS[type(instruction)](simulation, thread, instruction):
            return
        if ready and ready[0][0] < thread.time:
            simulation.wake(thread)
            return
