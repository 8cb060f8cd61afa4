"""Makes a graph that both generations of ASTRA-sim run to the end, and reports what had to change for that.

The graph gets the types, attributes and durations that the simulator reads, and nothing on which it stops, hangs or
loses time.

Makes the graph for a target from a generic one.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...schema.arguments import ASTRA_SIM, GOAL, WHOLE_JOB, Target
from ...schema.columns import NodeNumbers, Ragged
from ...schema.comm_groups import LARGEST_JOB, RankList
from ...schema.errors import DataError, Remedy
from ...schema.graph import DependencyKind, ExecutionGraph, NodeType, TargetChanges
from ..device_only import COMMUNICATION, SILENT
from ..ranks import recorded_groups
from ..rewiring import control_edges, data_edges, edited_graph, lanes_of, spliced, used
from .added_time import (
    delays_before_communication,
    waits_before_known_work,
    with_excess_time,
    with_node_after_messages,
    with_start_offset,
)
from .communication import (
    complete_messages,
    compute_unplayable,
    in_common_order,
    lower_collectives,
    name_groups,
    pad_all_gathers,
    separate_messages,
    with_ready_messages,
)
from .limits import WIDE, Roofline, SerialTime, for_roofline, implied, in_order_of_ends, serialise, widest_ready_set

LARGEST_NUMBER = 2_147
"""The simulator's stream numbers begin at a million times the group's number, in 32 bits."""

NUMBERED_LOCALLY = (
    "groups are numbered as this rank knows them; build all ranks together, or give each one file of groups"
)


@dataclass(slots=True)
class TargetReport:
    """What changed for the target: nodes by reason, µs where the name says so, the numbers of groups, and notes in
    words.
    """

    removed: int
    lowered: dict[str, int]
    as_computation: dict[str, int]
    padded: int
    control_removed: int
    start_offset_us: float
    excess_us: float
    ready_messages: int
    idle_time_cut_us: float
    host_delay_cut_us: float
    delay_nodes: int
    without_work: int
    most_nodes_ready_at_once: int
    groups: dict[RankList, int]
    notes: list[str]


def for_astra_sim(
    graph: ExecutionGraph,
    groups: Mapping[RankList, int] | None = None,
    roofline: Roofline | None = None,
    start_offset_ns: int = 0,
) -> tuple[ExecutionGraph, TargetReport]:
    """Returns the graph for ASTRA-sim, and the changes; the graph passed in stays as it is. O((n + e) log n).

    Args:
        graph: a generic graph.
        groups: the numbers of all rank lists of the job.
        roofline: the peaks of the simulator's roofline mode. Computation of known work then takes the time of that
            work, all else its measured time.
        start_offset_ns: how much later than the first rank this one began.

    Raises:
        DataError: the graph has no nodes, a dependency on a missing node or a cycle, or a group that `groups` lacks.
    """
    graph = separate_messages(graph)
    world = _all_ranks(graph)
    played = _played_nodes(graph)
    removed = len(graph) - len(played)
    groups_of_graph = recorded_groups(played)
    complete_messages(played)
    lowered = lower_collectives(played)
    as_computation = compute_unplayable(played, groups_of_graph, world)
    padded = pad_all_gathers(played)
    group_numbers = name_groups(played, groups_of_graph, groups, world)
    unknown_groups = int(((played.type == NodeType.COMM_COLL) & (groups_of_graph.of_node < 0)).sum())
    played.attributes["is_cpu_op"] = np.where(np.isin(played.type, COMMUNICATION), 0, played.integers("is_cpu_op", 0))
    played.attributes = used(played.attributes) | {"data_dep_kinds": played.attributes["data_dep_kinds"]}
    played, delay_nodes = delays_before_communication(played)
    played, waits = waits_before_known_work(played) if roofline else (played, 0)
    played = in_common_order(played)
    serial = serialise(played)
    played, ready_messages = with_ready_messages(played)
    played, excess_us = with_excess_time(played)
    played = with_start_offset(with_node_after_messages(in_order_of_ends(played)), start_offset_ns)
    report = TargetReport(
        removed=removed,
        lowered=dict(lowered),
        as_computation=dict(as_computation),
        padded=padded,
        control_removed=_drop_implied_control(played),
        start_offset_us=start_offset_ns / 1000,
        excess_us=excess_us,
        ready_messages=ready_messages,
        idle_time_cut_us=serial.idle_cut / 1000,
        host_delay_cut_us=serial.delay_cut / 1000,
        delay_nodes=delay_nodes + waits,
        without_work=for_roofline(played, roofline),
        most_nodes_ready_at_once=widest_ready_set(played, data_edges(played)),
        groups=group_numbers,
        notes=[],
    )
    report.notes += _notes(played, report, serial, unknown_groups, roofline)
    if groups is None and group_numbers:
        report.notes.append(NUMBERED_LOCALLY)
    return played, report


def _all_ranks(graph: ExecutionGraph) -> RankList | None:
    """Returns the ranks of the job by the metadata, None if their number is not known or too large."""
    size = graph.number("world_size", -1)
    return (tuple(range(size)) if size <= LARGEST_JOB else None) or None


def _played_nodes(graph: ExecutionGraph) -> ExecutionGraph:
    """Returns the graph without the nodes that no simulator runs. Raises DataError where there are no others."""
    silent = np.isin(graph.type, SILENT)
    if silent.all():
        raise DataError("the graph has no node that a simulator runs; was the trace recorded while the model ran?")
    data, control = spliced(data_edges(graph), silent), spliced(control_edges(graph), silent)
    data = data._replace(kind=data.kind & ~int(DependencyKind.CALL_ORDER))
    played = edited_graph(graph, NodeNumbers(np.flatnonzero(~silent)), data, control)
    played.metadata["target"] = "astra-sim"
    return played


def _drop_implied_control(graph: ExecutionGraph) -> int:
    """Removes control dependencies that data dependencies do not imply, in place; returns their number."""
    control = control_edges(graph)
    is_kept = implied(control, data_edges(graph), lanes_of(graph))
    graph.ctrl_deps = Ragged.grouped(control.target[is_kept], control.source[is_kept] + 1, len(graph))
    return int((~is_kept).sum())


def _notes(
    graph: ExecutionGraph, report: TargetReport, serial: SerialTime, unknown_groups: int, roofline: Roofline | None
) -> list[str]:
    """Returns sentences about what the user should know."""
    us = {name: f"{value / 1000:.1f} µs" for name, value in serial._asdict().items()}
    return [
        note
        for applies, note in (
            (unknown_groups, f"{unknown_groups} collectives without recorded ranks are taken as ones of all ranks"),
            (
                max(report.groups.values(), default=0) > LARGEST_NUMBER,
                f"a group has a number above {LARGEST_NUMBER}, more than the simulator can bear",
            ),
            (
                serial.host_overlap,
                f"{us['host_overlap']} of host work at the same time on several threads counts once, as one host "
                "node runs at a time",
            ),
            (
                serial.device_overlap,
                f"{us['device_overlap']} of device work at the same time on several streams counts once, as one runs "
                "at a time",
            ),
            (
                serial.communication_overlap,
                f"{us['communication_overlap']} of communication beside other communication counts once, as a rank "
                "runs one send or collective at a time",
            ),
            (
                report.most_nodes_ready_at_once > WIDE,
                f"up to {report.most_nodes_ready_at_once} nodes are ready at once; the time to simulate grows with the "
                "square of that",
            ),
            (
                report.without_work and "num_ops" in graph.attributes,
                f"operations or bytes of {report.without_work} computations are not known, so "
                + (
                    "they take their measured time"
                    if roofline
                    else f"the graph is for roofline mode only with {Remedy.ROOFLINE}"
                ),
            ),
        )
        if applies
    ]


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
        raise DataError(*WHOLE_JOB)
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
