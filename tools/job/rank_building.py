"""Builds the graph of one rank of a job: the first step from its traces, the second by the plan of all ranks."""

import os
import pickle
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import NamedTuple

import msgspec

from ...converter.convert import build_generic_graph
from ...converter.ranks import compute_instead, order_collectives, restrict_to_ranks, with_values
from ...converter.targets import lower_for_target, separate_messages
from ...linker.link import link, read_traces
from ...linker.windows import Window
from ...schema.arguments import ASTRA_SIM, GENERIC
from ...schema.comm_groups import number_groups
from ...schema.errors import DataError, Remedy
from ...schema.graph import Change, ExecutionGraph, TargetChanges
from ...schema.io import open_output, state_of
from ...schema.linked import LinkedTrace
from ...schema.progress import beside, give_up
from ..command import no_garbage_collection
from ..sync_records_advice import lacks_sync_records
from ..trace_files import Pair
from ..workers import stage_done
from .build_report import BUILT, FAILED, BuildOptions, FileContent, RankSummary, content_of, is_unchanged
from .job_plan import RankCommunication, RankPlan, look_up
from .rank_comms import summarise_rank

BUILD_STAGES = 4
"""A rank is read, linked and converted, and then written."""
PICKLE = ".pickle"
"""How the name of a graph ends that is not yet what a simulator reads."""
FITTED_TO_TRACED = (Change.EXCESS, Change.SHRUNK, Change.HIDDEN)
"""The changes that keep time which the fitted network does not give: they hold for the ranks that were traced."""
Inputs = tuple[FileContent, FileContent | None, FileContent | None]
"""The device, the host and the detail trace that a rank is built from."""


class Job(NamedTuple):
    """What the tasks of all ranks have in common; new graphs wait in `scratch` until all `ranks` are built."""

    folder: Path
    output: Path
    scratch: Path
    options: BuildOptions
    window: Window
    ranks: tuple[int, ...]


class RankTask(NamedTuple):
    """Traces to build a rank from, with a `plan` for the second step; `earlier` is what the last build said of it."""

    job: Job
    pair: Pair
    earlier: RankSummary | None = None
    plan: RankPlan | None = None

    @property
    def graph(self) -> Path:
        """The rank's graph; for simulators, which want ranks without holes, ranks are numbered anew."""
        job, rank = self.job, self.pair.rank
        return job.output / f"graph.{job.ranks.index(rank) if job.options.target == ASTRA_SIM else rank}.et"

    @property
    def waiting(self) -> Path:
        """Where the new graph waits."""
        return self.job.scratch / self.graph.name


class RankResult(NamedTuple):
    """What is reported of a rank, whether its graph was up to date, and what other ranks have to know of it."""

    summary: RankSummary
    unchanged: bool = False
    communication: RankCommunication | None = None


@no_garbage_collection()
def build_rank(task: RankTask) -> RankResult:
    """Builds a rank's graph unless it is up to date, or makes it keep the plan of all ranks. Reports every failure."""
    try:
        for folder, held in ((task.job.folder, task.job.folder), (task.job.output, task.job.scratch)):
            if not held.is_dir():
                raise DataError(f"{folder}: {platform.node()} does not see it; all workers need the same folders")
        if task.plan and task.earlier:
            return _finish(task, task.earlier, task.plan)
        with _hashed_beside(task) as inputs:
            if task.earlier and is_up_to_date(task, inputs()):
                return RankResult(msgspec.structs.replace(task.earlier, notes=task.pair.notes), unchanged=True)
            return _build(task, inputs)
    except Exception as error:
        return failed(task, error)


@contextmanager
def _hashed_beside(task: RankTask) -> Iterator[Callable[[], Inputs]]:
    """Yields a function that waits for what the inputs hold, hashed meanwhile; a DataError if one was changed."""
    before = {name: state_of(task.job.folder / name) for name in task.pair.names if name}
    is_left = Event()

    def inputs() -> Inputs:
        contents = hashed.result()
        for name, state in before.items():
            if state_of(task.job.folder / name) != state:
                raise DataError(f"{name}: was changed while the graph was built from it; run again when that is done")
        return contents

    hashed = beside(partial(_inputs, task, is_left.is_set))
    try:
        yield inputs
    finally:
        is_left.set()
        give_up(hashed)


def is_up_to_date(task: RankTask, contents: Inputs | None = None) -> bool:
    """Returns whether the earlier graph is still there and was built from the same files."""
    earlier = task.earlier
    if earlier is None:
        return False
    is_same = (earlier.status, earlier.device, earlier.host, earlier.detail) == (BUILT, *(contents or _inputs(task)))
    return is_same and is_unchanged(task.graph, earlier.graph)


def _inputs(task: RankTask, is_given_up: Callable[[], bool] = lambda: False) -> Inputs:
    device, *others = task.pair.names
    host, detail = (content_of(task.job.folder / name, name, is_given_up) if name else None for name in others)
    return content_of(task.job.folder / device, device, is_given_up), host, detail


def _build(task: RankTask, inputs: Callable[[], Inputs]) -> RankResult:
    pair, options, linked = task.pair, task.job.options, linked_rank(task)
    device, host, detail = inputs()
    stage_done()
    graph = build_generic_graph(linked, options)
    stage_done()
    report = graph.report
    if options.target == ASTRA_SIM:
        graph = separate_messages(restrict_to_ranks(graph, task.job.ranks))
    to_share = look_up(graph, options.target)
    if options.target == GENERIC:
        # mostly the other ranks have no other groups, and the numbers stand
        graph = lower_for_target(graph, GENERIC, number_groups(to_share.groups))
        graph.write(str(task.waiting))
    else:
        with open_output(str(pickle_path(task))) as waiting:
            pickle.dump(graph, waiting)
    summary = RankSummary(
        rank=pair.rank, status=BUILT, device=device, host=host,
        graph=content_of(task.waiting, task.graph.name) if options.target == GENERIC else None,
        edges=len(graph.data_deps.values), notes=pair.notes,
        link=msgspec.structs.replace(linked.report, notes=[_shorten_paths(task, note) for note in linked.report.notes]),
        convert=report, comms=summarise_rank(linked), lacks_sync_records=lacks_sync_records(linked), detail=detail,
    )  # fmt: skip
    return RankResult(summary, communication=to_share)


def pickle_path(task: RankTask) -> Path:
    """Returns the file of a graph that is not what simulators read before the second step."""
    return task.waiting.with_suffix(PICKLE)


def linked_rank(task: RankTask) -> LinkedTrace:
    """Returns the rank's pair, linked."""
    pair, job = task.pair, task.job
    device_path, host_path, detail = (name and str(job.folder / name) for name in task.pair.names)
    host_trace, device_trace = read_traces(host_path, device_path, modules=job.options.modules, detail=detail)
    stage_done()
    return link(host_trace, device_trace, None if pair.records_rank else pair.rank, window=job.window)


def _finish(task: RankTask, built: RankSummary, plan: RankPlan) -> RankResult:
    options = task.job.options
    if options.target == ASTRA_SIM:
        graph = compute_instead(pickle.loads(pickle_path(task).read_bytes()), plan.unpartnered)
        for attribute, values in plan.values:
            graph = with_values(graph, attribute, values)
        if options.replay:
            graph = order_collectives(graph, plan.order)
    else:
        # one that was up to date stands in its place
        graph = ExecutionGraph.read(str(task.waiting if task.waiting.exists() else task.graph))
    offset = plan.start_offset_ns if options.start_offsets else 0
    graph = lower_for_target(graph, options.target, plan.numbers, options.roofline, offset)
    graph.write(str(task.waiting))
    changes = graph.changes or TargetChanges()
    if str(Change.EXCESS) in changes.counts:
        changes.counts[str(Change.COLLECTIVES)] = plan.collectives_ns / 1000
    changes.counts |= {str(change): count for change, count in plan.changes.items() if count}
    if plan.unpartnered:
        changes.notes.append(f"{len(plan.unpartnered)} {Change.WITHOUT_PARTNER}")
    summary = msgspec.structs.replace(
        built, graph=content_of(task.waiting, task.graph.name), edges=len(graph.data_deps.values),
        target_notes=changes.notes, target=changes.counts,
    )  # fmt: skip
    return RankResult(summary)


def failed(task: RankTask, error: Exception) -> RankResult:
    """Returns what is said of a rank that could not be built: one line, files named by their paths below the folder."""
    pair = task.pair
    if isinstance(error, DataError):
        reason = _shorten_paths(task, str(error).replace(str(task.waiting), str(task.graph)))
    elif isinstance(error, MemoryError):
        reason = f"{pair.device}: out of memory; try fewer {Remedy.JOBS}, or a machine with more"
    else:
        reason = f"{pair.device}: {type(error).__name__}: {error}"
    device, host = FileContent(pair.device), FileContent(pair.host) if pair.host else None
    error_line = " ".join(reason.split())
    return RankResult(RankSummary(pair.rank, FAILED, device, host, error=error_line, notes=pair.notes))


def _shorten_paths(task: RankTask, text: str) -> str:
    """Returns the text with files named by their paths below the folder."""
    return text.replace(f"{task.job.folder}{os.sep}", "")
