"""Diagnoses files and folders: every process that was traced, what is in its files, and all findings."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from ...schema.columns import format_counts
from ...schema.errors import DataError
from ...schema.progress import Progress, unwatched
from ..kinds import InputKind
from ..pairs import hosts_of
from ..trace_files import Trace, TraceFiles, find_traces, list_counts
from ..workers import in_processes
from .comparison import compare
from .diagnosis_findings import WRONG, Finding, findings_of
from .diagnosis_wording import in_words, merge_findings
from .inspection import Inspection, ProcessFiles, inspect

WORTH_PROCESSES = 32 << 20
"""So many bytes make up for starting processes."""

Outcomes = Iterator[tuple[ProcessFiles, Inspection | Exception]]
Runner = Callable[[Callable[[ProcessFiles], Inspection], Sequence[ProcessFiles]], Outcomes]
"""Runs a function on tasks and yields each with what became of it, in any order."""


class Diagnosis(msgspec.Struct):
    """The processes by rank, the findings with what is wrong first, how many other files there were, by kind, and
    whether the processes are of different runs: they are not compared then.

    >>> import execgraph as eg
    >>> eg.diagnose("tests/data/training/device_rank0.json.gz").findings[0].what
    'a device trace without a host trace'
    """

    processes: list[Inspection]
    findings: list[Finding]
    skipped: dict[str, int] = {}
    of_several_runs: bool = False

    @property
    def wrong(self) -> int:
        """How many findings are of something wrong."""
        return sum(finding.severity == WRONG for finding in self.findings)

    def __repr__(self) -> str:
        counts = {"wrong": self.wrong, "notes": len(self.findings) - self.wrong}
        processes = f"{len(self.processes)} process{'es' * (len(self.processes) != 1)}"
        title = f"Diagnosis of {processes}: {format_counts(counts) or 'nothing to note'}"
        return "\n".join([title, *(f"  {finding.severity:<6} {in_words(finding)}" for finding in self.findings)])


def diagnose(paths: Sequence[Path], run: Runner | None = None, progress: Progress = unwatched) -> Diagnosis:
    """Reads every trace among the files and folders once. Raises DataError when there is none."""
    files = find_traces(paths, progress=progress)
    if files.devices:
        _leave_out_merged(files, paths)
    processes = _processes(files)
    if not processes and not files.failures:
        raise DataError(f"{', '.join(map(str, paths))}: no traces there{list_counts(', but ', files.skipped)}")
    inspected = _inspect_all(processes, run or in_turn, progress)
    failures = [Finding(WRONG, [], line, "") for line in files.failures]
    of_processes = [finding for process in inspected for finding in findings_of(process)]
    comparison = compare(inspected)
    # that they are of different runs comes first: nothing else counts before that
    of_runs = comparison.findings if comparison.of_several_runs else []
    of_one_run = [] if comparison.of_several_runs else comparison.findings
    findings = merge_findings([*of_runs, *failures, *of_processes, *of_one_run])
    return Diagnosis(inspected, findings, files.skipped, comparison.of_several_runs)


def _leave_out_merged(files: TraceFiles, paths: Sequence[Path]) -> None:
    """A merged trace among those that it was merged of is no process of its own, unless it was asked for by name."""
    named = {str(path) for path in paths}
    skipped = [trace for trace in files.merged if trace.name not in named]
    files.merged = [trace for trace in files.merged if trace.name in named]
    if skipped:
        files.skipped[InputKind.MERGED.value] = len(skipped)


def _processes(files: TraceFiles) -> list[ProcessFiles]:
    """Returns pairs by process, then pairs by rank or because each is the only one left, which the findings judge."""
    host_of = hosts_of(files.devices, files.hosts)
    devices = [trace for trace in files.devices if trace.name not in host_of]
    hosts = [trace for trace in files.hosts if trace.name not in set(host_of.values())]
    for device in devices:
        same = [host for host in hosts if host.rank == device.rank and host.rank is not None]
        candidates = hosts if len(hosts) == len(devices) == 1 else same
        if len(candidates) == 1:
            host_of[device.name] = candidates[0].name
    lonely = [host for host in hosts if host.name not in set(host_of.values())]
    pairs = [_files(device, host_of.get(device.name, "")) for device in files.devices]
    pairs += [_files(merged, "") for merged in files.merged]
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


def _inspect_all(processes: list[ProcessFiles], run: Runner, progress: Progress) -> list[Inspection]:
    inspections: dict[ProcessFiles, Inspection] = {}
    outcomes = run(inspect, processes)
    for process, outcome in progress(outcomes, "looking into traces", len(processes), "process"):
        failed = Inspection(process.device, process.host, rank=process.rank, error=str(outcome))
        inspections[process] = outcome if isinstance(outcome, Inspection) else failed
    return [inspections[process] for process in processes]
