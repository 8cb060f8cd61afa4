"""Reads what PyTorch's CUPTI backend writes in another way than Kineto: names of copies, and dependencies in graphs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...schema.columns import Bool, Int64, Ragged, isin
from ...schema.device_formats import EVENT_IN_GRAPH, MEMORY_KINDS
from ...schema.linked import Activities, kineto
from ...schema.reasons import Reason
from .device_rows import DeviceTrace, RecordedDependencies, select
from .flows import CATEGORY, CORRELATED, ID, IS_END, PROCESS, THREAD, TIME, Flows, rows_at
from .kineto_rows import FIRST_DEPENDENCY

NAMED_BY_ARGUMENTS = ("Memcpy", "Memset")
EVENTS_IN_A_ROW = 64
Threads = Callable[[Int64], Int64]
"""Returns the threads that rows had before a merge, which shows rows that cross on lanes of their own."""


def activity_name(event: kineto.Event | kineto.ExactEvent) -> str:
    """Returns the name of an activity, for a copy or a set as Kineto names it.

    >>> args = kineto.Args(copy_kind="HtoD", copy_source="pageable", copy_target="device")
    >>> activity_name(kineto.Event("X", name="Memcpy", args=args))
    'Memcpy HtoD (Pageable -> Device)'
    """
    args = event.args
    if event.name not in NAMED_BY_ARGUMENTS or args is None:
        return event.name or ""
    if args.copy_kind is not None:
        return f"{event.name} {args.copy_kind} ({_memory(args.copy_source)} -> {_memory(args.copy_target)})"
    return event.name if args.set_kind is None else f"{event.name} ({_memory(args.set_kind)})"


def _memory(kind: Any) -> str:
    is_number = isinstance(kind, int) and 0 <= kind < len(MEMORY_KINDS)
    return MEMORY_KINDS[kind] if is_number else str(kind or MEMORY_KINDS[0]).replace("_", " ").title()


def with_dependencies(device: DeviceTrace, flows: Flows, thread: Int64, pad: bool, recorded: Threads) -> DeviceTrace:
    """Returns the trace with the dependencies by flows; what follows events of graphs depends on what they follow."""
    activities = device.activities
    in_graph = np.flatnonzero(activities.graph_node >= 0)

    def between(points: Int64) -> Bool:
        # launch flows of merged traces may have such ids, too
        is_graphs: Bool = (points[CATEGORY] == CORRELATED) & (points[ID] >= FIRST_DEPENDENCY)
        return is_graphs & isin(points[PROCESS], activities.process)

    def nodes_at(time: Int64, points: Int64) -> Int64:
        places = [column[in_graph] for column in (activities.process, recorded(thread), time)]
        return np.append(in_graph, -1)[rows_at(places, (points[PROCESS], recorded(points[THREAD]), points[TIME]))]

    begin, end = flows.pairs(pad)
    both = between(begin) & between(end)
    source, target = nodes_at(activities.end, begin[:, both]), nodes_at(activities.start, end[:, both])
    found = (source >= 0) & (target >= 0) & (source != target)
    found &= activities.correlation[source] == activities.correlation[target]
    ends = flows.rows(pad)
    device.oddities[Reason.FLOWS_OF_NO_ACTIVITY] += int((between(ends) & (ends[IS_END] == 0)).sum() - found.sum())
    is_event = activities.category.equal(EVENT_IN_GRAPH)
    source, target = _without_events(source[found], target[found], is_event)
    node, launch = activities.graph_node, activities.correlation[source]
    dependencies = RecordedDependencies(activities.process[source], launch, node[source], node[target])
    kept = select(device, activities=~is_event) if is_event.any() else device
    return replace(kept, dependencies=dependencies, ignored=device.ignored + int(is_event.sum()))


def _without_events(source: Int64, target: Int64, is_event: Bool) -> tuple[Int64, Int64]:
    """Returns the dependencies with those through events from what these follow to what follows them."""
    order = np.argsort(source, kind="stable")
    following = Ragged.grouped(source[order], target[order], len(is_event))
    for _ in range(EVENTS_IN_A_ROW):
        through = is_event[target]
        if not through.any():
            break
        after = following.take(target[through])
        source = np.concatenate((source[~through], np.repeat(source[through], after.lengths())))
        target = np.concatenate((target[~through], after.values))
        source, target = np.unique(np.stack((source, target)), axis=1)
    between = ~is_event[source] & ~is_event[target]
    return source[between], target[between]


def within_launches(dependencies: RecordedDependencies, activities: Activities) -> tuple[Int64, Int64]:
    """Returns the sources and targets of dependencies between nodes of launched graphs, as far as both are there."""
    nodes, launch = (activities.correlation, activities.graph_node), dependencies.correlation
    source, target = (rows_at(nodes, (launch, ends)) for ends in (dependencies.source, dependencies.target))
    is_there = (source >= 0) & (target >= 0)
    return source[is_there], target[is_there]
