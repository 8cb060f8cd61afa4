"""Tells the host trace from the device trace among the files of one process on a command line, or in a folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..schema.errors import DataError, RequestError
from ..schema.io import STANDARD_STREAM
from .kinds import InputKind
from .pairs import find_pairs
from .recognise import recognise
from .trace_files import list_names
from .wrong_kind import kind_of, wrong_kind


class OnePair(NamedTuple):
    """The paths of the traces of one process, None where there is none."""

    host: str | None
    device: str | None


def find_pair(inputs: Sequence[str], rank: int | None = None) -> OnePair:
    """Returns the host and the device trace among one or two files, or in a folder, where `rank` chooses.

    Standard input is the device trace, and so is what is no trace at all: its reader says what is wrong with it. Raises
    RequestError where the files are two of one kind or a folder holds several ranks, DataError where one cannot be
    read.
    """
    if len(inputs) == 1 and Path(inputs[0]).is_dir():
        return _pair_in_folder(Path(inputs[0]), rank)
    hosts = [path for path in inputs if path != STANDARD_STREAM and recognise(Path(path)).kind is InputKind.HOST]
    devices = [path for path in inputs if path not in hosts]
    for path in devices if len(devices) > 1 else ():
        if problem := _problem(path, [other for other in devices if other != path]):
            raise DataError(problem)
    for paths, kind in ((hosts, "host traces"), (devices, "device traces")):
        if len(paths) > 1:
            raise RequestError(
                f"{' and '.join(paths)} are both {kind}: give one host trace and one device trace, or build all ranks "
                "of a folder with trace-build"
            )
    return OnePair(next(iter(hosts), None), next(iter(devices), None))


def _problem(path: str, others: Sequence[str]) -> str:
    """Returns a sentence on what is no trace; where another is a device trace, a host trace is wanted in its place."""
    problem = wrong_kind(Path(path), InputKind.DEVICE)
    is_host_wanted = any(kind_of(Path(other)) is InputKind.DEVICE for other in others)
    return problem and (wrong_kind(Path(path), InputKind.HOST) if is_host_wanted else problem)


def _pair_in_folder(folder: Path, rank: int | None) -> OnePair:
    pairs = find_pairs(folder, lambda _: False)
    if not pairs.ranks:
        raise DataError(f"{folder}: {'; '.join(pairs.failures)}")
    chosen = pairs.ranks if len(pairs.ranks) == 1 else [pair for pair in pairs.ranks if pair.rank == rank]
    if len(chosen) != 1:
        there = list_names([str(pair.rank) for pair in pairs.ranks])
        missing = "" if rank is None else f", not of rank {rank}"
        raise RequestError(
            f"{folder}: holds the traces of ranks {there}{missing}: choose one with --rank N, or build all with "
            "trace-build"
        )
    host, device = chosen[0].host, chosen[0].device
    return OnePair(str(folder / host) if host else None, str(folder / device))
