"""Work in another thread, if the system has memory for one."""

import mmap
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

Result = TypeVar("Result")
FREE_BYTES = 1 << 28
"""Bytes that have to be free for a thread: its stack, and what this one may take until it has begun."""


class Beside(Generic[Result]):
    """A call that another thread makes, or this one when it wants the result and no other has begun.

    Threads that have no memory die before they say that they began; Python's own classes wait for these for ever.
    """

    def __init__(self, call: Callable[[], Result]) -> None:
        self._call = call
        self._begun, self._done = allocate_lock(), allocate_lock()
        self._result: Result | None = None
        self._error: BaseException | None = None
        self._done.acquire()
        with suppress(OSError, RuntimeError, MemoryError):
            mmap.mmap(-1, FREE_BYTES).close()
            start_new_thread(self._make, ())

    def _make(self) -> None:
        if not self._begun.acquire(blocking=False):
            return
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error
        finally:
            self._done.release()

    def result(self) -> Result:
        """Returns what the call returns; raises what it raises."""
        self._make()
        with self._done:
            if self._error is not None:
                raise self._error
            return self._result  # type: ignore[return-value]

    def give_up(self) -> None:
        """Comes back when no thread makes the call, nor will."""
        if not self._begun.acquire(blocking=False):
            with self._done:
                return
        self._done.release()
