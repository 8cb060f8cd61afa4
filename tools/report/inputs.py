"""Finds the ranks that folders and files hold, pairing traces in both, and reads them one at a time."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...linker.link import read_linked
from ...linker.windows import EVERYTHING, Window
from ...schema.errors import DataError, Remedy, RequestError, Words
from ...schema.graph import ExecutionGraph
from ...schema.io import path_is
from ...schema.progress import OnProgress, Progress, unseen, unwatched
from ...schema.reasons import LEFT_OUT
from ..analyses import READ_STAGES, RankTrace, Table, graph_of, rank_of_graph, read_rank, tabulate
from ..job import ranks_in_words
from ..recognise import TRACE_OR_GRAPH, InputKind, Trace, instead, recognise
from ..replay import BUILT
from ..terminal import list_names, ranges
from ..trace_files import NoDeviceTraceError, assign_ranks, communicating, find_pairs, hosts_of, with_details

TITLED, DIGITS = 3, 20
MADE = (InputKind.LINKED, InputKind.GRAPH)
"""What is made from traces. Of a folder without device traces, the first of these kinds that it holds is used."""
DIFF = Words("compare two runs with ", Remedy.DIFF)
REPORTED = (InputKind.HOST, InputKind.DEVICE, InputKind.DETAIL, InputKind.MERGED, InputKind.MERGED_DATABASE, *MADE)


class Source(NamedTuple):
    """The files of one rank; `rank` replaces the recorded one unless None, `known_rank` is known without reading."""

    path: Path
    host: Path | None = None
    rank: int | None = None
    kind: InputKind = InputKind.DEVICE
    known_rank: int | None = None
    detail: Path | None = None


class Sources(NamedTuple):
    """A short title of the inputs, a source per rank, and notes about files that were left out or are unusual."""

    title: str
    ranks: list[Source]
    notes: list[str]


def find_sources(
    paths: Sequence[Path],
    progress: Progress = unwatched,
    chosen: Collection[int] | None = None,
    allow_mismatch: bool = False,
) -> Sources:
    """Returns the ranks in these files and folders, or the `chosen` ones of them.

    Raises DataError if a file cannot be used, there is no rank, or they do not seem to be of one job, without
    `allow_mismatch`; RequestError if one of those chosen is missing.
    """
    names = [path.name for path in sorted((path.resolve() for path in paths), key=_numbers_by_value)]
    sources = Sources(list_names(names, TITLED), [], [])
    files = [path for path in paths if not path_is(path, Path.is_dir)]
    for folder in filter(Path.is_dir, paths):
        _add_folder(folder, sources, progress, allow_mismatch, chosen is not None)
    _add_files(files, sources, allow_mismatch)
    # by rank, so that the order of the files makes no difference
    sources.ranks.sort(key=lambda source: (source.known_rank is None, source.known_rank or 0))
    if not sources.ranks:
        reason = sources.notes[0] if sources.notes else ", ".join(map(str, files))
        raise DataError(f"{reason}: nothing to report on; give {TRACE_OR_GRAPH.to_give}")
    if chosen is None:
        return sources
    ranks = [
        source._replace(known_rank=position, rank=position) if source.known_rank is None else source
        for position, source in enumerate(sources.ranks)
    ]
    missing = sorted(set(chosen) - {source.known_rank for source in ranks})
    if missing:
        available = ranges(sorted(source.known_rank for source in ranks if source.known_rank is not None))
        raise RequestError(f"{sources.title}: rank {ranges(missing)} is not among the ranks there, {available}")
    return sources._replace(ranks=[source for source in ranks if source.known_rank in chosen])


class ReadOptions(NamedTuple):
    """What to read of each rank: its graph, the part in `window`, the recorded allocations, and Python's calls."""

    graph: bool = True
    window: Window = EVERYTHING
    memory: bool = False
    modules: bool = False


EVERY_GRAPH = ReadOptions()


def read_ranks(
    sources: list[Source], options: ReadOptions = EVERY_GRAPH, on_progress: OnProgress = unseen
) -> Iterator[RankTrace]:
    """Yields the rank of each source, with READ_STAGES of progress. Raises DataError if two are of one rank."""
    seen: dict[int, Path] = {}
    for source in sources:
        rank, path = _read(source, options, on_progress), source.path
        if rank.linked.info.rank < 0:
            # as the file's name tells; a single file needs none
            if source.known_rank is None and len(sources) > 1:
                raise DataError(f"{path}: records no rank and its name has none; rename it to …rank<N>{path.suffix}")
            rank.rank = source.known_rank or 0
        if rank.rank in seen:
            problem = f"{path}: is of rank {rank.rank} like {seen[rank.rank]}; give the files of one run, "
            raise DataError(problem, Remedy.DIFF, " compares two")
        seen[rank.rank] = path
        yield rank


def _read(source: Source, options: ReadOptions, on_progress: OnProgress) -> RankTrace:
    if source.kind not in MADE:
        host, detail = (str(path) if path else None for path in (source.host, source.detail))
        paths, of_options = (str(source.path), host, source.rank), options._asdict()
        return read_rank(*paths, detail_path=detail, on_progress=on_progress, **of_options)
    if options.window != EVERYTHING:
        what = source.kind.plural
        raise DataError(f"{source.path}: of {what} no part can be taken; give the traces, or link that part")
    if source.kind is InputKind.LINKED:
        linked = read_linked(str(source.path))
        rank = RankTrace(linked.info.rank, linked, graph_of(linked) if options.graph else None)
    else:
        rank = rank_of_graph(ExecutionGraph.read(str(source.path), tensors=False))
    on_progress(READ_STAGES)
    return rank


def _add_folder(folder: Path, sources: Sources, progress: Progress, allow_mismatch: bool, is_chosen: bool) -> None:
    """Adds the pairs of traces in a folder, else linked traces, else graphs. Raises DataError if one cannot be used."""
    try:
        pairs = find_pairs(folder, lambda _: False, progress, allow_mismatch=allow_mismatch, otherwise=str(DIFF))
    except NoDeviceTraceError:
        by_kind: dict[InputKind, list[Source]] = defaultdict(list)
        paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        for path in sorted(paths, key=_numbers_by_value):
            # what is no trace need not be readable, but a graph that is lost is missed
            with suppress(*[] if BUILT.fullmatch(path.name) else [DataError]):
                trace = recognise(path)
                by_kind[trace.kind].append(Source(path, kind=trace.kind, known_rank=trace.rank))
        made = next((by_kind[kind] for kind in MADE if by_kind[kind]), None)
        if not made:
            raise
        sources.ranks.extend(made)
        return
    if pairs.failures and pairs.ranks and not is_chosen:
        usable = ranks_in_words(sorted(pair.rank for pair in pairs.ranks))
        more = f" (1 of {len(pairs.failures)} such files)" if len(pairs.failures) > 1 else ""
        raise DataError(f"{pairs.failures[0]}{more}; or report on {usable} alone, with ", Remedy.RANKS)
    for pair in pairs.ranks:
        host, rank = folder / pair.host if pair.host else None, None if pair.records_rank else pair.rank
        detail = folder / pair.detail if pair.detail else None
        sources.ranks.append(Source(folder / pair.device, host, rank, known_rank=pair.rank, detail=detail))
        sources.notes.extend(pair.notes)
    sources.notes.extend([*pairs.failures, *pairs.notes])


def _numbers_by_value(path: Path) -> list[str]:
    """Returns a key that sorts paths as texts, but the numbers in them by value."""
    return [part.zfill(DIGITS) if part.isdecimal() else part for part in re.split(r"(\d+)", path.as_posix())]


def _add_files(files: list[Path], sources: Sources, allow_mismatch: bool) -> None:
    by_kind: dict[InputKind, list[Trace]] = defaultdict(list)
    for path in files:
        trace = recognise(path)
        if trace.kind not in REPORTED:
            if not sources.ranks and len(files) == 1:
                raise DataError(instead(path, trace.kind, TRACE_OR_GRAPH))
            sources.notes.append(f"{path} is {trace.kind.singular}: not used")
        by_kind[trace.kind].append(trace)
    devices, hosts, details = (by_kind[kind] for kind in (InputKind.DEVICE, InputKind.HOST, InputKind.DETAIL))
    merged = by_kind[InputKind.MERGED] + by_kind[InputKind.MERGED_DATABASE]
    host_of = hosts_of(devices + merged, hosts)
    ranks = assign_ranks(with_details(devices, details), communicating(host_of), allow_mismatch, str(DIFF))
    if ranks.failures:
        raise DataError(f"{'; '.join(ranks.failures)}, or ", *DIFF)
    sources.notes.extend(ranks.notes)
    for device in ranks.traces + merged:
        host, detail = (Path(name) if name else None for name in (host_of.get(device.name), device.detail))
        sources.ranks.append(Source(Path(device.name), host, known_rank=device.rank, detail=detail))
    used = {*host_of.values(), *(device.detail for device in ranks.traces)}
    unused = (trace for trace in (*hosts, *details) if trace.name not in used)
    sources.notes.extend(f"{trace.name}: has no device trace; not used" for trace in unused)
    for kind in MADE:
        sources.ranks.extend(Source(Path(trace.name), kind=kind, known_rank=trace.rank) for trace in by_kind[kind])


def recorded_counts(rank: RankTrace) -> dict[str, int | str]:
    """Returns the files of a rank and what they hold, the row of the rank in the table of ranks."""
    linked, report = rank.linked, rank.linked.report
    return {
        "rank": rank.rank, "process": linked.info.pid, "device_trace": Path(linked.info.source_device).name,
        "host_trace": Path(linked.info.source_host).name, "host_ops": report.host_ops or report.device_ops,
        "matched": report.matched, "calls": len(linked.calls), "activities": len(linked.activities),
        "linked": report.linked, "dropped": sum(report.dropped.but(LEFT_OUT).values()),
        "nodes": len(rank.graph) if rank.graph is not None else 0,
    }  # fmt: skip


def ranks_table(ranks: Sequence[dict[str, int | str]]) -> Table:
    """Returns a row per rank."""
    columns = {name: np.array([rank[name] for rank in ranks]) for name in ranks[0]}
    texts = {name: cells.tolist() for name, cells in columns.items() if cells.dtype.kind == "U"}
    return tabulate("ranks", "What was recorded", columns | texts)
