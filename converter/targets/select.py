"""Makes the graph for a target from a generic one."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...schema.choices import ASTRA_SIM, GOAL, WHOLE_JOB, Target
from ...schema.comm_groups import RankList
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph, TargetChanges
from ..ranks import recorded_groups
from .astra_sim import for_astra_sim
from .group_names import name_groups
from .roofline import Roofline


def lower_for_target(
    graph: ExecutionGraph,
    target: Target,
    groups: Mapping[RankList, int] | None = None,
    roofline: Roofline | None = None,
    start_offset_ns: int = 0,
) -> ExecutionGraph:
    """Returns the graph for one of TARGETS, with the changes that were made for it in its `changes`.

    With `groups`, the number of each rank list, collectives name their group by its number; a generic graph otherwise
    keeps the recorded names. `roofline` are the peaks of ASTRA-sim's roofline mode, if that is to run. For ASTRA-sim,
    which starts all ranks at once, the rank begins after its `start_offset_ns`. Raises DataError if the target cannot
    use the graph, or `groups` lacks one of its groups.
    """
    if target == GOAL:
        raise DataError(WHOLE_JOB)
    if target == ASTRA_SIM:
        played, report = for_astra_sim(graph, groups, roofline=roofline, start_offset_ns=start_offset_ns)
        counts = {name: value for name, value in dataclasses.asdict(report).items() if name not in ("groups", "notes")}
        return dataclasses.replace(played, report=graph.report, changes=TargetChanges(_flat(counts), report.notes))
    graph = dataclasses.replace(graph, attributes=dict(graph.attributes), changes=TargetChanges())
    if groups is not None:
        name_groups(graph, recorded_groups(graph), groups, None)
    return graph


def _flat(changes: dict[str, Any]) -> dict[str, float]:
    """Returns counts by reason one level up; names that end in `_us` are times."""
    flat = {
        f"{name}: {reason}": count
        for name, counts in changes.items()
        for reason, count in (counts.items() if isinstance(counts, dict) else (("", counts),))
    }
    return {
        name.removesuffix(": ").replace("_us", ", µs").replace("_", " "): count for name, count in flat.items() if count
    }
