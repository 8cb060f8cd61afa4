"""Reads what PyTorch's CUPTI backend writes in another way than Kineto: the names of copies and sets, nodes of launched
graphs, and the dependencies between these.

A dependency within a launch is a flow from the end of one activity to the start of another, on the lanes where viewers
show them. An event that a graph records takes no time: what follows it depends on what it follows.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...schema.columns import Bool, Int64, Lookup, Ragged, RowBuilder, group_ids
from ...schema.linked import Activities, integers, kineto
from ...schema.reasons import Reason
from .device_rows import DeviceTrace, RecordedDependencies, select

FIRST_DEPENDENCY = 1 << 40
"""The first id of flows between activities; those from launches have the smaller ids of their calls."""
BEGINS = "s"
NAMED_BY_ARGUMENTS = ("Memcpy", "Memset")
MEMORY_KINDS = ("Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")
"""By CUPTI's number."""
EVENT_IN_GRAPH = "graph_event_node"
EVENTS_IN_A_ROW = 64


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


class DependencyFlows:
    """The ends of flows between activities on their way: id, process, lane, time (ns), and whether the flow begins."""

    def __init__(self) -> None:
        self._ends = RowBuilder(5)

    def add(self, ends: Sequence[kineto.Event | kineto.ExactEvent], times: Int64) -> None:
        """Adds ends of flows."""
        numbers = (integers([getattr(end, name) for end in ends], -1) for name in ("id", "pid", "tid"))
        self._ends.extend(*numbers, times, np.array([end.ph == BEGINS for end in ends], np.int64))

    def resolve(self, device: DeviceTrace, lane: Int64) -> DeviceTrace:
        """Returns the trace with the dependencies that the flows stand for, without events in graphs.

        `lane` is where viewers show each activity. A flow whose end is that of no activity or of several is counted.
        """
        activities, columns = device.activities, np.stack(self._ends.columns())
        begin, end = (columns[:4, columns[4] == is_begin] for is_begin in (1, 0))
        # launch flows of merged traces may have such ids, too
        of_device = np.isin(begin[1], activities.process)
        target = Lookup(end[0], _rows_at(activities, lane, activities.start, end)).of(begin[0, of_device])
        source = _rows_at(activities, lane, activities.end, begin[:, of_device])
        found = (source >= 0) & (target >= 0) & (source != target)
        found &= activities.correlation[source] == activities.correlation[target]
        device.oddities[Reason.FLOWS_OF_NO_ACTIVITY] += int((~found).sum())
        is_event = activities.category.equal(EVENT_IN_GRAPH)
        source, target = _without_events(source[found], target[found], is_event)
        node, launch = activities.graph_node, activities.correlation[source]
        dependencies = RecordedDependencies(activities.process[source], launch, node[source], node[target])
        kept = select(device, activities=~is_event) if is_event.any() else device
        return replace(kept, dependencies=dependencies, ignored=device.ignored + int(is_event.sum()))


def _rows_at(activities: Activities, lane: Int64, time: Int64, ends: Int64) -> Int64:
    """Returns the node of a graph that begins or ends at each end of a flow, -1 for none and for several."""
    rows = np.flatnonzero(activities.graph_node >= 0)
    places = (activities.process, lane, time)
    number = group_ids(*(np.concatenate((at[rows], given)) for at, given in zip(places, ends[1:], strict=True)))
    own, asked = number[: len(rows)], number[len(rows) :]
    return np.where(np.bincount(own, minlength=len(number))[asked] == 1, Lookup(own, rows).of(asked), -1)


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
    between = ~is_event[source] & ~is_event[target]
    pairs = np.unique(np.stack((source[between], target[between])), axis=1)
    return pairs[0], pairs[1]


def within_launches(dependencies: RecordedDependencies, activities: Activities) -> tuple[Int64, Int64]:
    """Returns the sources and targets of dependencies between nodes of launched graphs, as far as both are there."""
    launched, ends = activities.correlation, (dependencies.source, dependencies.target)
    number = group_ids(
        np.concatenate((launched, dependencies.correlation, dependencies.correlation)),
        np.concatenate((activities.graph_node, *ends)),
    )
    row_of = Lookup(number[: len(launched)], np.arange(len(launched)))
    source, target = row_of.of(number[len(launched) :]).reshape(2, -1)
    is_there = (source >= 0) & (target >= 0)
    return source[is_there], target[is_there]
