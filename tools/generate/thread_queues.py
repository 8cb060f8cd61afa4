"""Queues between host threads: one thread puts items, another one gets them; who finds no item, or no room, waits."""

from .instructions import Get, Put
from .state import IDLE, Simulation, Thread


def put_item(simulation: Simulation, thread: Thread, put: Put) -> bool:
    """Hands an item to a thread that waits for one, or into the queue. False while it is too full."""
    queue = thread.process.queue(put.queue)
    if queue.getters:
        getter, wake_ns = queue.getters.popleft()
        _resume(simulation, getter, wake_ns, thread)
        return True
    queue.items.append((thread, thread.time))
    if put.capacity and len(queue.items) > put.capacity:
        queue.putters.append(thread)
        return False
    return True


def get_item(simulation: Simulation, thread: Thread, get: Get) -> bool:
    """Takes the oldest item. False while there is none."""
    queue = thread.process.queue(get.queue)
    if not queue.items:
        queue.getters.append((thread, get.wake_ns))
        return False
    giver, given_at = queue.items.popleft()
    _record(giver, given_at, thread, waited=False)
    if queue.putters:
        _resume(simulation, queue.putters.popleft(), get.wake_ns, thread)
    return True


def _resume(simulation: Simulation, waiting: Thread, wake_ns: int, by: Thread) -> None:
    """Resumes a thread that waited, `wake_ns` after what another thread has just done."""
    waiting.time = by.time + simulation.host_ns(waiting, IDLE, wake_ns)
    _record(by, by.time, waiting, waited=True)
    simulation.wake(waiting)


def _record(giver: Thread, given_at: int, taker: Thread, waited: bool) -> None:
    giver.process.record.handoffs.append(giver.index, given_at, taker.index, taker.time, int(waited))
