"""Pairs the host and device traces of every rank in a folder, or of one process, and says why a trace has no pair.

A device trace's host trace is the one of its process, as host traces record no rank. What is found does not depend on
the order in which the folder is listed.
"""

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ..schema.errors import DataError, Remedy, RequestError
from ..schema.io import STANDARD_STREAM
from ..schema.progress import Progress, unwatched
from .recognise import InputKind, Trace, file_for_folder, kind_of, recognise, wrong_kind
from .trace_files import assign_ranks, communicating, find_traces, grouped, list_counts, list_names, names_of


class Pair(NamedTuple):
    """The traces of one rank by their paths below the folder; `records_rank` where the device trace itself says it."""

    rank: int
    device: str
    host: str | None
    records_rank: bool
    notes: list[str]


@dataclass(slots=True)
class Pairs:
    """A pair per rank in their order, traces that cannot be built, notes on unmatched ones, and other files by kind."""

    ranks: list[Pair] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)


class NoDeviceTraceError(DataError):
    """A folder in which there is nothing to pair."""


def find_pairs(
    folder: Path,
    is_output: Callable[[Path], bool],
    progress: Progress = unwatched,
    *,
    paths: Sequence[Path] = (),
    allow_mismatch: bool = False,
    otherwise: str = "",
) -> Pairs:
    """Pairs the traces below `folder`, or `paths` files there; skips hidden files and the build's own outputs.

    Raises DataError when there is no such folder, it holds no device trace, or, as `assign_ranks` has it, the rank of
    none is known. Reads a few hundred KB of each file.
    """
    if not folder.is_dir():
        raise DataError(file_for_folder(folder, InputKind.DEVICE))
    files = find_traces(paths or [folder], is_output, progress)
    devices, hosts = (
        [trace._replace(name=Path(trace.name).relative_to(folder).as_posix()) for trace in traces]
        for traces in (files.devices, files.hosts)
    )
    skipped = files.skipped | ({InputKind.MERGED.plural: len(files.merged)} if files.merged else {})
    pairs = Pairs(skipped=dict(sorted(skipped.items())))
    pairs.failures = [failure.replace(f"{folder}{os.sep}", "") for failure in files.failures]
    if not devices and not pairs.failures:
        others = list_counts(" but ", {InputKind.HOST.plural: len(hosts), **pairs.skipped})
        raise NoDeviceTraceError(f"{folder}: holds no device trace{others}; put a Kineto trace of each rank there")
    host_of = hosts_of(devices, hosts)
    near_hosts, near_devices = _nearest_among(hosts), _nearest_among(devices)
    try:
        ranks = assign_ranks(devices, communicating(host_of, folder), allow_mismatch, otherwise)
    except DataError as error:
        raise DataError(f"{folder}: {error}") from error
    if ranks.failures and not ranks.traces:
        raise DataError(f"{folder}: {'; '.join(ranks.failures)}")
    pairs.failures += ranks.failures
    pairs.notes += ranks.notes
    for device in ranks.traces:
        host = host_of.get(device.name)
        lonely = f"{device.name}: has no host trace ({near_hosts(device)}); built from the device trace alone"
        pairs.ranks.append(Pair(device.rank or 0, device.name, host, device.records_rank, [] if host else [lonely]))
    used = set(host_of.values())
    unused = (host for host in hosts if host.name not in used)
    pairs.notes += [f"{host.name}: has no device trace ({near_devices(host)}); not used" for host in unused]
    return pairs


KEYS: tuple[Callable[[Trace], tuple[Hashable, ...]], ...] = (
    lambda trace: (trace.pid, trace.rank),
    lambda trace: (trace.pid, PurePosixPath(trace.name).parent),
    lambda trace: (trace.pid,),
    lambda trace: (trace.rank,),
)
"""What the two traces of one process share, strongest first; a key that holds None is none."""


def hosts_of(devices: list[Trace], hosts: list[Trace]) -> dict[str, str]:
    """Returns the host trace of each device trace that has one: the only two traces that share a key.

    Containers give one pid to many processes, so a key may need more than the pid. Where both pids are known they
    agree.
    """
    host_of: dict[str, str] = {}
    for key in KEYS:
        used = {*host_of, *host_of.values()}
        hosts_by_key, devices_by_key = (
            grouped(key, (trace for trace in traces if trace.name not in used)) for traces in (hosts, devices)
        )
        for value, same_key in devices_by_key.items():
            if len(same_key) == len(hosts_by_key.get(value, ())) == 1 and None not in value:
                [device], [host] = same_key, hosts_by_key[value]
                if device.pid == host.pid or None in (device.pid, host.pid):
                    host_of[device.name] = host.name
    return host_of


def _nearest_among(others: list[Trace]) -> Callable[[Trace], str]:
    """Returns what tells a trace's process, and which of the `others` are of that process, or else of its rank."""
    of_process, of_rank = grouped(lambda trace: trace.pid, others), grouped(lambda trace: trace.rank, others)

    def near(trace: Trace) -> str:
        process = f"process {'unknown' if trace.pid is None else trace.pid}"
        if trace.pid is not None and trace.pid in of_process:
            return f"{process}; of the same: {names_of(of_process[trace.pid])}"
        if trace.rank is not None and trace.rank in of_rank:
            return f"{process}; of that rank, but of another process: {names_of(of_rank[trace.rank])}"
        return process

    return near


def find_pair(inputs: Sequence[str], rank: int | None = None) -> tuple[str | None, str | None]:
    """Returns the host and the device trace among one or two files, or in a folder, where `rank` chooses.

    There may be only one of them, or none. Standard input is the device trace, and so is what is no trace at all: its
    reader says what is wrong with it. Raises RequestError where the files are two of one kind or a folder holds several
    ranks, DataError where one cannot be read.
    """
    if len(inputs) == 1 and (folder := Path(inputs[0])).is_dir():
        pairs = find_pairs(folder, lambda _: False)
        if not pairs.ranks:
            raise DataError(f"{folder}: {'; '.join(pairs.failures)}")
        chosen = pairs.ranks if len(pairs.ranks) == 1 else [pair for pair in pairs.ranks if pair.rank == rank]
        if len(chosen) != 1:
            there = list_names([str(pair.rank) for pair in pairs.ranks])
            missing = "" if rank is None else f", not of rank {rank}"
            choices = ": choose one with ", Remedy.RANK, ", or build all with ", Remedy.BUILD
            raise RequestError(f"{folder}: holds the traces of ranks {there}{missing}", *choices)
        [pair] = chosen
        return str(folder / pair.host) if pair.host else None, str(folder / pair.device)
    hosts = [path for path in inputs if path != STANDARD_STREAM and recognise(Path(path)).kind is InputKind.HOST]
    devices = [path for path in inputs if path not in hosts]
    for path in devices if len(devices) > 1 else ():
        problem = wrong_kind(Path(path), InputKind.DEVICE)
        others = [other for other in devices if other != path]
        if problem and any(kind_of(Path(other)) is InputKind.DEVICE for other in others):
            problem = wrong_kind(Path(path), InputKind.HOST)  # which is what is lacking
        if problem:
            raise DataError(problem)
    for paths, kind in ((hosts, "host traces"), (devices, "device traces")):
        if len(paths) > 1:
            raise RequestError(
                f"{' and '.join(paths)} are both {kind}: give one host trace and one device trace, or build all ranks "
                "of a folder with ",
                Remedy.BUILD,
            )
    return next(iter(hosts), None), next(iter(devices), None)
