"""The text of a diagnosis: which files belong to which process, what they hold, what graphs lack, and the findings."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...schema.columns import bytes_text, shortened
from ...schema.reasons import LEFT_OUT, Counts
from ..sync_records_advice import sync_records_advice
from ..terminal import in_one_line, rank_rows
from .diagnosis import WRONG, Diagnosis, in_words, mark_among, most_kernels, process_names, rank_named
from .inspection import KERNELS_SHOWN, Inspection, KernelTime

FILES = ("rank", "world", "process", "size", "matched", "matched by", "files")
WORK = (
    "rank", "steps", "host ops", "kernels", "", "copies", "devices", "streams", "communications", "sync records",
    "CUDA graphs", "graph activities",
)  # fmt: skip
LONGEST_NAME = 90


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
        return "\n".join(map(in_one_line, [apart, "", *_tables(processes, Inspection())]))
    waiting = [process.name for process in processes if process.waits_without_record]
    lines = [*sync_records_advice(process_names(waiting)), ""] if waiting else []
    largest = Inspection() if diagnosis.of_several_runs else most_kernels(processes)
    lines += [*_tables(processes, largest), "", *_versions(processes)]
    groups = [(process.name, process.top_kernels) for process in processes] if every_process else []
    for title, kernels in [*groups, ("all", _longest_of_all(processes))]:
        lines += ["", f"longest kernels, {title}"] if kernels else []
        for kernel in kernels:
            name = shortened(kernel.name, LONGEST_NAME)
            lines.append(f"{kernel.total_us / 1000:>12.3f} ms {kernel.count:>8} × {name}")
    outside = _rows((process.name, process.dropped.but(process.dropped.but(LEFT_OUT))) for process in processes)
    lost = _rows((process.name, process.dropped.but(LEFT_OUT)) for process in processes)
    left_out = [*lost, *(f"{count:>12} {kind}, skipped" for kind, count in diagnosis.skipped.items())]
    lines += ["", f"left out of graphs, or odd{': nothing' * (not left_out)}", *left_out]
    lines += ["", "outside the linked part, which is no loss", *outside] if outside else []
    notes = len(findings) - diagnosis.wrong
    last = f"{diagnosis.wrong} wrong, {notes} note{'s' * (notes != 1)}"
    return "\n".join(map(in_one_line, [*lines, "", *texts, last]))


def _tables(processes: Sequence[Inspection], largest: Inspection) -> list[str]:
    """Returns the lines of both tables; few kernels are marked beside those of the `largest`."""
    folder = _common_folder(processes)
    files = rank_rows(FILES, (_files(process, folder) for process in processes), alike=("world", "matched by"))
    work = rank_rows(WORK, (_work(process, largest) for process in processes if not process.error), alike=("",))
    return [*files, "", *work] if len(work) > 1 else files


def _rank(process: Inspection) -> str:
    # both names may be trusted where one process wrote both files
    is_pair = process.host_process in process.processes and {*map(rank_named, process.files)} == {process.rank}
    return "-" if process.rank is None else f"{process.rank}" + ("" if process.records_rank or is_pair else "?")


def _files(process: Inspection, folder: str) -> tuple[str, ...]:
    pids = process.processes or ([] if process.host_process is None else [process.host_process])
    pid = f"{pids[0]}" + ("" if len(pids) == 1 else f" +{len(pids) - 1}") if pids else "-"
    # rounded down: all but one is not 100 %
    pct = 1000 * process.matched // (process.host_ops or 1) / 10
    matched = f"{pct:g} %" if process.matched_by and process.host_ops else "-"
    files = " + ".join(os.path.relpath(path, folder) for path in process.files)
    of_files = (f"{process.world_size or '-'}", pid, bytes_text(process.bytes), matched, process.matched_by or "-")
    return (_rank(process), *of_files, files)


def _work(process: Inspection, largest: Inspection) -> tuple[str, ...]:
    mark = mark_among(process, largest) if process.device else ""
    counts = (
        process.copies, process.devices, process.streams, process.collectives, process.sync_records,
        process.graph_launches, process.graph_activities,
    )  # fmt: skip
    ops = (f"{process.steps}", f"{process.host_ops or process.ops}")
    return (_rank(process), *ops, f"{process.kernels}", mark, *map(str, counts))


def _common_folder(processes: Iterable[Inspection]) -> str:
    paths = (path for process in processes for path in process.files)
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


def _rows(dropped: Iterable[tuple[str, Counts]]) -> list[str]:
    where, counts = defaultdict[str, list[str]](list), defaultdict[str, list[int]](list)
    for name, of_process in dropped:
        for reason, count in of_process.in_words().items():
            where[reason].append(name)
            counts[reason].append(count)
    return [f"{sum(counts[reason]):>12,} {reason} ({process_names(names)})" for reason, names in where.items()]
