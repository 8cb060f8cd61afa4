"""Threads that work beside this one, where the system has room for them."""

import mmap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")
ROOM = 1 << 26
"""Bytes that a thread may take to begin: its stack, and what it allocates first."""


def is_room_for_a_thread() -> bool:
    """Whether there is memory for one more thread. Python waits for ever for one that dies before it can say that it began."""
    try:
        mmap.mmap(-1, ROOM).close()
    except OSError:
        return False
    return True


def begin_beside(pool: ThreadPoolExecutor, work: Callable[[], Result]) -> Callable[[], Result]:
    """Has the work done by the pool, or by who wants the result where there can be no thread; returns what gives the result."""
    if not is_room_for_a_thread():
        return work
    try:
        return pool.submit(work).result
    except RuntimeError:  # the system gives no more threads
        return work
