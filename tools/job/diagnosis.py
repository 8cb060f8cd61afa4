"""Diagnoses files and folders: every process that was traced, what is in its files, and all findings, also as text.

What is wrong with many processes is one line for each kind.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ...schema.columns import bytes_text, format_counts
from ...schema.errors import DataError
from ...schema.progress import Progress, unwatched
from ..recognise import InputKind
from ..sync_records_advice import sync_records_advice
from ..terminal import in_one_line, ranges, rank_rows
from ..trace_files import TraceFiles, find_traces, hosts_of, list_counts
from ..workers import in_processes
from .cross_rank import mark_of
from .diagnosis_findings import WRONG, Finding, compare, findings_of, most_kernels
from .inspection import KERNELS_SHOWN, Inspection, KernelTime, ProcessFiles, inspect

NAMES_SHOWN = 4
WORTH_PROCESSES = 32 << 20
"""So many bytes make up for starting processes."""
HEADINGS = (
    "rank", "world", "process", "size", "steps", "host ops", "matched", "by", "kernels", "", "copies", "devices",
    "streams", "collectives", "syncs", "graphs", "graph activities", "files",
)  # fmt: skip
LONGEST_NAME = 110


def in_words(finding: Finding) -> str:
    """Returns one line: where, how many, what, and what to do, where that is not part of it."""
    location = f"{process_names(finding.where)}: " if finding.where else ""
    count = f" ({amount(finding.counts)})" if finding.counts else ""
    return f"{location}{finding.what}{count}" + (f"; {finding.advice}" if finding.advice else "")


def amount(counts: list[int]) -> str:
    """Counts of several processes: how many each, or in all.

    >>> amount([64]), amount([64, 64]), amount([1, 2])
    ('64', '64 each', '3 in all')
    """
    if len(counts) == 1:
        return str(counts[0])
    return f"{counts[0]} each" if len(set(counts)) == 1 else f"{sum(counts)} in all"


def process_names(where: list[str]) -> str:
    """Returns the processes of a finding, ranks in short.

    >>> process_names(["rank 0", "rank 1", "rank 2", "other.json"])
    'ranks 0-2, other.json'
    """
    numbers = [re.fullmatch(r"rank (\d+)", name) for name in where]
    listed = sorted({int(match.group(1)) for match in numbers if match})
    ranks = [] if not listed else [f"rank {listed[0]}" if len(listed) == 1 else f"ranks {ranges(listed)}"]
    unnumbered = [name for name, match in zip(where, numbers, strict=True) if not match]
    more = [f"{len(unnumbered) - NAMES_SHOWN} more"] if len(unnumbered) > NAMES_SHOWN else []
    return ", ".join(ranks + unnumbered[:NAMES_SHOWN] + more)


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


def diagnose(paths: Sequence[Path], jobs: int = 0, progress: Progress = unwatched) -> Diagnosis:
    """Reads every trace among the files and folders once, in up to `jobs` processes where the files are large enough to
    make up for starting these. Raises DataError when there is none.
    """
    files = find_traces(paths, progress=progress)
    if files.devices:
        # a merged trace among those that it was merged of is no process of its own, unless it was asked for by name
        named = {str(path) for path in paths}
        if skipped := sum(trace.name not in named for trace in files.merged):
            files.skipped[InputKind.MERGED.plural] = skipped
        files.merged = [trace for trace in files.merged if trace.name in named]
    processes = _processes(files)
    if not processes and not files.failures:
        raise DataError(f"{', '.join(map(str, paths))}: no traces there{list_counts(', but ', files.skipped)}")
    size = sum(Path(path).stat().st_size for process in processes for path in (process.device, process.host) if path)
    outcomes = in_processes(inspect, processes, jobs if size >= WORTH_PROCESSES else 0)
    inspections: dict[ProcessFiles, Inspection] = {}
    for process, outcome in progress(outcomes, "looking into traces", len(processes), "process"):
        failed = Inspection(process.device, process.host, rank=process.rank, error=str(outcome))
        inspections[process] = outcome if isinstance(outcome, Inspection) else failed
    inspected = [inspections[process] for process in processes]
    findings = [Finding(WRONG, [], line, "") for line in files.failures]
    findings += [finding for process in inspected for finding in findings_of(process)]
    compared, of_several_runs = compare(inspected)
    # that they are of different runs comes first: nothing else counts before that
    findings = compared + findings if of_several_runs else findings + compared
    merged: dict[tuple[str, str, str], Finding] = {}
    for severity, where, what, advice, counts in map(msgspec.structs.astuple, findings):
        equal = merged.setdefault((severity, what, advice), Finding(severity, [], what, advice))
        equal.where.extend(where)
        equal.counts.extend(counts)
    in_order = sorted(merged.values(), key=lambda finding: finding.severity != WRONG)
    return Diagnosis(inspected, in_order, files.skipped, of_several_runs)


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
    pairs = [
        ProcessFiles(device.name, host_of.get(device.name, ""), device.rank, device.records_rank)
        for device in (*files.devices, *files.merged)
    ]
    pairs += [ProcessFiles("", host.name, host.rank, False) for host in lonely]
    return sorted(pairs, key=lambda pair: (pair.rank is None, pair.rank or 0, pair.device, pair.host))


def report(diagnosis: Diagnosis, every_process: bool = False) -> str:
    """Returns processes, versions, longest kernels (with `every_process`, of each), what graphs lack, and findings.

    Of different runs it returns that they are and the processes, with `every_process` all of it.
    """
    processes, findings = diagnosis.processes, diagnosis.findings
    texts = [f"{finding.severity:<6} {in_words(finding)}" for finding in findings]
    if not processes:
        return "\n".join(map(in_one_line, texts))
    if diagnosis.of_several_runs and not every_process:
        apart = "; ".join(in_words(found) for found in findings if found.severity == WRONG and not found.where)
        # files as the table names them
        apart = f"{WRONG:<6} {apart.replace(f'{_common_folder(processes)}{os.sep}', '')}"
        return "\n".join(map(in_one_line, [apart, "", *_table(processes, 0)]))
    waiting = [process.name for process in processes if process.waits_without_record]
    lines = [*sync_records_advice(process_names(waiting)), ""] if waiting else []
    largest = 0 if diagnosis.of_several_runs else most_kernels(processes)
    lines += [*_table(processes, largest), "", *_versions(processes)]
    groups = [(process.name, process.top_kernels) for process in processes] if every_process else []
    for title, kernels in [*groups, ("all", _longest_of_all(processes))]:
        lines += ["", f"longest kernels, {title}"] if kernels else []
        for kernel in kernels:
            name = kernel.name if len(kernel.name) <= LONGEST_NAME else kernel.name[: LONGEST_NAME - 1] + "…"
            lines.append(f"{kernel.total_us / 1000:>12.3f} ms {kernel.count:>8} × {name}")
    lines += ["", "not in graphs, or without what they need", *_dropped(processes)]
    lines += [f"{count:>12} {kind}, skipped" for kind, count in diagnosis.skipped.items()]
    notes = len(findings) - diagnosis.wrong
    last = f"{diagnosis.wrong} wrong, {notes} note{'s' * (notes != 1)}"
    return "\n".join(map(in_one_line, [*lines, "", *texts, last]))


def _table(processes: Sequence[Inspection], largest: int) -> list[str]:
    """Returns the lines of the table, in which few kernels are marked beside the `largest` number."""
    folder = _common_folder(processes)
    return rank_rows(HEADINGS, (_row(process, largest, folder) for process in processes), alike=("world", "by", ""))


def _row(process: Inspection, largest: int, folder: str) -> tuple[str, ...]:
    rank = "-" if process.rank is None else f"{process.rank}" + ("" if process.records_rank else "?")
    pids = process.processes or ([] if process.host_process is None else [process.host_process])
    pid = f"{pids[0]}" + ("" if len(pids) == 1 else f" +{len(pids) - 1}") if pids else "-"
    files = " + ".join(os.path.relpath(path, folder) for path in (process.device, process.host) if path)
    world = f"{process.world_size or '-'}"
    if process.error:
        return (rank, world, pid, bytes_text(process.bytes), *["-"] * (len(HEADINGS) - 5), files)
    # rounded down: all but one is not 100 %
    pct = 1000 * process.matched // (process.host_ops or 1) / 10
    matched = f"{pct:g} %" if process.matched_by and process.host_ops else "-"
    mark = mark_of(process.kernels, largest) if process.device else ""
    counts = (
        process.copies, process.devices, process.streams, process.collectives, process.sync_records,
        process.graph_launches, process.graph_activities,
    )  # fmt: skip
    first = (rank, world, pid, bytes_text(process.bytes), f"{process.steps}", f"{process.host_ops or process.ops}")
    return (*first, matched, process.matched_by or "-", f"{process.kernels}", mark, *map(str, counts), files)


def _common_folder(processes: Iterable[Inspection]) -> str:
    paths = (path for process in processes for path in (process.device, process.host) if path)
    folders = {str(Path(path).absolute().parent) for path in paths}
    return os.path.commonpath(folders) if folders else "."


def _versions(processes: Sequence[Inspection]) -> list[str]:
    where: dict[tuple[str, str], list[str]] = defaultdict(list)
    for process in processes:
        for version in process.versions.items():
            where[version].append(process.name)
    everywhere = len(processes)
    return [
        f"{name:<24} {value}" + ("" if len(names) == everywhere else f" ({process_names(names)})")
        for (name, value), names in where.items()
    ]


def _longest_of_all(processes: Iterable[Inspection]) -> list[KernelTime]:
    """Returns the longest kernels of all processes, out of the longest of each."""
    count, total = Counter[str](), defaultdict[str, float](float)
    for process in processes:
        for kernel in process.top_kernels:
            count[kernel.name] += kernel.count
            total[kernel.name] += kernel.total_us
    longest = sorted(total, key=total.__getitem__, reverse=True)[:KERNELS_SHOWN]
    return [KernelTime(name, count[name], total[name]) for name in longest]


def _dropped(processes: Iterable[Inspection]) -> list[str]:
    where, counts = defaultdict[str, list[str]](list), defaultdict[str, list[int]](list)
    for process in processes:
        for reason, count in process.dropped.in_words().items():
            where[reason].append(process.name)
            counts[reason].append(count)
    lines = [f"{amount(counts[reason]):>12} {reason} ({process_names(names)})" for reason, names in where.items()]
    return lines or ["        none"]
