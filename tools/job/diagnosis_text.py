"""A diagnosis as text for a terminal."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...schema.columns import bytes_text
from ..rank_rows import rank_rows
from ..sync_records_advice import sync_records_advice
from ..terminal import in_one_line
from .comparison import most_kernels
from .cross_rank import mark_of
from .diagnosis import Diagnosis
from .diagnosis_findings import WRONG
from .diagnosis_wording import amount, in_words, process_names
from .inspection import KERNELS_SHOWN, Inspection, KernelTime

HEADINGS = (
    "rank", "world", "process", "size", "steps", "host ops", "matched", "by", "kernels", "", "copies", "devices",
    "streams", "collectives", "syncs", "graphs", "graph activities", "files",
)  # fmt: skip
LONGEST_NAME = 110


def report(diagnosis: Diagnosis, every_process: bool = False) -> str:
    """Returns processes, versions, longest kernels (with `every_process`, of each), what graphs lack, and findings.

    Of different runs it returns that they are and the processes, with `every_process` all of it.
    """
    processes = diagnosis.processes
    if not processes:
        return "\n".join(in_one_line(f"{finding.severity:<6} {in_words(finding)}") for finding in diagnosis.findings)
    if diagnosis.of_several_runs and not every_process:
        return "\n".join(map(in_one_line, [_runs(diagnosis), "", *_table(processes, 0)]))
    largest = 0 if diagnosis.of_several_runs else most_kernels(processes)
    lines = [*_advice(processes), *_table(processes, largest), "", *_versions(processes)]
    groups = [(process.name, process.top_kernels) for process in processes] if every_process else []
    for title, kernels in [*groups, ("all", _longest_of_all(processes))]:
        lines += ["", f"longest kernels, {title}", *map(_kernel, kernels)] if kernels else []
    lines += ["", "not in graphs, or without what they need", *_dropped(processes)]
    lines += [f"{count:>12} {kind}, skipped" for kind, count in diagnosis.skipped.items()]
    lines += ["", *(f"{finding.severity:<6} {in_words(finding)}" for finding in diagnosis.findings)]
    notes = len(diagnosis.findings) - diagnosis.wrong
    return "\n".join([*map(in_one_line, lines), f"{diagnosis.wrong} wrong, {notes} note{'s' * (notes != 1)}"])


def _runs(diagnosis: Diagnosis) -> str:
    """Returns the line that says that the traces are of different runs, with files as the table names them."""
    apart = [finding for finding in diagnosis.findings if finding.severity == WRONG and not finding.where]
    text = "; ".join(in_words(finding) for finding in apart)
    return f"{WRONG:<6} {text.replace(f'{_common_folder(diagnosis.processes)}{os.sep}', '')}"


def _advice(processes: Sequence[Inspection]) -> list[str]:
    """Returns how to record what waits were for, and an empty line, if a process did not."""
    names = [process.name for process in processes if process.waits_without_record]
    return [*sync_records_advice(process_names(names)), ""] if names else []


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
    matched = (
        f"{1000 * process.matched // process.host_ops / 10:g} %" if process.matched_by and process.host_ops else "-"
    )
    mark = mark_of(process.kernels, largest) if process.device else ""
    counts = (
        process.copies, process.devices, process.streams, process.collectives, process.sync_records,
        process.graph_launches, process.graph_activities,
    )  # fmt: skip
    first = (rank, world, pid, bytes_text(process.bytes), f"{process.steps}", f"{process.host_ops or process.ops}")
    return (*first, matched, process.matched_by or "-", f"{process.kernels}", mark, *map(str, counts), files)


def _common_folder(processes: Iterable[Inspection]) -> str:
    folders = {
        str(Path(path).absolute().parent) for process in processes for path in (process.device, process.host) if path
    }
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


def _kernel(kernel: KernelTime) -> str:
    name = kernel.name if len(kernel.name) <= LONGEST_NAME else kernel.name[: LONGEST_NAME - 1] + "…"
    return f"{kernel.total_us / 1000:>12.3f} ms {kernel.count:>8} × {name}"


def _dropped(processes: Iterable[Inspection]) -> list[str]:
    by_reason: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for process in processes:
        for reason, count in process.dropped.items():
            by_reason[reason].append((process.name, count))
    lines = [
        f"{amount([count for _, count in occurrences]):>12} {reason} "
        f"({process_names([name for name, _ in occurrences])})"
        for reason, occurrences in by_reason.items()
    ]
    return lines or ["        none"]
