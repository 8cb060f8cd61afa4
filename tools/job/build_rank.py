"""Builds the graph file and a small summary of one rank, then makes the graph keep the plan of all ranks.

Each of the two steps runs in a process of its own.
"""

import os
import pickle
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
from ...linker.windows import EVERYTHING, Window
from ...schema.arguments import ASTRA_SIM, GENERIC, Target
from ...schema.comm_groups import number_groups
from ...schema.errors import DataError, Remedy
from ...schema.graph import Change, ExecutionGraph, TargetChanges
from ...schema.io import open_output, state_of
from ...schema.linked import LinkedTrace
from ...schema.progress import beside, give_up
from ..command import no_garbage_collection
from ..pairs import Pair
from ..sync_records_advice import lacks_sync_records
from ..workers import stage_done
from .build_report import BUILT, FAILED, BuildOptions, FileContent, RankSummary, content_of, is_unchanged
from .job_plan import RankCommunication, RankPlan, look_up
from .rank_comms import summarise_rank

BUILD_STAGES = 4
"""A rank is read, linked and converted, and then written."""
FITTED_TO_TRACED = (Change.EXCESS, Change.SHRUNK, Change.HIDDEN)
"""The changes that keep time which the fitted network does not give: they hold for the ranks that were traced."""


class RankTask(NamedTuple):
    """A pair of traces below `folder` to build a rank from, and where its graph goes.

    The graph waits at `waiting` until all `ranks` are built. `earlier` is what the last build with the same options
    said of this rank.
    """

    folder: Path
    pair: Pair
    graph: Path
    waiting: Path
    options: BuildOptions
    ranks: tuple[int, ...]
    earlier: RankSummary | None = None
    window: Window = EVERYTHING


Inputs = tuple[FileContent, FileContent | None]
"""The device trace and the host trace that a rank is built from."""


class RankResult(NamedTuple):
    """What is reported of a rank, whether its graph was up to date, and what other ranks have to know of it."""

    summary: RankSummary
    unchanged: bool = False
    communication: RankCommunication | None = None


@no_garbage_collection()
def build_rank(task: RankTask) -> RankResult:
    """Builds a rank's graph, unless the earlier one is still up to date. Reports every failure, raises none."""
    try:
        with _hashed_beside(task) as inputs:
            if task.earlier and is_up_to_date(task, inputs()):
                return RankResult(msgspec.structs.replace(task.earlier, notes=task.pair.notes), unchanged=True)
            return _build(task, inputs)
    except Exception as error:
        return RankResult(failure_summary(task, error))


@contextmanager
def _hashed_beside(task: RankTask) -> Iterator[Callable[[], Inputs]]:
    """What the inputs hold, when it is known; a DataError where one was changed since the block began.

    Hashing does not hold the interpreter, so it takes no time beside the building. It is given up when the block is
    left.
    """
    names = [name for name in (task.pair.device, task.pair.host) if name]
    before, is_left = {name: state_of(task.folder / name) for name in names}, Event()

    def inputs() -> Inputs:
        contents = hashed.result()
        for name, state in before.items():
            if state_of(task.folder / name) != state:
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
    is_same = (earlier.status, earlier.device, earlier.host) == (BUILT, *(contents or _inputs(task)))
    return is_same and is_unchanged(task.graph, earlier.graph)


def _inputs(task: RankTask, is_given_up: Callable[[], bool] = lambda: False) -> Inputs:
    pair = task.pair
    device = content_of(task.folder / pair.device, pair.device, is_given_up)
    return device, content_of(task.folder / pair.host, pair.host, is_given_up) if pair.host else None


def _build(task: RankTask, inputs: Callable[[], Inputs]) -> RankResult:
    pair, linked = task.pair, linked_rank(task)
    device, host = inputs()
    stage_done()
    graph = build_generic_graph(linked, task.options)
    stage_done()
    report = graph.report
    if task.options.target == ASTRA_SIM:
        graph = separate_messages(restrict_to_ranks(graph, task.ranks, whole_groups=task.options.whole_groups))
    to_share = look_up(graph, task.options.target)
    if task.options.target == GENERIC:
        # mostly the other ranks have no other groups, and the numbers stand
        graph = lower_for_target(graph, GENERIC, number_groups(to_share.groups))
        graph.write(str(task.waiting))
    else:
        with open_output(str(pickle_path(task))) as waiting:
            pickle.dump(graph, waiting)
    summary = RankSummary(
        rank=pair.rank,
        status=BUILT,
        device=device,
        host=host,
        graph=content_of(task.waiting, task.graph.name) if task.options.target == GENERIC else None,
        edges=len(graph.data_deps.values),
        notes=pair.notes,
        link=msgspec.structs.replace(linked.report, notes=[_shorten_paths(task, note) for note in linked.report.notes]),
        convert=report,
        comms=summarise_rank(linked),
        lacks_sync_records=lacks_sync_records(linked),
    )
    return RankResult(summary, communication=to_share)


def pickle_path(task: RankTask) -> Path:
    """Returns the file of a graph that is not what simulators read before the second step."""
    return task.waiting.with_suffix(".pickle")


def linked_rank(task: RankTask) -> LinkedTrace:
    """Returns the rank's pair, linked."""
    pair = task.pair
    host_path = str(task.folder / pair.host) if pair.host else None
    device_path = str(task.folder / pair.device)
    host_trace, device_trace = read_traces(host_path, device_path, modules=task.options.modules)
    stage_done()
    return link(host_trace, device_trace, None if pair.records_rank else pair.rank, window=task.window)


def failure_summary(task: RankTask, error: Exception) -> RankSummary:
    """Returns what is said of a rank that could not be built: one line, files named by their paths below the folder."""
    pair = task.pair
    if isinstance(error, DataError):
        reason = _shorten_paths(task, str(error).replace(str(task.waiting), str(task.graph)))
    elif isinstance(error, MemoryError):
        reason = f"{pair.device}: out of memory; try fewer {Remedy.JOBS}, or a machine with more"
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


def _shorten_paths(task: RankTask, text: str) -> str:
    """Returns the text with files named by their paths below the folder."""
    return text.replace(f"{task.folder}{os.sep}", "")


class FinishTask(NamedTuple):
    """What the second step needs of a rank: what was built, what it communicated, and the plan of all ranks."""

    task: RankTask
    summary: RankSummary
    plan: RankPlan


def finish_rank(task: FinishTask) -> RankResult:
    """Writes a rank's graph so that it keeps the plan. Reports every failure, raises none."""
    build, plan = task.task, task.plan
    try:
        if build.options.target == ASTRA_SIM:
            graph = compute_instead(pickle.loads(pickle_path(build).read_bytes()), plan.unpartnered)
            for attribute, values in plan.values:
                graph = with_values(graph, attribute, values)
            if build.options.replay:
                graph = order_collectives(graph, plan.order)
        else:
            # one that was up to date stands in its place
            graph = ExecutionGraph.read(str(build.waiting if build.waiting.exists() else build.graph))
        offset = plan.start_offset_ns if build.options.start_offsets else 0
        graph = lower_for_target(graph, build.options.target, plan.numbers, build.options.roofline, offset)
        graph.write(str(build.waiting))
        changes = graph.changes or TargetChanges()
        if Change.EXCESS in changes.counts:
            changes.counts[Change.COLLECTIVES] = plan.collectives_ns / 1000
        changes.counts |= {change: count for change, count in plan.changes.items() if count}
        if plan.unpartnered:
            changes.notes.append(f"{len(plan.unpartnered)} {Change.WITHOUT_PARTNER}")
        return RankResult(
            msgspec.structs.replace(
                task.summary,
                graph=content_of(build.waiting, build.graph.name),
                edges=len(graph.data_deps.values),
                target_notes=changes.notes,
                target=changes.counts,
            )
        )
    except Exception as error:
        return RankResult(failure_summary(build, error))


def graph_path(folder: Path, ranks: tuple[int, ...], rank: int, target: Target) -> Path:
    """Returns the path of a rank's graph; for simulators, which want ranks without holes, ranks are numbered anew."""
    return folder / f"graph.{ranks.index(rank) if target == ASTRA_SIM else rank}.et"
