"""Builds the execution graph of every rank from a folder of traces, report.json, and for GOAL the file of the job.

The same inputs give the same bytes, wherever and in whatever order the ranks are built. Ranks whose graph still is what
would come out are left alone. All that is made waits until the last rank is done, so a build that is stopped changes
nothing. The first step builds a rank's graph and a small summary of it, the second makes the graph keep the plan of all
ranks; each runs in a process of its own.
"""

import dataclasses
import os
import pickle
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import msgspec

from ...converter.convert import build_generic_graph
from ...converter.ranks import Network, compute_instead, order_collectives, restrict_to_ranks, with_values
from ...converter.targets import lower_for_target, separate_messages
from ...linker.link import link, read_traces
from ...linker.windows import EVERYTHING, Window
from ...schema.arguments import ASTRA_SIM, GENERIC, GOAL
from ...schema.comm_groups import GROUPS, RankList, number_groups, write_groups
from ...schema.errors import DataError, Remedy, RequestError
from ...schema.graph import Change, ExecutionGraph, TargetChanges
from ...schema.io import fresh_folder, locked, make_folder, open_output, state_of
from ...schema.linked import LinkedTrace
from ...schema.progress import OnProgress, Progress, Stages, beside, give_up, unseen, unwatched
from ..command import no_garbage_collection
from ..recognise import InputKind, kind_of
from ..sync_records_advice import lacks_sync_records
from ..trace_files import Pair, Pairs, find_pairs
from ..workers import stage_done
from .build_report import (
    BUILT,
    FAILED,
    GOAL_FILE,
    LOCK,
    OUTPUT,
    REPORT,
    WAITING,
    BuildOptions,
    BuildReport,
    FileContent,
    RankSummary,
    comparable,
    content_of,
    graph_names,
    is_unchanged,
    put_all_in_place,
    read_report,
    this_tool,
    write_goal_job,
)
from .cross_rank import compare_ranks
from .job_plan import RankCommunication, RankPlan, look_up, plan_job
from .rank_comms import issued_by, summarise_rank

BUILD_STAGES = 4
"""A rank is read, linked and converted, and then written."""
FITTED_TO_TRACED = (Change.EXCESS, Change.SHRUNK, Change.HIDDEN)
"""The changes that keep time which the fitted network does not give: they hold for the ranks that were traced."""
MEASURED = (InputKind.HOST, InputKind.DEVICE, InputKind.MERGED)
"""What a profiler recorded, which cannot be made again."""


class Job(NamedTuple):
    """What the tasks of all ranks have in common: the folders of the traces and of the graphs, and what to build.

    New graphs wait in `scratch` until all `ranks` are built.
    """

    folder: Path
    output: Path
    scratch: Path
    options: BuildOptions
    window: Window
    ranks: tuple[int, ...]


class RankTask(NamedTuple):
    """A pair of traces to build a rank from; with a `plan` the second step of what the first one built.

    `earlier` is what the last build with the same options, or the first step, said of this rank.
    """

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


Inputs = tuple[FileContent, FileContent | None]
"""The device trace and the host trace that a rank is built from."""


class RankResult(NamedTuple):
    """What is reported of a rank, whether its graph was up to date, and what other ranks have to know of it."""

    summary: RankSummary
    unchanged: bool = False
    communication: RankCommunication | None = None


@no_garbage_collection()
def build_rank(task: RankTask) -> RankResult:
    """Builds a rank's graph, unless the earlier one is still up to date, or makes the graph that was built keep the
    plan of all ranks. Reports every failure, raises none.
    """
    try:
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
    """What the inputs hold, when it is known; a DataError where one was changed since the block began.

    Hashing does not hold the interpreter, so it takes no time beside the building. It is given up when the block is
    left.
    """
    before = {name: state_of(task.job.folder / name) for name in (task.pair.device, task.pair.host) if name}
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
    is_same = (earlier.status, earlier.device, earlier.host) == (BUILT, *(contents or _inputs(task)))
    return is_same and is_unchanged(task.graph, earlier.graph)


def _inputs(task: RankTask, is_given_up: Callable[[], bool] = lambda: False) -> Inputs:
    pair = task.pair
    device = content_of(task.job.folder / pair.device, pair.device, is_given_up)
    return device, content_of(task.job.folder / pair.host, pair.host, is_given_up) if pair.host else None


def _build(task: RankTask, inputs: Callable[[], Inputs]) -> RankResult:
    pair, options, linked = task.pair, task.job.options, linked_rank(task)
    device, host = inputs()
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
        with open_output(str(_pickle_path(task))) as waiting:
            pickle.dump(graph, waiting)
    summary = RankSummary(
        rank=pair.rank,
        status=BUILT,
        device=device,
        host=host,
        graph=content_of(task.waiting, task.graph.name) if options.target == GENERIC else None,
        edges=len(graph.data_deps.values),
        notes=pair.notes,
        link=msgspec.structs.replace(linked.report, notes=[_shorten_paths(task, note) for note in linked.report.notes]),
        convert=report,
        comms=summarise_rank(linked),
        lacks_sync_records=lacks_sync_records(linked),
    )
    return RankResult(summary, communication=to_share)


def _pickle_path(task: RankTask) -> Path:
    """Returns the file of a graph that is not what simulators read before the second step."""
    return task.waiting.with_suffix(".pickle")


def linked_rank(task: RankTask) -> LinkedTrace:
    """Returns the rank's pair, linked."""
    pair, job = task.pair, task.job
    host_path = str(job.folder / pair.host) if pair.host else None
    host_trace, device_trace = read_traces(host_path, str(job.folder / pair.device), modules=job.options.modules)
    stage_done()
    return link(host_trace, device_trace, None if pair.records_rank else pair.rank, window=job.window)


def _finish(task: RankTask, built: RankSummary, plan: RankPlan) -> RankResult:
    options = task.job.options
    if options.target == ASTRA_SIM:
        graph = compute_instead(pickle.loads(_pickle_path(task).read_bytes()), plan.unpartnered)
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
        built,
        graph=content_of(task.waiting, task.graph.name),
        edges=len(graph.data_deps.values),
        target_notes=changes.notes,
        target=changes.counts,
    )
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


Outcomes = Generator[tuple[Any, RankResult | Exception], None, None]
Runner = Callable[[Callable[[Any], RankResult], Sequence[Any], OnProgress], Outcomes]
"""Runs a function on tasks and yields each with what became of it, in any order; tells how many more stages tasks say
are done.
"""


class BuiltJob(NamedTuple):
    """The report, ranks that were up to date, sentences on what earlier builds left, and whether it is written."""

    report: BuildReport
    unchanged: set[int]
    stale: list[str]
    is_written: bool = True


def build(
    inputs: Path | Sequence[Path],
    output_dir: Path,
    options: BuildOptions,
    run: Runner,
    *,
    anew: bool = False,
    window: Window = EVERYTHING,
    progress: Progress = unwatched,
    allow_mismatch: bool = False,
) -> BuiltJob:
    """Builds OUT/graph.N.et for every rank N among `inputs`, and OUT/report.json; for GOAL OUT/job.goal, too.

    `window` is the part of each rank's traces to build. With `anew`, ranks that are up to date are built too. With
    `allow_mismatch`, traces that record no rank and do not seem to be of one job are ranks of one. If no rank can be
    built, such as by a mistyped part of the trace, graphs of an earlier build stay. Raises DataError if
    there is nothing to build, `output_dir` cannot be made, or another build works there; what is wrong with single
    ranks is in the report.
    """
    target = output_dir.resolve()
    source, pairs = _find_traces(inputs, target, progress, allow_mismatch=allow_mismatch)
    make_folder(target)
    with locked(target / LOCK, str(output_dir)), fresh_folder(target / WAITING) as waiting:
        reported = read_report(target / REPORT)
        earlier, changed = (None, []) if anew else comparable(reported, target, options, window)
        # what a worker of a cluster makes after its build was stopped is nobody's
        scratch = waiting / os.urandom(4).hex()
        scratch.mkdir()
        job = Job(source, target, scratch, options, window, tuple(sorted(pair.rank for pair in pairs.ranks)))
        tasks = _tasks(job, pairs, earlier)
        results = _first_step(tasks, run, progress)
        network, groups = _second_step(tasks, results, earlier, run, progress)
        ranks = [results[rank].summary for rank in sorted(results)]
        of_inputs = pairs.failures, pairs.notes, pairs.skipped
        report = BuildReport(this_tool(), options, ranks, *of_inputs, window=window, network=network, groups=groups)
        _compare_ranks(report, tasks)
        if reported and graph_names(reported) and not any(rank.status == BUILT for rank in ranks):
            stale = [f"no rank could be built: {output_dir} is left as the earlier build made it"]
            return BuiltJob(report, set(), stale, is_written=False)
        if options.target == GOAL:
            write_goal_job(scratch, target, report)
        removed = put_all_in_place(
            scratch, target, report, reported, {rank: task.graph for rank, task in tasks.items()}
        )
    return BuiltJob(report, {rank for rank, result in results.items() if result.unchanged}, [*changed, *removed])


def _find_traces(
    inputs: Path | Sequence[Path], target: Path, progress: Progress, *, allow_mismatch: bool
) -> tuple[Path, Pairs]:
    """Returns the folder that holds all inputs, and the traces of each rank."""
    paths = [path.resolve() for path in ([inputs] if isinstance(inputs, Path) else inputs)]
    is_folder = len(paths) == 1 and kind_of(paths[0]) is not InputKind.DEVICE
    source = paths[0] if is_folder else Path(os.path.commonpath([path.parent for path in paths]))
    pairs = find_pairs(
        source,
        lambda path: path.parent == target and bool(OUTPUT.fullmatch(path.name)),
        progress,
        paths=() if is_folder else paths,
        allow_mismatch=allow_mismatch,
        otherwise=f"let {Remedy.ALLOW_MISMATCH} number them by process",
    )
    return source, pairs


def _tasks(job: Job, pairs: Pairs, reported: BuildReport | None) -> dict[int, RankTask]:
    """Returns the task of each rank. Raises RequestError where an output is a trace: one that the build reads by a
    link, or that has its name.
    """
    if job.options.target == GOAL:
        # the file of a job in GOAL is written from generic graphs
        job = job._replace(options=dataclasses.replace(job.options, target=GENERIC))
    earlier = {rank.rank: rank for rank in reported.ranks} if reported else {}
    tasks = {pair.rank: RankTask(job, pair, earlier.get(pair.rank)) for pair in pairs.ranks}
    traces = {
        state_of(job.folder / name)[:2]: name for pair in pairs.ranks for name in (pair.device, pair.host) if name
    }
    for path in (*(task.graph for task in tasks.values()), *map(job.output.joinpath, (GROUPS, GOAL_FILE, REPORT))):
        if read := traces.get(state_of(path)[:2]):
            raise RequestError(f"{path} is {job.folder / read}, which is read: give another folder for the output")
        if path.name in (GROUPS, REPORT) and kind_of(path) in MEASURED:
            raise RequestError(f"{path} is a trace, not of a build: rename it, or give another folder for the output")
    if job.options.target == ASTRA_SIM and not (
        earlier.keys() == tasks.keys() and all(map(is_up_to_date, tasks.values()))
    ):
        # a rank's graph depends on the communication of all others
        tasks = {rank: task._replace(earlier=None) for rank, task in tasks.items()}
    return tasks


def _first_step(tasks: dict[int, RankTask], run: Runner, progress: Progress) -> dict[int, RankResult]:
    """Builds each rank by itself."""
    results: dict[int, RankResult] = {}
    lists: dict[RankList, RankList] = {}
    stages = Stages(progress, "building ranks", BUILD_STAGES * len(tasks))
    with closing(run(build_rank, [*tasks.values()], stages.on_progress)) as outcomes:
        for built, (task, outcome) in enumerate(outcomes, 1):
            stages.reached(BUILD_STAGES * built)
            result = outcome if isinstance(outcome, RankResult) else failed(task, outcome)
            if result.communication:
                # thousands of ranks know the same lists of ranks
                groups = [lists.setdefault(ranks, ranks) for ranks in result.communication.groups]
                result = result._replace(communication=result.communication._replace(groups=groups))
            results[task.pair.rank] = result
    return results


def _second_step(
    tasks: dict[int, RankTask],
    results: dict[int, RankResult],
    earlier: BuildReport | None,
    run: Runner,
    progress: Progress,
) -> tuple[Network | None, FileContent | None]:
    """Gives group numbers, and for simulators one order of communication, to ranks that lack them.

    Returns the network that the communication fits, and the file of groups; the earlier ones where nothing changed.
    """
    built = {rank for rank, result in results.items() if result.summary.status == BUILT}
    unchanged = {rank for rank in built if results[rank].unchanged}
    if not built:
        return None, None
    if earlier and built == unchanged == {rank.rank for rank in earlier.ranks if rank.status == BUILT}:
        return earlier.network, earlier.groups
    communication = {rank: result.communication for rank, result in results.items() if result.communication}
    for rank in unchanged:
        communication[rank] = look_up(ExecutionGraph.read(str(tasks[rank].graph), tensors=False), GENERIC)
    job = next(iter(tasks.values())).job
    try:
        plans, network = plan_job(communication, replay=job.options.replay, excess_time=job.options.excess_time)
    except DataError as error:
        # without a common plan no graph can be what the simulator needs
        for rank in communication:
            summary = msgspec.structs.replace(results[rank].summary, status=FAILED, graph=None, error=str(error))
            results[rank] = RankResult(summary)
        return None, None
    numbers = next(iter(plans.values())).numbers
    write_groups(str(job.scratch / GROUPS), numbers)
    groups = content_of(job.scratch / GROUPS, GROUPS)
    # a rank that was built now numbered its groups by itself, one that is up to date has the earlier build's numbers
    has_earlier_numbers = earlier is not None and earlier.groups == groups
    finishing = [
        tasks[rank]._replace(earlier=results[rank].summary, plan=plans[rank])
        for rank, to_share in sorted(communication.items())
        if job.options.target == ASTRA_SIM
        or not (has_earlier_numbers if rank in unchanged else number_groups(to_share.groups).items() <= numbers.items())
    ]
    if finishing:
        with closing(run(build_rank, finishing, unseen)) as outcomes:
            for task, outcome in progress(outcomes, "finishing ranks", len(finishing), "rank"):
                results[task.pair.rank] = outcome if isinstance(outcome, RankResult) else failed(task, outcome)
    return network if network.transfers else None, groups


def _compare_ranks(report: BuildReport, tasks: dict[int, RankTask]) -> None:
    """Adds what the ranks disagree on to the report, and what is absent."""
    comms = {rank.rank: rank.comms for rank in report.ranks if rank.comms}
    world = max((rank.link.world_size for rank in report.ranks if rank.link), default=-1)
    compared = compare_ranks(comms, world, lambda rank: issued_by(linked_rank(tasks[rank])))
    report.disagreements, report.absences = compared
