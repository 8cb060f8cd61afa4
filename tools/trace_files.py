"""Finds the traces among files and folders: of which process and rank each is, and which two are of one process.

A trace's rank is the recorded one, else that of its name; no rank is made up of an order alone. Several traces of one
process are windows of its recording, never ranks. What is found does not depend on the order of a folder's listing.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from ..schema.errors import DataError, MissingLibrary, Remedy, RequestError
from ..schema.io import STANDARD_STREAM, open_input, path_is
from ..schema.linked import kineto
from ..schema.progress import Progress, unwatched
from .recognise import TRACE, InputKind, Trace, file_for_folder, instead, pieces, recognise, why_two_runs, wrong_kind
from .terminal import list_counts, list_names, ranges

K = TypeVar("K", bound=Hashable)
CommunicationTest = Callable[[Trace], bool]
TRACE_NAME = re.compile(r"\.(json|pftrace|db|rpd|sqlite)(\.gz|\.zst)?$", re.IGNORECASE)
LONGEST_SIGN = 64
COMMUNICATION = re.compile(
    rb'"(record_param_comms|Collective name)"|process_group:init|"(gloo|mpi|ucc|c10d|\w{,4}ccl)::?\w'
    rb"|ncclKernel|ncclDevKernel|rcclGenericKernel|mscclKernel"
)
"""What a process records that communicates with others."""
ORIGINS = {
    "window": (" of one process", ": windows or copies of one recording"),
    "run": (" of different processes", ": different runs"),
    "": ("", ""),
}
"""What several traces of a rank are: of which processes, and why there are several."""
KEYS: tuple[Callable[[Trace], tuple[Hashable, ...]], ...] = (
    lambda trace: (trace.pid, trace.rank), lambda trace: (trace.pid, trace.folder),
    lambda trace: (trace.pid,), lambda trace: (trace.rank,),
)  # fmt: skip
"""What the two traces of one process share, strongest first; a key that holds None is none."""


@dataclass(slots=True)
class TraceFiles:
    """The traces by kind, by path; files that cannot be used, one line each; how many others there were, by kind."""

    devices: list[Trace] = field(default_factory=list)
    hosts: list[Trace] = field(default_factory=list)
    details: list[Trace] = field(default_factory=list)
    merged: list[Trace] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)


def find_traces(
    paths: Sequence[Path], leave_out: Callable[[Path], bool] = lambda _: False, progress: Progress = unwatched
) -> TraceFiles:
    """Looks at files and at all in folders and below, but hidden ones and those for which `leave_out` holds."""
    traces, skipped = TraceFiles(), Counter[str]()
    of_kind = {InputKind.DEVICE: traces.devices, InputKind.HOST: traces.hosts, InputKind.DETAIL: traces.details}
    of_kind |= dict.fromkeys((InputKind.MERGED, InputKind.MERGED_DATABASE), traces.merged)
    files = [(path, name) for path, name in _files(paths) if not leave_out(path)]
    named = {path for path in paths if not path_is(path, Path.is_dir)}
    for path, name in progress(files, "looking at files", unit="file"):
        try:
            trace = recognise(path, name)
        except DataError as error:
            if path in named or TRACE_NAME.search(path.name):
                if isinstance(error, MissingLibrary):
                    raise
                traces.failures.append(str(error))
            else:
                skipped[InputKind.OTHER.plural] += 1
            continue
        if trace.kind in of_kind:
            of_kind[trace.kind].append(trace)
        elif path in named:
            traces.failures.append(instead(path, trace.kind, TRACE))
        else:
            skipped[trace.kind.plural] += 1
    traces.devices = with_details(traces.devices, traces.details)
    traces.skipped = dict(sorted(skipped.items()))
    return traces


def with_details(devices: list[Trace], details: list[Trace]) -> list[Trace]:
    """Returns the device traces, each with the detail trace of its process."""
    detail_of = hosts_of(devices, details)
    return [device._replace(detail=detail_of.get(device.name, "")) for device in devices]


def names_of(traces: Sequence[Trace]) -> str:
    """Returns the names of the first few traces, and how many more there are."""
    return list_names([trace.name for trace in traces])


def _files(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yields each file once, with its name as it is given or below the folder that is."""
    seen: set[Path] = set()
    for path in paths:
        if not path_is(path, Path.exists):
            raise DataError(f"{path}: no such file or folder; check the path")
        is_folder = path.is_dir()
        for file in sorted(path.rglob("*")) if is_folder else (path,):
            name = file.relative_to(path) if is_folder else file
            # what is given by itself is read, whatever its name, even if it is a pipe
            is_passed_over = is_folder and (not file.is_file() or any(part.startswith(".") for part in name.parts))
            if not is_passed_over and file.resolve() not in seen:
                seen.add(file.resolve())
                yield file, name.as_posix()


class RankFile(NamedTuple):
    """The device trace of a rank."""

    rank: int
    path: Path


class AssignedRanks(NamedTuple):
    """The only traces of their ranks, lines on those unusable or numbered, and whether traces are of different runs."""

    traces: list[Trace]
    failures: list[str]
    notes: list[str]
    of_several_runs: bool = False


def assign_ranks(
    devices: Sequence[Trace], communicates: CommunicationTest, allow_mismatch: bool = False, otherwise: str = ""
) -> AssignedRanks:
    """Returns the ranks of device traces; a lone one without is rank 0.

    Where none tells a rank they are numbered by process, as launchers start ranks in that order, if all communicate, or
    with `allow_mismatch`. Else it raises DataError, which says `otherwise`, too: what else the command has for them.
    """
    notes: list[str] = []
    remedies = f"{otherwise and f'{otherwise}, '}or let {Remedy.ALLOW_MISMATCH} take them as those of one job"
    if len(devices) == 1:
        devices = [trace._replace(rank=trace.rank or 0) for trace in devices]
    elif ranks := _ranks_by_coordinates(devices):
        devices = [trace._replace(rank=ranks[Path(trace.name).name]) for trace in devices]
        notes = [f"{t.name}: numbered {t.rank} by the coordinates in its name, as servers count" for t in devices]
    elif devices and all(trace.rank is None for trace in devices):
        _check_one_job(devices, communicates, allow_mismatch, remedies)
        in_order = sorted(devices, key=lambda trace: (trace.pid or 0, trace.name))
        devices = [trace._replace(rank=rank) for rank, trace in enumerate(in_order)]
        notes = [f"{t.name}: has no rank; numbered {t.rank} by its process, {t.pid}" for t in devices]
    of_rank = grouped(lambda trace: trace.rank, devices)
    rankless = of_rank.pop(None, [])
    of_ranks = sorted((rank, traces) for rank, traces in of_rank.items() if rank is not None)
    single = [traces[0] for _, traces in of_ranks if len(traces) == 1]
    several = {rank: traces for rank, traces in of_ranks if len(traces) > 1}
    of_runs = [traces for traces in several.values() if _common_origin(traces) == "run"]
    for traces in of_runs:
        folders = {trace.folder for trace in traces}
        if len(folders) == len(traces) and {trace.folder for trace in single} <= folders:
            all_of = sorted({trace.folder for trace in devices})
            line = f"{len(all_of)} runs, each in a folder of its own ({list_names(all_of)}); give one of them"
            return AssignedRanks([], [line], [], of_several_runs=True)
    apart, are = why_two_runs({trace.name: trace.recorded_ns for trace in single}), "of two runs"
    by_identity = grouped(lambda trace: trace.identity, single)
    if copies := [names_of(same) for key, same in by_identity.items() if key and len(same) > 1]:
        apart, are = f"{copies[0]} have the same process and times", "copies of one rank"
    if apart:
        if not allow_mismatch:
            raise DataError(f"{apart}, so they are {are}; give the traces of one, {remedies}")
        notes.append(f"{apart}, as if they were {are}")
    failures = [*_without_rank(rankless, devices), *_of_one_rank(several)]
    return AssignedRanks(single, failures, notes, bool(of_runs))


def _ranks_by_coordinates(devices: Sequence[Trace]) -> dict[str, int]:
    """Returns the ranks of files by name where coordinates in the names, no sizes, tell them and nothing else does."""
    known = {trace.rank for trace in devices} - {None}
    if len(known) == len(devices) or any(trace.records_rank for trace in devices):
        return {}
    ranks = kineto.ranks_by_coordinates(Path(trace.name).name for trace in devices)
    is_first_there = ranks and not any(kineto.coordinates(min(ranks, key=ranks.__getitem__)).values())
    return ranks if is_first_there and len(ranks) == len(devices) else {}


def _common_origin(traces: Sequence[Trace]) -> str:
    """Returns "window" for traces of one process, "run" for those of different ones, "" where that is not known."""
    processes = {trace.pid for trace in traces}
    return "" if None in processes else "window" if len(processes) == 1 else "run"


def by_rank(
    devices: Sequence[Trace], host_of: Mapping[str, str], allow_mismatch: bool = False
) -> tuple[list[RankFile], list[str]]:
    """Returns device traces by rank, and a line for each that was numbered. Raises DataError if one cannot be used."""
    traces, failures, notes, _ = assign_ranks(devices, communicating(host_of), allow_mismatch)
    if failures:
        raise DataError("; ".join(failures))
    return [RankFile(trace.rank or 0, Path(trace.name)) for trace in traces], notes


def communicating(host_of: Mapping[str, str], folder: Path = Path()) -> CommunicationTest:
    """Returns a function that says whether a device trace below `folder`, or its host trace, records communication."""

    def look(trace: Trace) -> bool:
        for path in filter(None, (trace.name, host_of.get(trace.name))):
            text = b""
            with open_input(str(folder / path)) as stream:
                for piece in pieces(stream):
                    text = text[-LONGEST_SIGN:] + piece
                    if COMMUNICATION.search(text):
                        return True
        return False

    return look


def grouped(key: Callable[[Trace], K], traces: Iterable[Trace]) -> dict[K, list[Trace]]:
    """Returns the traces by their keys."""
    groups: dict[K, list[Trace]] = defaultdict(list)
    for trace in traces:
        groups[key(trace)].append(trace)
    return groups


def _check_one_job(
    devices: Sequence[Trace], communicates: CommunicationTest, allow_mismatch: bool, remedies: str
) -> None:
    """Raises DataError if traces without a rank are windows of one process, or may be of several jobs."""
    of_process = grouped(lambda trace: trace.pid, devices)
    if unknown := of_process.pop(None, []):
        remedy = "name them …rank<N>.json, or give one of them"
        raise DataError(f"{names_of(unknown)}: without a rank and a process; {remedy}")
    if windows := next((traces for traces in of_process.values() if len(traces) > 1), []):
        why, remedy = "windows or copies of one recording, not ranks", _one_of(windows, "window")
        of_one = f"record no rank and are of one process, {windows[0].pid}"
        raise DataError(f"{names_of(windows)}: {of_one}: {why}; {remedy}")
    if not (allow_mismatch or all(map(communicates, devices))):
        problem = "record no rank, and nothing shows that they are of one job"
        ways = f"give one of them, name them …rank<N>.json, {remedies}"
        raise DataError(f"{_with_processes(devices)}: {problem}; {ways}")


def _without_rank(rankless: Sequence[Trace], devices: Sequence[Trace]) -> Iterator[str]:
    """Yields a line for each trace without a rank among others that have one."""
    ranked = {trace.pid: trace.name for trace in devices if trace.rank is not None and trace.pid is not None}
    others = [trace for trace in rankless if trace.pid not in ranked]
    if len({trace.pid for trace in others}) > 1:
        remedy = "if they are different runs, give one of them, else name them …rank<N>.json"
        yield f"{_with_processes(others)}: record no rank and are of different processes; {remedy}"
        rankless = [trace for trace in rankless if trace.pid in ranked]
    for trace in rankless:
        same = f", and is of process {trace.pid} like {ranked[trace.pid]}" if trace.pid in ranked else ""
        remedy = "move one of them away" if same else "rename it to …rank<N>.json, or move it away"
        yield f"{trace.name}: records no rank{same or ' and its name has none'}; {remedy}"


def _of_one_rank(several: Mapping[int, Sequence[Trace]]) -> Iterator[str]:
    """Yields a line for all ranks with as many traces of one origin: of one process, of several, or of unknown ones."""
    ranks_by_case: dict[tuple[int, str], list[int]] = defaultdict(list)
    for rank, same_rank in several.items():
        ranks_by_case[len(same_rank), _common_origin(same_rank)].append(rank)
    for (count, origin), ranks in ranks_by_case.items():
        same_rank = several[ranks[0]]
        plural, each, more = ("s", " each", ", …") if len(ranks) > 1 else ("", "", "")
        names = f"({names_of(same_rank) if origin == 'window' else _with_processes(same_rank)}{more})"
        processes, why = ORIGINS[origin]
        remedy = _one_of(same_rank, origin) if origin else "keep one, or give those of one run"
        yield f"rank{plural} {ranges(ranks)}: {count} device traces{processes}{each} {names}{why}; {remedy}"


def _one_of(traces: Sequence[Trace], what: str) -> str:
    """Returns how to give one of several windows or runs."""
    folders = sorted({trace.folder for trace in traces})
    if len(folders) == len(traces):
        return f"give those of one {what}, such as {folders[0]}"
    return f"give those of one {what} alone, in a folder of their own or to {Remedy.LINK}"


def _with_processes(traces: Sequence[Trace]) -> str:
    return list_names([trace.name if trace.pid is None else f"{trace.name} of process {trace.pid}" for trace in traces])


class Pair(NamedTuple):
    """The traces of one rank by their paths below the folder; `records_rank` where the device trace itself says it."""

    rank: int
    device: str
    host: str | None
    records_rank: bool
    notes: list[str]
    detail: str = ""

    @property
    def names(self) -> tuple[str, str | None, str | None]:
        """The paths of the device trace, the host trace and the detail trace."""
        return self.device, self.host, self.detail or None


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
    """Pairs the traces below `folder`, or `paths` files there; skips hidden files and the build's own outputs."""
    if not path_is(folder, Path.is_dir):
        raise DataError(file_for_folder(folder, InputKind.DEVICE))
    files = find_traces(paths or [folder], is_output, progress)
    of_kinds = files.devices, files.hosts, files.details
    devices, hosts, details = ([_below(trace, folder) for trace in traces] for traces in of_kinds)
    if len(files.merged) == 1 and not (devices or hosts or files.failures):
        from ..linker.readers import merged_ranks

        name, merged = _below(files.merged[0], folder).name, merged_ranks(files.merged[0].name)
        return Pairs([Pair(rank, name, None, False, []) for rank in merged], skipped=files.skipped)
    skipped = files.skipped | ({InputKind.MERGED.plural: len(files.merged)} if files.merged else {})
    pairs = Pairs(skipped=dict(sorted(skipped.items())))
    pairs.failures = [failure.replace(f"{folder}{os.sep}", "") for failure in files.failures]
    if not devices and not pairs.failures:
        others = list_counts(" but ", {InputKind.HOST.plural: len(hosts), **pairs.skipped})
        is_merged = len(files.merged) > 1
        each = ("give each alone to ", Remedy.BUILD, ", and its graphs to ", Remedy.REPORT)
        remedy = each if is_merged else ("put a Kineto trace of each rank there",)
        raise NoDeviceTraceError(f"{folder}: holds no device trace{' of one rank' * is_merged}{others}; ", *remedy)
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
        of_device = device.rank or 0, device.name, host, device.records_rank, [] if host else [lonely]
        pairs.ranks.append(Pair(*of_device, device.detail))
    used = {*host_of.values(), *(device.detail for device in devices)}
    unused = (trace for trace in (*hosts, *details) if trace.name not in used)
    pairs.notes += [f"{trace.name}: has no device trace ({near_devices(trace)}); not used" for trace in unused]
    return pairs


def _below(trace: Trace, folder: Path) -> Trace:
    name, detail = (path and Path(path).relative_to(folder).as_posix() for path in (trace.name, trace.detail))
    return trace._replace(name=name, detail=detail)


def hosts_of(devices: list[Trace], hosts: list[Trace]) -> dict[str, str]:
    """Returns the host trace of each device trace that has one: the only two that share a key, and the pid if known."""
    host_of: dict[str, str] = {}
    for key in KEYS:
        used = {*host_of, *host_of.values()}
        hosts_by_key = grouped(key, (host for host in hosts if host.name not in used))
        devices_by_key = grouped(key, (device for device in devices if device.name not in used))
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


def find_pair(inputs: Sequence[str], rank: int | None = None) -> tuple[str | None, str | None, str | None]:
    """Returns the host, the device and the detail trace among up to three files, or in a folder, where `rank` chooses.

    There may be only one of them, or none. What is no trace is the device trace: its reader says what is wrong with it.
    Raises RequestError where the files are two of one kind or a folder holds several ranks.
    """
    if len(inputs) == 1 and path_is(folder := Path(inputs[0]), Path.is_dir):
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
        host, detail = (str(folder / name) if name else None for name in (pair.host, pair.detail))
        return host, str(folder / pair.device), detail
    kinds = {path: recognise(Path(path)).kind for path in inputs if path != STANDARD_STREAM}
    hosts = [path for path in inputs if kinds.get(path) is InputKind.HOST]
    details = [path for path in inputs if kinds.get(path) is InputKind.DETAIL]
    devices = [path for path in inputs if path not in (*hosts, *details)]
    for path in devices if len(devices) > 1 else ():
        problem = wrong_kind(Path(path), InputKind.DEVICE)
        if problem and any(kinds.get(other) is InputKind.DEVICE for other in devices if other != path):
            problem = wrong_kind(Path(path), InputKind.HOST)  # which is what is lacking
        if problem:
            raise DataError(problem)
    for paths, kind in ((hosts, "host traces"), (devices, "device traces"), (details, "detail traces")):
        if len(paths) > 1:
            problem = f"{' and '.join(paths)} are both {kind}: give one host trace and one device trace"
            raise RequestError(problem, ", or build all ranks of a folder with ", Remedy.BUILD)
    if details and not devices:
        raise RequestError(f"{details[0]} is a detail trace: give the device trace of the same process, too")
    host, device, detail = (next(iter(paths), None) for paths in (hosts, devices, details))
    return host, device, detail
