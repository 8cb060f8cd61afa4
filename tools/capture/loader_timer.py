"""How long the loop waits for PyTorch's data loader while nothing is recorded.

Recording slows the loop but not the loader's processes, which get ahead of it, so the traces show a shorter wait.
"""

import sys
import threading
from time import perf_counter
from typing import Any


class LoaderTimer:
    """Measures between `start` and `stop` the time that this thread spends in `next` of PyTorch's data loaders.

    `workers` is how many processes the loader with the most of them has.
    """

    def __init__(self) -> None:
        self._iterator: Any = None
        self._next: Any = None
        self.total_s = 0.0
        self.workers = 0

    def start(self) -> None:
        """Begins to measure, by taking the place of `next`; does nothing where PyTorch's loader is not in use."""
        self._iterator = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
        self._next = getattr(self._iterator, "__next__", None)
        if self._next:
            self._iterator.__next__ = self._timed(self._next)

    def stop(self) -> None:
        """Puts the loader's own `next` back; may be called again."""
        own_next, self._next = self._next, None
        if own_next:
            self._iterator.__next__ = own_next

    def _timed(self, get: Any) -> Any:
        thread, is_open = threading.get_ident(), False

        def timed(iterator: Any) -> Any:
            nonlocal is_open
            if is_open or threading.get_ident() != thread:
                return get(iterator)  # a loader of another thread, or one that another loader reads
            self.workers = max(self.workers, getattr(iterator, "_num_workers", 0))
            is_open, begin = True, perf_counter()
            try:
                return get(iterator)
            finally:
                is_open = False
                self.total_s += perf_counter() - begin

        return timed
