"""Scales a job: surveys the graphs of all ranks, plans, and writes those of every copy, one at a time.

Nothing is under the output's name until all of it is. Equal inputs give equal bytes.
"""

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from ...converter.ranks import fitted_network, for_more_ranks
from ...converter.scaling import Growth, ScalePlan, all_groups, plan_scaling
from ...schema.arguments import ASTRA_SIM
from ...schema.comm_groups import write_groups
from ...schema.errors import DataError
from ...schema.io import fresh_folder, locked, open_output
from ...schema.progress import Progress, unwatched
from ..kinds import InputKind
from ..wrong_kind import file_for_folder, instead_of_folder
from .astra_sim_files import Simulation, write_astra_sim_files
from .build_report import read_report
from .building import GRAPHS
from .finish_rank import FITTED_TO_TRACED
from .leftovers import GROUPS, REPORT as BUILD_REPORT
from .scale_report import ScaleReport, report_of
from .write_copies import CopyTask, survey_rank, write_copies

SCALE_REPORT = "scale.json"
GRAPH_FILE = re.compile(rf"{GRAPHS}\.(\d+)\.et")
COPIES_AT_ONCE = 32
"""A rank's graph is read once for so many of its copies."""

Runner = Callable[[Callable[[Any], Any], Sequence[Any]], Generator[tuple[Any, Any], None, None]]
"""Runs a function on tasks and yields each with what became of it, a result or an exception, in any order."""


def scale(
    input_dir: Path, output_dir: Path, growth: Growth, run: Runner, progress: Progress = unwatched
) -> ScaleReport:
    """Writes the scaled job: OUT/graph.N.et per rank, comm_groups.json and scale.json; for ASTRA-sim its configuration.

    Raises DataError where the input is no whole job or keeps times of the traced ranks alone, the growth would make it
    another program, `output_dir` is not empty, or another process is scaling into it.
    """
    if output_dir.exists() and (not output_dir.is_dir() or any(output_dir.iterdir())):
        raise DataError(f"{output_dir}: is there and not empty; name a new folder")
    sources = _graph_files(input_dir)
    _refuse_fitted(input_dir)
    facts = [
        fact
        for _, fact in _run_all(
            run, survey_rank, list(sources.values()), progress=progress, what="reading ranks", unit="rank"
        )
    ]
    facts.sort(key=lambda rank: rank.rank)
    plan = plan_scaling(facts, growth)
    is_simulated = all(rank.target == ASTRA_SIM for rank in facts)
    report = report_of(plan, is_simulated)
    report.notes += [note for rank in facts for note in rank.notes]
    try:
        output_dir.parent.mkdir(parents=True, exist_ok=True)
        lock, beside = (output_dir.parent / f".{output_dir.name}.scaling{ending}" for ending in (".lock", ""))
        with locked(lock, str(output_dir)), fresh_folder(beside):
            folder = beside / output_dir.name
            folder.mkdir()
            _write_graphs(folder, sources, plan, report, run=run, progress=progress)
            groups, ranks = dict(all_groups(plan.numbering, plan.rank_copies)), plan.rank_copies.ranks
            write_groups(str(folder / GROUPS), groups)
            if is_simulated:
                fitted = fitted_network(plan.measured, plan.rank_copies.world_size)
                report.network = for_more_ranks(fitted, groups, ranks)
                write_astra_sim_files(folder, ranks, report.network, simulation_of(growth))
            with open_output(str(folder / SCALE_REPORT)) as out:
                out.write(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
            folder.rename(output_dir)
    except OSError as error:
        raise DataError(f"{output_dir}: cannot be written ({error.strerror or error}); is there room?") from error
    return report


def _graph_files(folder: Path) -> dict[int, Path]:
    """Returns the graph of each rank."""
    if not folder.is_dir():
        raise DataError(file_for_folder(folder, InputKind.GRAPH))
    try:
        graphs = {int(name[1]): path for path in folder.iterdir() if (name := GRAPH_FILE.fullmatch(path.name))}
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror or error}); check the path") from error
    if not graphs:
        remedy = instead_of_folder(folder, InputKind.GRAPH) or "build the graphs of a job with trace-build"
        raise DataError(f"{folder}: there is no {GRAPHS}.0.et in it; {remedy}")
    return dict(sorted(graphs.items()))


def _refuse_fitted(folder: Path) -> None:
    """Raises DataError for graphs that a build gave times or bytes which hold for the traced ranks alone."""
    report = read_report(folder / BUILD_REPORT)
    changed = report and next((name for rank in report.ranks for name in FITTED_TO_TRACED if name in rank.target), None)
    if changed:
        raise DataError(
            f"{folder}: the graphs keep what collectives of the traced ranks took beyond the fitted network ({changed}), "
            "which does not hold for more ranks; build them with --no-excess-time"
        )


def _run_all(
    run: Runner, work: Callable[[Any], Any], tasks: Sequence[Any], *, progress: Progress, what: str, unit: str
) -> list[tuple[Any, Any]]:
    """Returns each task with its result; raises what one raised."""
    results = []
    with closing(run(work, tasks)) as outcomes:
        for task, outcome in progress(outcomes, what, len(tasks), unit):
            if isinstance(outcome, Exception):
                raise outcome
            results.append((task, outcome))
    return results


def _write_graphs(
    folder: Path, sources: dict[int, Path], plan: ScalePlan, report: ScaleReport, *, run: Runner, progress: Progress
) -> None:
    copies = range(plan.rank_copies.copies)
    tasks = [
        # a worker needs to know of no other rank
        CopyTask(
            sources[plan.ranks[rank].source], rank, folder, copies[first : first + COPIES_AT_ONCE], plan.for_rank(rank)
        )
        for first in copies[::COPIES_AT_ONCE]
        for rank in plan.ranks
    ]
    for _, written in _run_all(run, write_copies, tasks, progress=progress, what="writing copies", unit="piece"):
        report.nodes += written.nodes
        report.bytes += written.bytes


def simulation_of(growth: Growth) -> Simulation:
    """Returns the link of the grown job's network in the simulator, where a step goes over two links."""
    latency = None if growth.latency_ns is None else growth.latency_ns / 2
    return Simulation(growth.bandwidth_gib_s, latency)
