"""Builds the execution graph of every rank from a folder of traces, report.json, and for GOAL the file of the job.

The same inputs give the same bytes, in whatever order the ranks are built. The first step builds a rank's graph and a
small summary of it, the second makes the graph keep the plan of all ranks; each runs in a process of its own.
"""

import dataclasses
import os
import pickle
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...converter.convert import this_tool
from ...converter.ranks import Network
from ...linker.windows import EVERYTHING, Window
from ...schema.arguments import ASTRA_SIM, GENERIC, GOAL, MOST_MESSAGES
from ...schema.columns import time_text
from ...schema.comm_groups import GROUPS, RankList, number_groups, write_groups
from ...schema.errors import DataError, RequestError
from ...schema.graph import STEP_WITHOUT_PROFILER_NS, ExecutionGraph
from ...schema.io import fresh_folder, locked, make_folder, state_of
from ...schema.progress import OnProgress, Progress, Stages, unseen, unwatched
from ..recognise import InputKind, kind_of, why_two_jobs
from ..trace_files import Pairs, find_pairs
from . import build_report, rank_building
from .build_report import BUILT, FAILED, GOAL_FILE, REPORT, BuildOptions, BuildReport, FileContent
from .cross_rank import compare_ranks
from .job_plan import decisions_on, look_up, plan_job
from .rank_building import BUILD_STAGES, PICKLE, Job, RankResult, RankTask, failed, is_up_to_date, linked_rank
from .rank_comms import issued_by

MEASURED = (InputKind.HOST, InputKind.DEVICE, InputKind.DETAIL, InputKind.MERGED)
"""What a profiler recorded, which cannot be made again."""
Outcomes = Generator[tuple[Any, RankResult | Exception], None, None]
Runner = Callable[[Callable[[Any], RankResult], Sequence[Any], OnProgress], Outcomes]
"""Runs a function on tasks, yields each with what became of it in any order, and tells of stages that are done."""


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
    max_messages: int = MOST_MESSAGES,
) -> BuiltJob:
    """Builds OUT/graph.N.et for every rank N among `inputs`, and OUT/report.json; for GOAL OUT/job.goal, too.

    With `anew`, ranks that are up to date are built too. If no rank can be built, graphs of an earlier build stay.
    Raises DataError if there is nothing to build or no place for it; what is wrong with single ranks is in the report.
    """
    target = output_dir.resolve()
    source, pairs = _find_traces(inputs, target, progress, allow_mismatch=allow_mismatch)
    make_folder(target)
    with locked(target / build_report.LOCK, str(output_dir)), fresh_folder(target / build_report.WAITING) as waiting:
        reported = build_report.read_report(target / REPORT)
        earlier, changed = (None, []) if anew else build_report.comparable(reported, target, options, window)
        # what a worker of a cluster makes after its build was stopped is nobody's
        scratch = waiting / os.urandom(4).hex()
        scratch.mkdir()
        job = Job(source, target, scratch, options, window, tuple(sorted(pair.rank for pair in pairs.ranks)))
        tasks = _tasks(job, pairs, earlier)
        results = _first_step(tasks, run, progress)
        said = _changed_run(tasks, results, earlier)
        network, groups, decisions = _second_step(tasks, results, earlier, run, progress)
        ranks = [results[rank].summary for rank in sorted(results)]
        of_inputs = pairs.failures, pairs.notes, pairs.skipped
        report = BuildReport(
            this_tool(), options, ranks, *of_inputs, window=window, network=network, run=said, groups=groups
        )
        report.decisions = decisions or msgspec.UNSET
        _compare_ranks(report, tasks)
        if reported and build_report.graph_names(reported) and not any(rank.status == BUILT for rank in ranks):
            stale = [f"no rank could be built: {output_dir} is left as the earlier build made it"]
            return BuiltJob(report, set(), stale, is_written=False)
        if options.target == GOAL:
            build_report.write_goal_job(scratch, target, report, max_messages)
        graphs = {rank: task.graph for rank, task in tasks.items()}
        removed = build_report.put_all_in_place(scratch, target, report, reported, graphs)
    return BuiltJob(report, {rank for rank, result in results.items() if result.unchanged}, [*changed, *removed])


def _find_traces(
    inputs: Path | Sequence[Path], target: Path, progress: Progress, *, allow_mismatch: bool
) -> tuple[Path, Pairs]:
    """Returns the folder that holds all inputs, and the traces of each rank."""
    paths = [path.resolve() for path in ([inputs] if isinstance(inputs, Path) else inputs)]
    is_folder = len(paths) == 1 and kind_of(paths[0]) not in (InputKind.DEVICE, InputKind.MERGED)
    source = paths[0] if is_folder else Path(os.path.commonpath([path.parent for path in paths]))
    pairs = find_pairs(
        source, lambda path: path.parent == target and bool(build_report.OUTPUT.fullmatch(path.name)), progress,
        paths=() if is_folder else paths, allow_mismatch=allow_mismatch,
    )  # fmt: skip
    return source, pairs


def _tasks(job: Job, pairs: Pairs, reported: BuildReport | None) -> dict[int, RankTask]:
    """Returns the task of each rank. Raises RequestError where an output is a trace, by a link or by its name."""
    if job.options.target == GOAL:
        # the file of a job in GOAL is written from generic graphs
        job = job._replace(options=dataclasses.replace(job.options, target=GENERIC))
    earlier = {rank.rank: rank for rank in reported.ranks} if reported else {}
    pairs_read = [pair._replace(detail=pair.detail * job.options.modules) for pair in pairs.ranks]
    tasks = {pair.rank: RankTask(job, pair, earlier.get(pair.rank)) for pair in pairs_read}
    traces = {state_of(job.folder / name)[:2]: name for task in tasks.values() for name in task.pair.names if name}
    for path in (*(task.graph for task in tasks.values()), *map(job.output.joinpath, (GROUPS, GOAL_FILE, REPORT))):
        if read := traces.get(state_of(path)[:2]):
            raise RequestError(f"{path} is {job.folder / read}, which is read: give another folder for the output")
        if path.name in (GROUPS, REPORT) and kind_of(path) in MEASURED:
            raise RequestError(f"{path} is a trace, not of a build: rename it, or give another folder for the output")
    depends_on_others = job.options.target == ASTRA_SIM or job.options.without_profiler or job.options.changes
    if depends_on_others and not (earlier.keys() == tasks.keys() and all(map(is_up_to_date, tasks.values()))):
        # a rank's graph depends on the communication, or the times, of all others
        tasks = {rank: task._replace(earlier=None) for rank, task in tasks.items()}
    return tasks


def _first_step(tasks: dict[int, RankTask], run: Runner, progress: Progress) -> dict[int, RankResult]:
    """Builds each rank by itself."""
    results: dict[int, RankResult] = {}
    lists: dict[RankList, RankList] = {}
    stages = Stages(progress, "building ranks", BUILD_STAGES * len(tasks))
    with closing(run(rank_building.build_rank, [*tasks.values()], stages.on_progress)) as outcomes:
        for built, (task, outcome) in enumerate(outcomes, 1):
            stages.reached(BUILD_STAGES * built)
            result = outcome if isinstance(outcome, RankResult) else failed(task, outcome)
            for file in (result.summary.device, result.summary.host, result.summary.detail):
                if file and file.bytes >= 0 and state_of(task.job.folder / file.file)[2:3] != (file.bytes,):
                    result = failed(task, DataError(f"{file.file}: a worker read another file of this name"))
            if result.communication:
                # thousands of ranks know the same lists of ranks
                groups = [lists.setdefault(ranks, ranks) for ranks in result.communication.groups]
                result = result._replace(communication=result.communication._replace(groups=groups))
            results[task.pair.rank] = result
    return results


def _changed_run(tasks: dict[int, RankTask], results: dict[int, RankResult], earlier: BuildReport | None) -> str:
    """Puts the run that the options ask for in place of the recorded one, and returns its name; "" for the same.

    Takes all ranks at once. Raises DataError where the graphs cannot be replayed together, RequestError where a change
    cannot be made.
    """
    built = sorted(rank for rank, result in results.items() if result.summary.status == BUILT)
    if earlier and all(results[rank].unchanged for rank in built):
        return earlier.run
    options = tasks[built[0]].job.options if built else None
    if options is None or not (options.changes or options.without_profiler):
        return ""
    is_final = options.target == GENERIC
    paths = [tasks[rank].waiting if is_final else rank_building.pickle_path(tasks[rank]) for rank in built]
    # all ranks are recorded alike, and most jobs have no other run
    if not options.changes and STEP_WITHOUT_PROFILER_NS not in _read(paths[0], tensors=False).metadata:
        return ""
    from .. import replay as replays

    try:
        run = replays.run_of([*map(_read, paths)], as_recorded=not options.without_profiler)
    except DataError as error:
        if options.changes:
            raise
        return f"as recorded: {error}"
    if run.job.unprofiled is None and not options.changes:
        return f"the recorded one; {run.job.recording.text}" if run.job.recording else ""
    changes = replays.given_changes([*options.changes], "build(changes=…)")
    changed = replays.changed_graphs(replays.replay_job(run.job, changes))
    for rank, path, graph in zip(built, paths, changed, strict=True):
        path.write_bytes(pickle.dumps(graph)) if path.suffix == PICKLE else graph.write(str(path))
        file = build_report.content_of(path, tasks[rank].graph.name) if is_final else None
        summary = msgspec.structs.replace(results[rank].summary, graph=file)
        results[rank] = RankResult(summary, communication=look_up(graph, options.target))
    said = [f"with {change.spec}" for change in changes]
    if unprofiled := run.job.unprofiled:
        steps = unprofiled.steps
        lengths = (run.recorded.makespan_ns / steps / 1000, unprofiled.measured_ns / steps / 1000)
        said = [*said, "the unprofiled one: a step took {} recorded, {} unprofiled".format(*map(time_text, lengths))]
        said += [unprofiled.mismatch] if unprofiled.mismatch else []
    return ", ".join(said)


def _read(path: Path, *, tensors: bool = True) -> ExecutionGraph:
    if path.suffix == PICKLE:
        graph: ExecutionGraph = pickle.loads(path.read_bytes())
        return graph
    return ExecutionGraph.read(str(path), tensors=tensors)


def _second_step(
    tasks: dict[int, RankTask],
    results: dict[int, RankResult],
    earlier: BuildReport | None,
    run: Runner,
    progress: Progress,
) -> tuple[Network | None, FileContent | None, list[str]]:
    """Gives group numbers, and for simulators one order of communication, to ranks that lack them.

    Returns the fitted network, the file of groups, and how calls are matched, if oddly: the earlier ones if unchanged.
    """
    built = {rank for rank, result in results.items() if result.summary.status == BUILT}
    unchanged = {rank for rank in built if results[rank].unchanged}
    if not built:
        return None, None, []
    if earlier and built == unchanged == {rank.rank for rank in earlier.ranks if rank.status == BUILT}:
        return earlier.network, earlier.groups, earlier.decisions or []
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
        return None, None, []
    numbers = next(iter(plans.values())).numbers
    write_groups(str(job.scratch / GROUPS), numbers)
    groups = build_report.content_of(job.scratch / GROUPS, GROUPS)
    # a rank that was built now numbered its groups by itself, one that is up to date has the earlier build's numbers
    has_earlier_numbers = earlier is not None and earlier.groups == groups
    finishing = [
        tasks[rank]._replace(earlier=results[rank].summary, plan=plans[rank])
        for rank, to_share in sorted(communication.items())
        if job.options.target == ASTRA_SIM
        or not (has_earlier_numbers if rank in unchanged else number_groups(to_share.groups).items() <= numbers.items())
    ]
    if finishing:
        with closing(run(rank_building.build_rank, finishing, unseen)) as outcomes:
            for task, outcome in progress(outcomes, "finishing ranks", len(finishing), "rank"):
                results[task.pair.rank] = outcome if isinstance(outcome, RankResult) else failed(task, outcome)
    return network if network.transfers else None, groups, decisions_on(communication)


def _compare_ranks(report: BuildReport, tasks: dict[int, RankTask]) -> None:
    """Adds what the ranks disagree on to the report, and what is absent."""
    comms = {rank.rank: rank.comms for rank in report.ranks if rank.comms}
    sizes = [(rank.rank, rank.link.world_size) for rank in report.ranks if rank.link]
    jobs = why_two_jobs(sizes)
    world = -1 if jobs else max((size for _, size in sizes), default=-1)
    compared = compare_ranks(comms, world, lambda rank: issued_by(linked_rank(tasks[rank])))
    report.disagreements, report.absences = [jobs] * bool(jobs) + compared[0], compared[1]
