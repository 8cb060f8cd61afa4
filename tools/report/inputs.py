"""Finds the ranks that folders and files hold, and reads them one at a time.

A folder is searched for pairs. Of single files a host trace belongs to the device trace of its process, then of its rank.
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
from ..inputs import TRACE_OR_GRAPH, Kind, find_pairs, instead, rank_in_name, recognise
from ..rank_rows import ranges

TITLED, DIGITS = 3, 20
GIVE = f"give {TRACE_OR_GRAPH.to_give}"
MADE = (Kind.LINKED, Kind.GRAPH)
"""What traces were made into; of a folder the first that it holds is used, where it holds no device trace."""
REPORTED = (Kind.HOST, Kind.DEVICE, Kind.MERGED, Kind.COUNTED, *MADE)


class Source(NamedTuple):
    """The files of one rank: a device trace and its host trace, or what was made of them. `rank` None: what is recorded; `told` is the
    rank as far as it shows before all is read."""

    path: Path
    host: Path | None = None
    rank: int | None = None
    kind: Kind = Kind.DEVICE
    told: int | None = None


class Sources(NamedTuple):
    """What was given in short, one source per rank, and a line about everything that was left out or is odd."""

    title: str
    ranks: list[Source]
    notes: list[str]


class Found(NamedTuple):
    """A single file: the process and the rank that it records, None where it does not."""

    path: Path
    pid: int | None
    rank: int | None


def find_sources(paths: Sequence[Path], progress: Progress = unwatched) -> Sources:
    """What the paths hold. Raises DataError where one cannot be used or all of them hold no trace of a run."""
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
    """The sources of these ranks. Raises DataError where one of them is not there."""
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
    """Each source as a rank, or a part of it, with its graph unless told otherwise, and if told so with the recorded allocations and with
    Python's calls. `advanced` is told of each of the READ_STAGES of a rank.

    Raises DataError where a file cannot be used or two are of one rank.
    """
    seen: dict[int, Path] = {}
    for place, source in enumerate(sources):
        rank = _read(source, place, graphs, advanced, window, memory, modules)
        if rank.rank in seen:
            raise DataError(
                f"{source.path}: is of rank {rank.rank} like {seen[rank.rank]}; give the files of one run, --diff compares two"
            )
        seen[rank.rank] = source.path
        yield rank


def _read(
    source: Source, place: int, graphs: bool, advanced: Advanced, window: Window, memory: bool, modules: bool
) -> RankTrace:
    """A rank that is neither recorded nor in the name is the place in the list."""
    if window != EVERYTHING and source.kind in MADE:
        raise DataError(
            f"{source.path}: of {source.kind.value} no part can be taken; give the traces, or link that part"
        )
    named = rank_in_name(source.path.name) if source.rank is None else source.rank
    if source.kind is Kind.LINKED:
        linked = read_linked(str(source.path))
        rank = RankTrace(linked.info.rank, linked, graph_of(linked) if graphs else None)
        advanced(READ_STAGES)
    elif source.kind is Kind.GRAPH:
        rank = rank_of_graph(ExecutionGraph.read(str(source.path), tensors=False))
        advanced(READ_STAGES)
    else:
        host = str(source.host) if source.host else None
        rank = read_rank(str(source.path), host, source.rank, graphs, window, memory, modules, advanced)
    if rank.linked.info.rank < 0:
        rank.rank = place if named is None else named
    return rank


def _add_folder(folder: Path, sources: Sources, progress: Progress) -> None:
    try:
        pairs = find_pairs(folder, lambda _: False, progress)
    except DataError:
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
    """In the order of their names, numbers in them by value."""
    found: dict[Kind, list[Source]] = defaultdict(list)
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    for path in sorted(paths, key=_numbers_by_value):
        with suppress(DataError):  # what is no trace need not be readable
            seen = recognise(path)
            told = rank_in_name(path.name) if seen.rank is None else seen.rank
            found[seen.kind].append(Source(path, kind=seen.kind, told=told))
    return next((found[kind] for kind in MADE if found[kind]), [])


def _add_files(files: list[Path], sources: Sources) -> None:
    found: dict[Kind, list[Found]] = {kind: [] for kind in Kind}
    for path in files:
        kind, pid, rank = recognise(path)
        found[kind].append(Found(path, pid, rank_in_name(path.name) if rank is None else rank))
    for kind in [kind for kind in Kind if kind not in REPORTED]:
        for one in found[kind][:1]:
            raise DataError(instead(one.path, kind, TRACE_OR_GRAPH))
    hosts = found[Kind.HOST]
    for device in found[Kind.DEVICE] + found[Kind.MERGED] + found[Kind.COUNTED]:
        host = _host_of(device, hosts)
        sources.ranks.append(Source(device.path, host.path if host else None, told=device.rank))
    used = {source.host for source in sources.ranks}
    sources.notes.extend(f"{host.path}: has no device trace; not used" for host in hosts if host.path not in used)
    sources.ranks.extend(Source(one.path, kind=kind, told=one.rank) for kind in MADE for one in found[kind])


def _host_of(device: Found, hosts: list[Found]) -> Found | None:
    """The only host trace of the same process and rank, else of the same process, else of the same rank; never of another process."""
    hosts = [host for host in hosts if host.pid == device.pid or None in (host.pid, device.pid)]
    for fields in (("pid", "rank"), ("pid",), ("rank",)):
        key = [getattr(device, field) for field in fields]
        same = [host for host in hosts if None not in key and [getattr(host, field) for field in fields] == key]
        if len(same) == 1:
            return same[0]
    return None
