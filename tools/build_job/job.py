"""Builds the execution graph of every rank from a folder of traces, and report.json.

The same inputs give the same bytes, wherever and in whatever order the ranks are built. Ranks whose graph still is what would come out
are left alone, also after a build that was stopped.
"""

import dataclasses
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...converter.targets import ASTRA_SIM, GENERIC, GOAL, Network
from ...linker.windows import EVERYTHING, Window
from ...schema.comm_groups import RankList, number_groups, write_groups
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph
from ...schema.io import fresh_folder, locked
from ...schema.progress import Advanced, Progress, Stages, unseen, unwatched
from ..inputs import Kind, Pairs, find_pairs, kind_of
from .build_options import BuildOptions
from .build_rank import BUILD_STAGES, RankResult, RankTask, build_rank, failed, is_up_to_date, linked_rank
from .build_report import FAILED, BuildReport, RankSummary, read_report, this_tool, write_report
from .cross_rank import verify
from .finish_rank import FinishTask, finish_rank, graph_path
from .first_difference import first_difference
from .goal_job import write_goal_job
from .issued import Issued, issued_by
from .job_plan import Communicates, look_up, plan_job
from .leftovers import LOCK, OUTPUT, WAITING, remove_failed, remove_half_written, remove_stale

REPORT = "report.json"
GROUPS = "comm_groups.json"
GRAPHS = "graph"
"""What the names of graph files begin with, before the rank."""
EXPLAINED = 8
"""Disagreements of which both sides' first differing collective is shown; each costs linking two ranks again."""

Outcomes = Generator[tuple[Any, RankResult | Exception], None, None]
Runner = Callable[[Callable[[Any], RankResult], Sequence[Any], Advanced], Outcomes]
"""Runs a function on tasks and yields each with what became of it, in any order; tells how many more stages tasks say are done."""


class Built(NamedTuple):
    """The report, the ranks whose graph was up to date, and what became of graphs of earlier builds that this job does not have."""

    report: BuildReport
    unchanged: set[int]
    removed: list[str]


def build(
    inputs: Path | Sequence[Path],
    output_dir: Path,
    options: BuildOptions,
    run: Runner,
    anew: bool = False,
    window: Window = EVERYTHING,
    progress: Progress = unwatched,
    allow_mismatch: bool = False,
) -> Built:
    """Builds OUT/graph.N.et for every rank N whose traces are among `inputs`, a folder or several files and folders, and OUT/report.json;
    for GOAL OUT/job.goal, too.

    `window` is the part of each rank's traces to build. With `anew`, ranks that are up to date are built too. With
    `allow_mismatch`, traces that tell no rank and do not seem to be of one job are ranks of one. Raises DataError when there is nothing to
    build, `output_dir` cannot be made, or another build works there; what is wrong with single ranks is in the report.
    """
    given = [path.resolve() for path in ([inputs] if isinstance(inputs, Path) else inputs)]
    target = output_dir.resolve()
    is_folder = len(given) == 1 and kind_of(given[0]) is not Kind.DEVICE
    source = given[0] if is_folder else Path(os.path.commonpath([path.parent for path in given]))
    pairs = find_pairs(
        source,
        lambda path: path.parent == target and bool(OUTPUT.fullmatch(path.name)),
        progress,
        among=() if is_folder else given,
        allow_mismatch=allow_mismatch,
        otherwise="let --allow-mismatch number them by process",
    )
    _make_folder(target)
    with locked(target / LOCK, str(output_dir)):
        remove_half_written(target)
        reported = read_report(target / REPORT)
        tasks = _tasks(source, target, pairs, options, window, None if anew else reported)
        removed = [*remove_stale(target, reported, {task.graph.name for task in tasks.values()})]
        with fresh_folder(target / WAITING):
            results = _first_step(target, pairs, tasks, options, run, progress)
            network = _finish(target, results, tasks, run, progress)
        report = _report(pairs, options, window, _summaries(results))
        removed += remove_failed(tasks, _summaries(results))
        report.network = network
        _compare_ranks(report, tasks)
        if options.target == GOAL:
            write_goal_job(target, report)
        write_report(report, target / REPORT)
    return Built(report, {rank for rank, result in results.items() if result.unchanged}, removed)


def _tasks(
    source: Path, target: Path, pairs: Pairs, options: BuildOptions, window: Window, reported: BuildReport | None
) -> dict[int, RankTask]:
    """The task of each rank."""
    earlier = _earlier(reported, options, window)
    ranks = tuple(sorted(pair.rank for pair in pairs.ranks))
    tasks = {
        pair.rank: RankTask(
            folder=source,
            pair=pair,
            graph=graph_path(target, ranks, pair.rank, options.target),
            waiting=target / WAITING / str(pair.rank),
            # the file of a job in GOAL is written from generic graphs
            options=dataclasses.replace(options, target=GENERIC) if options.target == GOAL else options,
            ranks=ranks,
            earlier=earlier.get(pair.rank),
            window=window,
        )
        for pair in pairs.ranks
    }
    if options.target == ASTRA_SIM and not all(map(is_up_to_date, tasks.values())):
        # a rank's graph depends on the communication of all others
        tasks = {rank: task._replace(earlier=None) for rank, task in tasks.items()}
    return tasks


def _first_step(
    target: Path, pairs: Pairs, tasks: dict[int, RankTask], options: BuildOptions, run: Runner, progress: Progress
) -> dict[int, RankResult]:
    """Each rank by itself."""
    results: dict[int, RankResult] = {}
    lists: dict[RankList, RankList] = {}
    try:
        stages = Stages(progress, "building ranks", BUILD_STAGES * len(tasks))
        with closing(run(build_rank, list(tasks.values()), stages.advanced)) as outcomes:
            for built, (task, outcome) in enumerate(outcomes, 1):
                stages.reached(BUILD_STAGES * built)
                result = outcome if isinstance(outcome, RankResult) else RankResult(failed(task, outcome))
                results[task.pair.rank] = _sharing(result, lists)
    except KeyboardInterrupt:
        # the next build goes on from here, with what an earlier one said of the ranks that were not reached
        unreached = {rank: task.earlier for rank, task in tasks.items() if task.earlier}
        first = next(iter(tasks.values()))
        done = {rank: result for rank, result in results.items() if result.summary.graph or result.summary.error}
        write_report(_report(pairs, options, first.window, unreached | _summaries(done)), target / REPORT)
        raise
    return results


def _finish(
    target: Path, results: dict[int, RankResult], tasks: dict[int, RankTask], run: Runner, progress: Progress
) -> Network | None:
    """The second step, for the ranks that were built now: numbers of groups, and for simulators one order of communication.

    The network that the communication fits; of a simulator's graphs that are up to date the earlier one.
    """
    known = {rank: result.communicates for rank, result in results.items() if result.communicates}
    if not known:
        earlier = read_report(target / REPORT)
        return earlier.network if earlier else None
    for rank, result in results.items():
        if result.unchanged:
            known[rank] = look_up(ExecutionGraph.read(str(tasks[rank].graph), tensors=False), GENERIC)
    try:
        plan = plan_job(known)
    except DataError as error:
        # without a common plan no graph can be what the simulator needs
        for rank in known:
            tasks[rank].graph.unlink(missing_ok=True)
            results[rank] = RankResult(
                msgspec.structs.replace(results[rank].summary, status=FAILED, graph=None, error=str(error))
            )
        return None
    write_groups(str(target / GROUPS), plan.numbers)
    finishing = [
        FinishTask(tasks[rank], results[rank].summary, plan.ranks[rank])
        for rank in sorted(known)
        if tasks[rank].options.target == ASTRA_SIM or not _numbers_stand(known[rank], plan.numbers)
    ]
    network = plan.network if plan.network.transfers else None
    if not finishing:
        return network
    with closing(run(finish_rank, finishing, unseen)) as outcomes:
        for task, outcome in progress(outcomes, "finishing ranks", len(finishing), "rank"):
            result = outcome if isinstance(outcome, RankResult) else RankResult(failed(task.task, outcome))
            results[task.task.pair.rank] = result
    return network


def _sharing(result: RankResult, lists: dict[RankList, RankList]) -> RankResult:
    """The result with each list of ranks the one that equals it in `lists`: thousands of ranks know the same ones."""
    if result.communicates is None:
        return result
    groups = [lists.setdefault(one, one) for one in result.communicates.groups]
    return result._replace(communicates=result.communicates._replace(groups=groups))


def _numbers_stand(rank: Communicates, numbers: dict[RankList, int]) -> bool:
    """Whether the rank, which numbered its groups by itself, gave them the numbers of the job."""
    return all(numbers[group] == number for group, number in number_groups(rank.groups).items())


def _compare_ranks(report: BuildReport, tasks: dict[int, RankTask]) -> None:
    """Adds to the report what the ranks that were built disagree on; the first ones are looked up in the ranks' traces again."""
    comms = {rank.rank: rank.comms for rank in report.ranks if rank.comms}
    world = max((rank.link.world_size for rank in report.ranks if rank.link), default=-1)
    findings = verify(comms, world)
    report.absences = findings.notes

    @lru_cache(maxsize=2)
    def issued(rank: int) -> list[Issued]:
        known = findings.known[rank]
        return [one._replace(group=one.group and known.get(one.group)) for one in issued_by(linked_rank(tasks[rank]))]

    for number, found in enumerate(findings.disagreements):
        groups = " and ".join(group.text for group in found.groups)
        detail = first_difference(found, issued) if number < EXPLAINED else found.what
        report.disagreements.append(f"{groups}: {detail}" if groups else detail)


def _make_folder(target: Path) -> None:
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{target}: cannot be made a folder ({error.strerror or error})") from error


def _earlier(report: BuildReport | None, options: BuildOptions, window: Window) -> dict[int, RankSummary]:
    """What an earlier build said of each rank, if it was by this tool, of this part and with these options."""
    if report is None or (report.tool, report.options, report.window) != (this_tool(), options, window):
        return {}
    return {rank.rank: rank for rank in report.ranks}


def _summaries(results: dict[int, RankResult]) -> dict[int, RankSummary]:
    return {rank: result.summary for rank, result in results.items()}


def _report(pairs: Pairs, options: BuildOptions, window: Window, summaries: dict[int, RankSummary]) -> BuildReport:
    ranks = [summaries[rank] for rank in sorted(summaries)]
    return BuildReport(this_tool(), options, ranks, pairs.failures, pairs.notes, pairs.skipped, window=window)
