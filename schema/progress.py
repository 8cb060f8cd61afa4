"""Progress of a long piece of work, for whoever asks for it."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

T = TypeVar("T")
OnProgress = Callable[[int], object]
"""Is called with how much more is done, in bytes or whatever the work counts."""


class Progress(Protocol):
    """Passes items on and is shown while they are worked on: what is done, of how many, and what one is."""

    def __call__(self, items: Iterable[T], what: str, total: int | None = None, unit: str = "it") -> Iterable[T]: ...


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
