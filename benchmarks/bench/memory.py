"""Peak memory of a process and those that it starts: what the system cannot take back, which is its anonymous memory.

Mapped files, as those of large columns, are not in it: where room is needed the system drops their pages.
"""

import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS_BETWEEN_LOOKS = 0.01
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


class PeakMemory:
    """`bytes` is the highest sum of the processes so far, 0 where the system does not tell."""

    def __init__(self, process_id: int) -> None:
        self._process_id = process_id
        self.bytes = 0

    def look(self) -> None:
        """Adds up what the processes hold at this moment."""
        self.bytes = max(self.bytes, sum(map(anonymous_bytes, tree_of(self._process_id))))


@contextmanager
def watched(process_id: int) -> Iterator[PeakMemory]:
    """Looks at a process and its children a hundred times a second while the block runs."""
    peak, ended = PeakMemory(process_id), threading.Event()

    def watch() -> None:
        while not ended.wait(SECONDS_BETWEEN_LOOKS):
            peak.look()

    peak.look()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()


def tree_of(process_id: int) -> Iterator[int]:
    """Yields a process and all that it started and that still run."""
    yield process_id
    try:
        children = Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from tree_of(int(child))


def anonymous_bytes(process_id: int) -> int:
    """Returns the anonymous memory of a process in bytes; 0 if it has ended or the system does not tell."""
    try:
        lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:")), 0)


def resident_bytes(usage: resource.struct_rusage) -> int:
    """Returns the most memory of any kind that an ended process held, for systems that tell no more."""
    return usage.ru_maxrss * MAXRSS_UNIT
