"""Second step of a build: one rank's graph made to keep the plan of all ranks. Runs in a process of its own."""

import pickle
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...converter.ranks import (
    add_excess_time,
    add_simulated_order,
    compute_instead,
    order_collectives,
    replay_collectives,
    resize_communication,
)
from ...converter.targets import lower_for_target
from ...schema.arguments import ASTRA_SIM, Target
from ...schema.graph import ExecutionGraph, TargetChanges
from .build_options import BuildOptions
from .build_rank import RankResult, RankTask, failure_summary, pickle_path
from .build_report import COLLECTIVES, EXCESS, RankSummary, content_of
from .job_plan import RankPlan

WITHOUT_PARTNER = "communications without a partner, as computation"
RESIZED = "communications of uneven size, given one size on all members"
SHRUNK = "collectives that ran beside others, given the bytes of the time they had alone"
HIDDEN = "collectives that ran beside others, given the time they had alone, which is less than their latency"
FITTED_TO_TRACED = (EXCESS, SHRUNK, HIDDEN)
"""The changes that keep time which the fitted network does not give: they hold for the ranks that were traced."""


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
            graph = _keep_plan(pickle.loads(pickle_path(build).read_bytes()), plan, build.options)
        else:
            # one that was up to date stands in its place
            graph = ExecutionGraph.read(str(build.waiting if build.waiting.exists() else build.graph))
        keeps_time = build.options.target == ASTRA_SIM and build.options.excess_time and not build.options.replay
        offset = plan.start_offset_ns if build.options.start_offsets else 0
        graph = lower_for_target(graph, build.options.target, plan.numbers, build.options.roofline, offset)
        graph.write(str(build.waiting))
        changes = graph.changes or TargetChanges()
        if EXCESS in changes.counts:
            changes.counts[COLLECTIVES] = plan.excess.collectives_ns / 1000
        if plan.sizes:
            changes.counts[RESIZED] = len(plan.sizes)
        if keeps_time and plan.excess.sizes:
            changes.counts[SHRUNK] = len(plan.excess.sizes)
        if keeps_time and plan.excess.hidden:
            changes.counts[HIDDEN] = len(plan.excess.hidden)
        if plan.unpartnered:
            changes.counts[WITHOUT_PARTNER] = len(plan.unpartnered)
            changes.notes.append(f"{len(plan.unpartnered)} {WITHOUT_PARTNER}")
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


def _keep_plan(graph: ExecutionGraph, plan: RankPlan, options: BuildOptions) -> ExecutionGraph:
    """Returns the graph with what all ranks of a simulated job agree on."""
    graph = resize_communication(compute_instead(graph, plan.unpartnered), plan.sizes)
    if options.replay:
        return order_collectives(graph, plan.order)
    graph = add_simulated_order(graph, plan.simulated_order)
    if not options.excess_time:
        return graph
    graph = replay_collectives(resize_communication(graph, plan.excess.sizes), plan.excess.hidden)
    return add_excess_time(graph, plan.excess.of_node)


def graph_path(folder: Path, ranks: tuple[int, ...], rank: int, target: Target) -> Path:
    """Returns the path of a rank's graph; for simulators, which want ranks without holes, ranks are numbered anew."""
    return folder / f"graph.{ranks.index(rank) if target == ASTRA_SIM else rank}.et"
