"""One rank's pair of traces in, its graph file and a small summary out. Runs in a process of its own, here or on another machine."""

import os
from pathlib import Path
from typing import NamedTuple

from ..converter import Options, convert
from ..linker import link, read_device_trace, read_host_trace
from ..schema.errors import DataError
from ..schema.linked import LinkedTrace
from .build_report import BUILT, FAILED, FileContent, RankSummary, content_of
from .cross_rank import summarise_rank
from .pairs import Pair


class RankTask(NamedTuple):
    """A pair below `folder`, the graph file to write, and what an earlier build with the same options said of the rank."""

    folder: Path
    pair: Pair
    graph: Path
    options: Options
    earlier: RankSummary | None = None


class RankResult(NamedTuple):
    summary: RankSummary
    unchanged: bool = False


def build_rank(task: RankTask) -> RankResult:
    """Builds one rank's graph, unless the earlier one still is what would come out. Reports every failure, raises none."""
    try:
        pair = task.pair
        device = content_of(task.folder / pair.device, pair.device)
        host = content_of(task.folder / pair.host, pair.host) if pair.host else None
        if task.earlier and _holds(task.earlier, task, device, host):
            return RankResult(task.earlier, unchanged=True)
        return RankResult(_built(task, device, host))
    except Exception as error:
        return RankResult(failed(task, error))


def _holds(earlier: RankSummary, task: RankTask, device: FileContent, host: FileContent | None) -> bool:
    """Whether the earlier graph is still there and was built from the same files."""
    if (earlier.status, earlier.device, earlier.host, earlier.notes) != (BUILT, device, host, task.pair.notes):
        return False
    return task.graph.is_file() and content_of(task.graph, task.graph.name) == earlier.graph


def _built(task: RankTask, device: FileContent, host: FileContent | None) -> RankSummary:
    pair, linked = task.pair, linked_rank(task)
    graph, report = convert(linked, task.options)
    graph.write(str(task.graph))
    return RankSummary(
        rank=pair.rank,
        status=BUILT,
        device=device,
        host=host,
        graph=content_of(task.graph, task.graph.name),
        edges=len(graph.data_deps.values),
        notes=pair.notes,
        link=linked.report,
        convert=report,
        comms=summarise_rank(linked),
    )


def linked_rank(task: RankTask) -> LinkedTrace:
    """The rank's pair, linked."""
    pair = task.pair
    host_trace = read_host_trace(str(task.folder / pair.host)) if pair.host else None
    device_trace = read_device_trace(str(task.folder / pair.device))
    return link(host_trace, device_trace, None if pair.records_rank else pair.rank)


def failed(task: RankTask, error: Exception) -> RankSummary:
    """What is said of a rank that could not be built: one line, files named by their paths below the folder."""
    pair = task.pair
    if isinstance(error, DataError):
        reason = str(error).replace(f"{task.folder}{os.sep}", "")
    elif isinstance(error, MemoryError):
        reason = f"{pair.device}: out of memory; try fewer --jobs, or a machine with more"
    else:
        reason = f"{pair.device}: {type(error).__name__}: {error}"
    return RankSummary(
        rank=pair.rank,
        status=FAILED,
        device=FileContent(pair.device),
        host=FileContent(pair.host) if pair.host else None,
        error=" ".join(reason.split()),
        notes=pair.notes,
    )
