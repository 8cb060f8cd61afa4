"""Diagnoses files and folders: every process that was traced, what is in its files, and all findings."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from ...schema.errors import DataError
from ...schema.progress import Progress, unwatched
from ..inputs import InputKind, Trace, TraceFiles, find_traces, hosts_of
from ..workers import in_processes
from .comparison import compare
from .findings import WRONG, Finding, findings_of
from .inspection import Inspection, ProcessFiles, inspect
from .wording import joined

WORTH_PROCESSES = 32 << 20
"""So many bytes make up for starting processes."""

Outcomes = Iterator[tuple[ProcessFiles, Inspection | Exception]]
Runner = Callable[[Callable[[ProcessFiles], Inspection], Sequence[ProcessFiles]], Outcomes]
"""Runs a function on tasks and yields each with what became of it, in any order."""


class Diagnosis(msgspec.Struct):
    """The processes by rank, the findings with what is wrong first, and how many other files there were, by kind."""

    processes: list[Inspection]
    findings: list[Finding]
    skipped: dict[str, int] = {}

    @property
    def wrong(self) -> int:
        """How many findings are of something wrong."""
        return sum(found.severity == WRONG for found in self.findings)


def diagnose(given: Sequence[Path], run: Runner | None = None, progress: Progress = unwatched) -> Diagnosis:
    """Reads every trace among the files and folders once. Raises DataError when there is none."""
    found = find_traces(given, progress=progress)
    if found.devices:
        _leave_out_merged(found, given)
    processes = _processes(found)
    if not processes and not found.failures:
        raise DataError(f"{', '.join(map(str, given))}: no traces there{_instead(found)}")
    inspected = _inspected(processes, run or in_turn, progress)
    failures = [Finding(WRONG, [], line, "") for line in found.failures]
    own = [finding for process in inspected for finding in findings_of(process)]
    return Diagnosis(inspected, joined([*failures, *own, *compare(inspected)]), found.skipped)


def _leave_out_merged(found: TraceFiles, given: Sequence[Path]) -> None:
    """A merged trace among those that it was merged of is no process of its own, unless it was asked for by name."""
    named = {str(path) for path in given}
    left_out = [trace for trace in found.merged if trace.name not in named]
    found.merged = [trace for trace in found.merged if trace.name in named]
    if left_out:
        found.skipped[InputKind.MERGED.value] = len(left_out)


def _processes(found: TraceFiles) -> list[ProcessFiles]:
    """Returns pairs by process; then those that only their ranks or loneliness put together, which the findings judge."""
    host_of = hosts_of(found.devices, found.hosts)
    devices = [trace for trace in found.devices if trace.name not in host_of]
    hosts = [trace for trace in found.hosts if trace.name not in set(host_of.values())]
    for device in devices:
        same = [host for host in hosts if host.rank == device.rank and host.rank is not None]
        alone = hosts if len(hosts) == len(devices) == 1 else same
        if len(alone) == 1:
            host_of[device.name] = alone[0].name
    lonely = [host for host in hosts if host.name not in set(host_of.values())]
    pairs = [_files(device, host_of.get(device.name, "")) for device in found.devices]
    pairs += [_files(merged, "") for merged in found.merged]
    pairs += [ProcessFiles("", host.name, host.rank, False) for host in lonely]
    return sorted(pairs, key=lambda pair: (pair.rank is None, pair.rank or 0, pair.device, pair.host))


def _files(device: Trace, host: str) -> ProcessFiles:
    return ProcessFiles(device.name, host, device.rank, device.records_rank)


def in_turn(function: Callable[[ProcessFiles], Inspection], tasks: Sequence[ProcessFiles]) -> Outcomes:
    """Yields one after the other, here."""
    for task in tasks:
        yield task, function(task)


def in_parallel_if_large(function: Callable[[ProcessFiles], Inspection], tasks: Sequence[ProcessFiles]) -> Outcomes:
    """Yields in processes on all cores, where the files are large enough to make up for starting them."""
    size = sum(Path(path).stat().st_size for task in tasks for path in (task.device, task.host) if path)
    run = in_turn if size < WORTH_PROCESSES or len(tasks) < 2 else partial(in_processes, jobs=os.cpu_count() or 1)
    yield from run(function, tasks)


def _inspected(processes: list[ProcessFiles], run: Runner, progress: Progress) -> list[Inspection]:
    found: dict[ProcessFiles, Inspection] = {}
    outcomes = run(inspect, processes)
    for process, outcome in progress(outcomes, "looking into traces", len(processes), "process"):
        failed = Inspection(process.device, process.host, rank=process.rank, error=str(outcome))
        found[process] = outcome if isinstance(outcome, Inspection) else failed
    return [found[process] for process in processes]


def _instead(found: TraceFiles) -> str:
    listing = ", ".join(f"{count} {kind}" for kind, count in found.skipped.items())
    return f", but {listing}" if listing else ""
