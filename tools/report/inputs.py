"""Finds the ranks that folders and files hold, and reads them one at a time.

A folder is searched for pairs. Single files are paired and get their ranks as those of a folder do.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...linker import read_linked
from ...linker.windows import EVERYTHING, Window
from ...schema.errors import DataError, RequestError
from ...schema.graph import ExecutionGraph
from ...schema.progress import Advanced, Progress, unseen, unwatched
from ..analyses import READ_STAGES, RankTrace, graph_of, rank_of_graph, read_rank
from ..inputs import (
    TRACE_OR_GRAPH,
    InputKind,
    NoDeviceTraceError,
    Trace,
    assign_ranks,
    communicating,
    find_pairs,
    hosts_of,
    instead,
    rank_in_name,
    recognise,
)
from ..rank_rows import ranges

TITLED, DIGITS = 3, 20
GIVE = f"give {TRACE_OR_GRAPH.to_give}"
MADE = (InputKind.LINKED, InputKind.GRAPH)
"""What traces were made into; of a folder the first that it holds is used, where it holds no device trace."""
DIFF = "compare two runs with --diff"
REPORTED = (InputKind.HOST, InputKind.DEVICE, InputKind.MERGED, InputKind.COUNTED, *MADE)


class Source(NamedTuple):
    """The files of one rank: a device trace and its host trace, or what was made of them. `rank` None: what is
    recorded; `told` is the rank as far as it shows before all is read.
    """

    path: Path
    host: Path | None = None
    rank: int | None = None
    kind: InputKind = InputKind.DEVICE
    told: int | None = None


class Sources(NamedTuple):
    """What was given in short, one source per rank, and a line about everything that was left out or is odd."""

    title: str
    ranks: list[Source]
    notes: list[str]


def find_sources(paths: Sequence[Path], progress: Progress = unwatched) -> Sources:
    """Returns what the paths hold. Raises DataError where one cannot be used or all of them hold no trace of a run."""
    names = [path.name for path in sorted((path.resolve() for path in paths), key=_numbers_by_value)]
    more = f" and {len(names) - TITLED} more" if len(names) > TITLED else ""
    sources, files = Sources(", ".join(names[:TITLED]) + more, [], []), []
    for path in paths:
        if path.is_dir():
            _add_folder(path, sources, progress)
        else:
            files.append(path)
    _add_files(files, sources)
    # so that the order in which files are given makes no difference where they tell their ranks
    sources.ranks.sort(key=lambda source: (source.told is None, source.told or 0))
    if not sources.ranks:
        reasons = sources.notes or [", ".join(map(str, files))]
        raise DataError(f"{reasons[0]}: nothing to report on; {GIVE}")
    return sources


def of_ranks(sources: Sources, wanted: Collection[int]) -> Sources:
    """Returns the sources of these ranks. Raises DataError where one of them is not there."""
    ranks = [
        source._replace(told=place, rank=place) if source.told is None else source
        for place, source in enumerate(sources.ranks)
    ]
    missing = sorted(set(wanted) - {source.told for source in ranks})
    if missing:
        there = ranges(sorted(source.told for source in ranks if source.told is not None))
        raise RequestError(f"{sources.title}: rank {ranges(missing)} is not among the ranks there, {there}")
    return sources._replace(ranks=[source for source in ranks if source.told in wanted])


def read_ranks(
    sources: list[Source],
    graphs: bool = True,
    advanced: Advanced = unseen,
    window: Window = EVERYTHING,
    memory: bool = False,
    modules: bool = False,
) -> Iterator[RankTrace]:
    """Yields each source as a rank, or a part of it, with its graph unless told otherwise, and if told so with the
    recorded allocations and with Python's calls. `advanced` is told of each of the READ_STAGES of a rank.

    Raises DataError where a file cannot be used or two are of one rank.
    """
    seen: dict[int, Path] = {}
    for source in sources:
        rank = _read(source, len(sources) == 1, graphs, advanced, window, memory, modules)
        if rank.rank in seen:
            raise DataError(
                f"{source.path}: is of rank {rank.rank} like {seen[rank.rank]}; give the files of one run, --diff compares two"
            )
        seen[rank.rank] = source.path
        yield rank


def _read(
    source: Source, alone: bool, graphs: bool, advanced: Advanced, window: Window, memory: bool, modules: bool
) -> RankTrace:
    """Returns a rank that is not recorded is the one that is told, or 0 of what is alone."""
    if window != EVERYTHING and source.kind in MADE:
        raise DataError(
            f"{source.path}: of {source.kind.value} no part can be taken; give the traces, or link that part"
        )
    if source.kind is InputKind.LINKED:
        linked = read_linked(str(source.path))
        rank = RankTrace(linked.info.rank, linked, graph_of(linked) if graphs else None)
        advanced(READ_STAGES)
    elif source.kind is InputKind.GRAPH:
        rank = rank_of_graph(ExecutionGraph.read(str(source.path), tensors=False))
        advanced(READ_STAGES)
    else:
        host = str(source.host) if source.host else None
        rank = read_rank(str(source.path), host, source.rank, graphs, window, memory, modules, advanced)
    if rank.linked.info.rank < 0:
        if source.told is None and not alone:
            raise DataError(
                f"{source.path}: records no rank and its name has none; rename it to …rank<N>{source.path.suffix}"
            )
        rank.rank = source.told or 0
    return rank


def _add_folder(folder: Path, sources: Sources, progress: Progress) -> None:
    try:
        pairs = find_pairs(folder, lambda _: False, progress, otherwise=DIFF)
    except NoDeviceTraceError:
        made = _made_from_traces(folder)
        if not made:
            raise
        sources.ranks.extend(made)
        return
    for pair in pairs.ranks:
        host = folder / pair.host if pair.host else None
        sources.ranks.append(
            Source(folder / pair.device, host, None if pair.records_rank else pair.rank, told=pair.rank)
        )
        sources.notes.extend(pair.notes)
    sources.notes.extend([*pairs.failures, *pairs.notes])


def _numbers_by_value(path: Path) -> list[str]:
    """Paths compare by these like their texts, but numbers in them by value."""
    return [part.zfill(DIGITS) if part.isdecimal() else part for part in re.split(r"(\d+)", path.as_posix())]


def _made_from_traces(folder: Path) -> list[Source]:
    """Returns in the order of their names, numbers in them by value."""
    found: dict[InputKind, list[Source]] = defaultdict(list)
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    for path in sorted(paths, key=_numbers_by_value):
        with suppress(DataError):  # what is no trace need not be readable
            seen = recognise(path)
            told = rank_in_name(path.name) if seen.rank is None else seen.rank
            found[seen.kind].append(Source(path, kind=seen.kind, told=told))
    return next((found[kind] for kind in MADE if found[kind]), [])


def _add_files(files: list[Path], sources: Sources) -> None:
    found: dict[InputKind, list[Trace]] = {kind: [] for kind in InputKind}
    for path in files:
        kind, pid, rank = recognise(path)
        if kind not in REPORTED:
            raise DataError(instead(path, kind, TRACE_OR_GRAPH))
        told = rank_in_name(path.name, pid) if rank is None else rank
        found[kind].append(Trace(str(path), pid, told, rank is not None))
    devices, merged, hosts = (
        found[InputKind.DEVICE],
        found[InputKind.MERGED] + found[InputKind.COUNTED],
        found[InputKind.HOST],
    )
    host_of = hosts_of(devices + merged, hosts)
    ranks = assign_ranks(devices, communicating(host_of), otherwise=DIFF)
    if ranks.failures:
        raise DataError(f"{'; '.join(ranks.failures)}, or {DIFF}")
    sources.notes.extend(ranks.notes)
    for device in ranks.traces + merged:
        host = host_of.get(device.name)
        sources.ranks.append(Source(Path(device.name), Path(host) if host else None, told=device.rank))
    used = set(host_of.values())
    sources.notes.extend(f"{host.name}: has no device trace; not used" for host in hosts if host.name not in used)
    sources.ranks.extend(Source(Path(one.name), kind=kind, told=one.rank) for kind in MADE for one in found[kind])
