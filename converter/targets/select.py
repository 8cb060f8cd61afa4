"""The targets that a graph can be made for, and the one step that makes it so."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...schema.comm_groups import RankList
from ...schema.graph import ExecutionGraph
from ..ranks import recorded_groups
from .astra_sim import for_astra_sim
from .collectives import LOWERED
from .groups import name_groups

GENERIC, ASTRA_SIM = "generic", "astra-sim"
TARGETS = (GENERIC, ASTRA_SIM)
TARGET_HELP = (
    "who runs the graph. astra-sim: attributes as it reads them, no metadata, groups by number; "
    + ", ".join(f"{kind.name.lower()} as {instead.name.lower()}" for kind, instead in LOWERED.items())
    + "; messages launched together one by one; what it would stop or hang at as computation of the measured time, counted"
)


class Made(NamedTuple):
    """A graph for a target, what the target made different by what it is, without zeros, and remarks in words."""

    graph: ExecutionGraph
    report: dict[str, float]
    remarks: list[str]


def for_target(graph: ExecutionGraph, target: str, groups: Mapping[RankList, int] | None) -> Made:
    """The graph for one of TARGETS. With `groups` collectives name their group by its number; a generic graph without keeps the
    recorded names."""
    if target == ASTRA_SIM:
        played, report = for_astra_sim(graph, groups)
        counts = {
            name: value for name, value in dataclasses.asdict(report).items() if name not in ("groups", "remarks")
        }
        return Made(played, _flat(counts), report.remarks)
    if groups is not None:
        name_groups(graph, recorded_groups(graph), groups, None)
    return Made(graph, {}, [])


def _flat(changes: dict[str, Any]) -> dict[str, float]:
    """Counts by reason one level up."""
    flat = {
        f"{name}: {reason}": count
        for name, counts in changes.items()
        for reason, count in (counts.items() if isinstance(counts, dict) else (("", counts),))
    }
    return {name.removesuffix(": ").replace("_", " "): count for name, count in flat.items() if count}
