"""Where the pair of traces of a rank goes, and what to do with it then."""

import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ...schema.errors import DataError
from ...schema.io import open_output

TRACES = ("host", "device")
ENDING = ".json.gz"


class Destination:
    """A folder, and in it files named by `name`, in which {trace}, {rank} and {window} stand for what they are of.

    Raises ValueError for a folder that is a file, and for a name that two traces would have in common.
    """

    def __init__(self, folder: str | Path, name: str) -> None:
        self._folder, self._name = Path(folder), name
        if self._folder.exists() and not self._folder.is_dir():
            raise ValueError(f"{folder}: not a folder; name one that the traces can go into")
        try:
            targets = {self._target(trace, rank, 1) for trace in TRACES for rank in (0, 1)}
        except (LookupError, ValueError):
            targets = set()
        if len(targets) < 2 * len(TRACES):
            raise ValueError(f"name: {name!r} does not distinguish traces; it needs {{trace}} and {{rank}}")

    def keep(self, traces: Sequence[Path], rank: int, window: int) -> Sequence[Path]:
        """Moves the files, the host trace first, to their places, both whole or neither; says where they are.

        Raises DataError where one was not written whole or cannot be.
        """
        targets = [self._target(trace, rank, window) for trace in TRACES]
        for trace in traces:
            _check_whole(trace)
        with ExitStack() as outputs:
            for trace, target in zip(traces, targets, strict=True):
                target.parent.mkdir(parents=True, exist_ok=True)
                with trace.open("rb") as written:
                    shutil.copyfileobj(written, outputs.enter_context(open_output(str(target))))
        return targets

    def _target(self, trace: str, rank: int, window: int) -> Path:
        return self._folder / f"{self._name.format(trace=trace, rank=rank, window=window)}{ENDING}"


def _check_whole(trace: Path) -> None:
    """Raises DataError where PyTorch could not write all of a trace, which it does not say itself. Each ends with a
    brace.
    """
    tail = b""
    if trace.exists():
        with trace.open("rb") as written:
            written.seek(max(trace.stat().st_size - 16, 0))
            tail = written.read().rstrip()
    if not tail.endswith(b"}"):
        raise DataError(
            f"PyTorch could not write the whole {trace.stem} trace to {trace.parent.parent}; make room there"
        )


def announce(kept: Sequence[Path], rank: int, speaker: int) -> None:
    """Says on stderr which files were written and, as the one rank that speaks for the job, which command makes graphs
    of them.
    """
    print(f"execgraph: rank {rank} recorded {' and '.join(map(str, kept))}", file=sys.stderr)
    if rank == speaker:
        print(f"execgraph: next: trace-build {shlex.quote(str(kept[0].parent))} -o graphs", file=sys.stderr)
