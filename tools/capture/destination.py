"""Where the pair of traces of a rank goes, and what to do with it then."""

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ...schema.errors import DataError
from ...schema.io import open_output

TRACES = ("host", "device")
ENDING = ".json.gz"


class Destination:
    """A folder, and in it files named by `name`, in which {trace}, {rank} and {window} stand for what they are of.

    Raises ValueError for a name that two traces would have in common.
    """

    def __init__(self, folder: str | Path, name: str) -> None:
        self._folder, self._name = Path(folder), name
        try:
            distinct = {self._target(trace, rank, 1) for trace in TRACES for rank in (0, 1)}
        except (LookupError, ValueError):
            distinct = set()
        if len(distinct) < 2 * len(TRACES):
            raise ValueError(f"name: {name!r} does not tell traces apart; it needs {{trace}} and {{rank}}")

    def keep(self, traces: Sequence[Path], rank: int, window: int) -> Sequence[Path]:
        """Moves the files, the host trace first, to their places, each whole or not at all; says where they are.

        Raises DataError where one was not written or cannot be.
        """
        targets = [self._target(trace, rank, window) for trace in TRACES]
        for trace, target in zip(traces, targets, strict=True):
            if not trace.exists():
                raise DataError(f"{target}: not recorded; does this process have another ExecutionTraceObserver?")
            target.parent.mkdir(parents=True, exist_ok=True)
            with trace.open("rb") as written, open_output(str(target)) as kept:
                shutil.copyfileobj(written, kept)
        return targets

    def _target(self, trace: str, rank: int, window: int) -> Path:
        return self._folder / f"{self._name.format(trace=trace, rank=rank, window=window)}{ENDING}"


def announce(kept: Sequence[Path], rank: int, speaker: int) -> None:
    """Says on stderr which files were written and, as the one rank that speaks for the job, which command makes graphs of them."""
    print(f"execgraph: rank {rank} recorded {' and '.join(map(str, kept))}", file=sys.stderr)
    if rank == speaker:
        folder = shlex.quote(str(kept[0].parent))
        print(f"execgraph: next: trace-build --input-dir {folder} --output-dir graphs", file=sys.stderr)
