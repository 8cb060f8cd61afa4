"""Long pieces of work: their progress, for whoever asks for it, and calls that another thread makes meanwhile."""

import mmap
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from threading import Thread
from typing import Protocol, TypeVar

T = TypeVar("T")
OnProgress = Callable[[int], object]
"""Is called with how much more is done, in bytes or whatever the work counts."""
FREE_BYTES = 1 << 28
"""Bytes that must be free for a thread: without memory it dies before it says that it began, and is awaited in vain."""


class Progress(Protocol):
    """Passes items on and is shown while they are worked on: what is done, of how many, and what one is."""

    def __call__(self, items: Iterable[T], what: str, total: int | None = None, unit: str = "it") -> Iterable[T]:
        """Yields the items."""


def unseen(_: int) -> None:
    """Nobody looks on."""


def unwatched(items: Iterable[T], what: str, total: int | None = None, unit: str = "it") -> Iterable[T]:
    """Nobody looks on."""
    return items


class Stages:
    """Progress of work that tells what it has done, made of one that goes on with items."""

    def __init__(self, progress: Progress, what: str, total: int, unit: str = "stage") -> None:
        self._items = iter(progress(range(total), what, total, unit))
        self.done = 0

    def on_progress(self, count: int) -> None:
        """So many more are done."""
        self.done += count
        for _ in range(count):
            next(self._items, None)

    def reached(self, count: int) -> None:
        """So many are done in all, whoever counted them."""
        self.on_progress(max(count - self.done, 0))


def beside(call: Callable[[], T]) -> "Future[T]":
    """Makes a call in another thread, or here and now where the system has no memory for one."""
    future: Future[T] = Future()

    def make() -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

    try:
        mmap.mmap(-1, FREE_BYTES).close()
        Thread(target=make, daemon=True).start()
    except (OSError, RuntimeError, MemoryError):
        make()
    return future


def give_up(future: "Future[T]") -> None:
    """Comes back when no thread makes the call, nor will."""
    future.cancel()
    wait([future])
