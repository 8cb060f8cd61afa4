"""Paths in, the traces among them out: what each file is, of which process, and of which rank.

The recorded rank comes first, then that of the name; a number in the name that is the file's process is no rank.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..linker.device_rows import DeviceTrace
from ..linker.device_trace import read_device_trace
from ..linker.rocpd import read_rocpd
from ..linker.rocpd_database import dialect, is_database, is_merged, is_rocpd, opened, recorded_processes
from ..schema.command import progress
from ..schema.errors import DataError
from .pairs import NAMES_SHOWN, Trace, rank_in_name
from .recognise import Kind, Recognised, recognise

TRACE_NAME = re.compile(r"\.(json|json\.gz|db|rpd)$", re.IGNORECASE)
PROCESS_IN_NAME = re.compile(r"[_.-](\d+)\.(?:db|rpd)$")


@dataclass(slots=True)
class TraceFiles:
    """The traces by kind, by path; files that cannot be used, one line each; how many others there were, by kind."""

    devices: list[Trace] = field(default_factory=list)
    hosts: list[Trace] = field(default_factory=list)
    merged: list[Trace] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)


class RankTrace(NamedTuple):
    """The device trace of a rank."""

    rank: int
    path: Path


def find_traces(given: Sequence[Path]) -> TraceFiles:
    """Looks at files and at all files in folders and below, but hidden ones. Raises DataError for a path that does not exist."""
    found, skipped = TraceFiles(), Counter[str]()
    of_kind = {Kind.DEVICE: found.devices, Kind.HOST: found.hosts, Kind.MERGED: found.merged}
    named = {path for path in given if not path.is_dir()}
    for path in progress(list(_files(given)), "looking at files", unit="file"):
        try:
            kind, pid, rank = _recognised(path)
        except DataError as error:
            if path in named or TRACE_NAME.search(path.name):
                found.failures.append(str(error))
                continue
            kind, pid, rank = Kind.OTHER, None, None
        if kind in of_kind:
            by_name = rank_in_name(path.as_posix())
            known = rank if rank is not None else by_name if by_name != pid else None
            of_kind[kind].append(Trace(str(path), pid, known, rank is not None))
        elif path in named:
            found.failures.append(f"{path}: is none of the traces that are read here, but one of the {kind.value}")
        else:
            skipped[kind.value] += 1
    found.skipped = dict(sorted(skipped.items()))
    return found


def read_trace(path: Path) -> DeviceTrace:
    """Reads a device trace, whether Kineto or rocpd. Raises DataError when it is neither or is damaged."""
    return read_rocpd(str(path)) if is_database(str(path)) else read_device_trace(str(path))


def by_rank(devices: Sequence[Trace]) -> tuple[list[RankTrace], list[str]]:
    """A rank for every device trace, in their order, and a line for each that was numbered.

    Traces that tell no rank get those that are free, in the order of their processes, as launchers start them. Raises DataError where
    several have one rank.
    """
    same: dict[int, list[str]] = defaultdict(list)
    for trace in devices:
        if trace.rank is not None:
            same[trace.rank].append(trace.name)
    for rank, names in sorted(same.items()):
        if len(names) > 1:
            raise DataError(
                f"rank {rank}: {len(names)} device traces ({listing(names)}); keep one, or give those of one run"
            )
    unknown = sorted((t for t in devices if t.rank is None), key=lambda t: (t.pid is None, t.pid or 0, t.name))
    free = (rank for rank in range(len(devices)) if rank not in same)
    numbered = [RankTrace(rank, Path(trace.name)) for rank, trace in zip(free, unknown, strict=False)]
    notes = [f"{path}: tells no rank; numbered {rank} by its process" for rank, path in numbered if len(devices) > 1]
    known = [RankTrace(rank, Path(names[0])) for rank, names in same.items()]
    return sorted(known + numbered), notes


def listing(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _files(given: Iterable[Path]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in given:
        if not path.exists():
            raise DataError(f"{path}: no such file or folder; check the path")
        below = (one for one in sorted(path.rglob("*")) if one.is_file() and not _hidden(one.relative_to(path)))
        for one in below if path.is_dir() else (path,):
            if one.resolve() not in seen:
                seen.add(one.resolve())
                yield one


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _recognised(path: Path) -> Recognised:
    if not is_database(str(path)):
        return recognise(path)
    with opened(str(path)) as database:
        if is_merged(database) or not is_rocpd(database):
            return Recognised(Kind.MERGED if is_merged(database) else Kind.OTHER)
        dialect(database)
        processes = recorded_processes(database)
    by_name = PROCESS_IN_NAME.search(path.name)
    if len(processes) > 1:
        return Recognised(Kind.MERGED)
    return Recognised(Kind.DEVICE, processes[0] if processes else int(by_name.group(1)) if by_name else None)
