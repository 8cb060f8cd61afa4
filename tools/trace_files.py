"""Finds the traces among files and folders: what each file is, of which process, and of which rank.

A trace's rank is the recorded one, else that of its name.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ..schema.errors import DataError, MissingLibrary
from ..schema.progress import Progress, unwatched
from .kinds import TRACE, InputKind
from .recognise import recognise
from .wrong_kind import instead

TRACE_NAME = re.compile(r"\.(json|json\.gz|json\.zst|db|rpd)$", re.IGNORECASE)
BARE_NUMBER = re.compile(r"_(\d+)(?:\.pt\.trace)?\.json(?:\.gz|\.zst)?$", re.IGNORECASE)
RANK_IN_NAME = (
    re.compile(r"(?<![a-z])rank[ _.=-]*(\d+)", re.IGNORECASE),
    re.compile(r"(?<![a-z])worker[ _.=-]*(\d+)", re.IGNORECASE),
    BARE_NUMBER,
)
"""Strongest first."""
NAMES_SHOWN = 4


class Trace(NamedTuple):
    """A trace by its path; `rank` is the recorded one or that of the name."""

    name: str
    pid: int | None
    rank: int | None
    records_rank: bool


@dataclass(slots=True)
class TraceFiles:
    """The traces by kind, by path; files that cannot be used, one line each; how many others there were, by kind."""

    devices: list[Trace] = field(default_factory=list)
    hosts: list[Trace] = field(default_factory=list)
    merged: list[Trace] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)


def find_traces(
    paths: Sequence[Path], leave_out: Callable[[Path], bool] = lambda _: False, progress: Progress = unwatched
) -> TraceFiles:
    """Looks at files and at all files in folders and below, but hidden ones and those for which `leave_out` holds.

    Raises DataError for a path that does not exist. Reads a few hundred KB of each file.
    """
    traces, skipped = TraceFiles(), Counter[str]()
    of_kind = {
        InputKind.DEVICE: traces.devices,
        InputKind.HOST: traces.hosts,
        InputKind.MERGED: traces.merged,
        InputKind.MERGED_DATABASE: traces.merged,
    }
    files = [(path, name) for path, name in _files(paths) if not leave_out(path)]
    named = {path for path in paths if not path.is_dir()}
    for path, name in progress(files, "looking at files", unit="file"):
        try:
            kind, pid, rank = recognise(path)
        except DataError as error:
            if path in named or TRACE_NAME.search(path.name):
                if isinstance(error, MissingLibrary):
                    raise
                traces.failures.append(str(error))
                continue
            kind, pid, rank = InputKind.OTHER, None, None
        if kind in of_kind:
            assigned_rank = rank_in_name(name, pid) if rank is None else rank
            of_kind[kind].append(Trace(str(path), pid, assigned_rank, rank is not None))
        elif path in named:
            traces.failures.append(instead(path, kind, TRACE))
        else:
            skipped[kind.value] += 1
    traces.skipped = dict(sorted(skipped.items()))
    return traces


def rank_in_name(name: str, process: int | None = None) -> int | None:
    """Returns the rank that a path tells, by the file's own name before those of the folders around it.

    A bare number that is the process is none.

    >>> rank_in_name("run_2/device_rank3.json"), rank_in_name("rank_5/host.json"), rank_in_name("et_7.json.gz")
    (3, 5, 7)
    """
    parts = reversed(PurePosixPath(name).parts)
    matches = ((pattern, pattern.search(part)) for part in parts for pattern in RANK_IN_NAME)
    ranks = ((pattern, int(rank.group(1))) for pattern, rank in matches if rank)
    return next((rank for pattern, rank in ranks if pattern is not BARE_NUMBER or rank != process), None)


def list_names(names: Sequence[str]) -> str:
    """Returns the first few names, and how many more there are."""
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def names_of(traces: Sequence[Trace]) -> str:
    """Returns the names of the first few traces, and how many more there are."""
    return list_names([trace.name for trace in traces])


def list_counts(lead: str, counts: Mapping[str, int]) -> str:
    """Returns `lead` and how many files of each kind there are; "" without any."""
    listing = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    return lead + listing if listing else ""


def _files(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yields each file once, with its name as it is given or below the folder that is."""
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: no such file or folder; check the path")
        below = [file for file in sorted(path.rglob("*")) if not _hidden(file.relative_to(path)) and file.is_file()]
        for file in below if path.is_dir() else (path,):
            if file.resolve() not in seen:
                seen.add(file.resolve())
                yield file, (file.relative_to(path) if path.is_dir() else file).as_posix()


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
