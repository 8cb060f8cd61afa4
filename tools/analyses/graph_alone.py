"""Makes a rank for the analyses from its execution graph: with activities and communication, without ops and calls.

Analyses that need ops or calls then return no rows and say so.
"""

from dataclasses import fields
from typing import Any

import numpy as np

from ...converter.device_only import HOST_TIME_AFTER
from ...converter.ranks import recorded_groups
from ...schema.columns import BytesColumn, CallRows, Categorical, CommunicationRows, Int64, OpRows
from ...schema.graph import DEVICE_NAME, CollectiveType, ExecutionGraph, NodeType
from ...schema.linked import (
    Activities,
    Calls,
    Communication,
    DeviceWaits,
    HostWaits,
    LinkedTrace,
    LinkReport,
    Ops,
    ThreadHandoffs,
    TraceInfo,
    integer,
)
from ..replay import COMMUNICATION_TYPES
from .rank_trace import RankTrace

NONE: Int64 = np.empty(0, np.int64)
NO_TEXTS = Categorical.of(())
EMPTY: dict[str, Any] = {
    "name": NO_TEXTS,
    "op_schema": NO_TEXTS,
    "known_by": NO_TEXTS,
    "inputs": BytesColumn.of(()),
    "outputs": BytesColumn.of(()),
    "extra": {},
    "module": None,
    "python_function": None,
}
NOTE = "an execution graph alone: launch calls and host ops are not known, nor what follows from them"


def rank_of_graph(graph: ExecutionGraph) -> RankTrace:
    """Returns the rank of a graph, 0 if none is recorded. Activities have their recorded, untrimmed durations."""
    rows = activity_rows(graph)
    communicates = np.isin(graph.type[rows], COMMUNICATION_TYPES)
    linked = LinkedTrace(
        info=_info(graph.metadata),
        ops=_empty(Ops),
        calls=_empty(Calls),
        activities=_activities(graph, rows, np.where(communicates, np.cumsum(communicates) - 1, -1)),
        device_waits=_empty(DeviceWaits),
        host_waits=_empty(HostWaits),
        handoffs=_empty(ThreadHandoffs),
        communications=_communications(graph, rows[communicates]),
        groups=[],
        report=LinkReport(activities=len(rows), notes=[NOTE, *graph.notes]),
    )
    return RankTrace(max(linked.info.rank, 0), linked, graph)


def activity_rows(graph: ExecutionGraph) -> Int64:
    """Returns the rows of the nodes that are activities; not of those that only wait until the rank begins or ends."""
    only_waits = graph.name.equal(HOST_TIME_AFTER) | graph.is_start_offset
    return np.flatnonzero(graph.is_activity & (graph.type != NodeType.METADATA) & ~only_waits)


def _info(recorded: dict[str, str | int]) -> TraceInfo:
    return TraceInfo(
        pid=integer(recorded.get("pid"), -1),
        rank=integer(recorded.get("rank"), -1),
        world_size=integer(recorded.get("world_size"), -1),
        base_time_ns=integer(recorded.get("base_time_ns"), 0),
        source_host=str(recorded.get("source_host", "")),
        source_device=str(recorded.get("source_device", "")),
        devices={
            integer(key.removeprefix(DEVICE_NAME), -1): str(name)
            for key, name in recorded.items()
            if key.startswith(DEVICE_NAME)
        },
    )


def _empty(table: type) -> Any:
    return table(**{column.name: EMPTY.get(column.name, NONE) for column in fields(table)})


def _activities(graph: ExecutionGraph, rows: Int64, communication_row: Int64) -> Activities:
    start = graph.start_ns[rows]
    unknown = np.full(len(rows), -1)
    return Activities(
        id=graph.id[rows],
        name=graph.name.take(rows),
        category=graph.texts("cat").take(rows),
        device=graph.integers("device", -1)[rows],
        stream=graph.integers("stream", -1)[rows],
        start=start,
        end=start + (graph.duration_ns + graph.integers("overlap_ns", 0))[rows],
        correlation=graph.integers("correlation", 0)[rows],
        graph_node=unknown,
        size=unknown,
        bandwidth=unknown,
        call_row=CallRows(unknown),
        op_row=OpRows(unknown),
        communication_row=CommunicationRows(communication_row),
        module=graph.texts("module").take(rows) if "module" in graph.attributes else None,
        python_function=graph.texts("python_function").take(rows) if "python_function" in graph.attributes else None,
    )


def _communications(graph: ExecutionGraph, rows: Int64) -> list[Communication]:
    """Returns the communications of these nodes. Their sizes are in bytes, which count as elements without a dtype."""
    recorded, named, purpose = graph.texts("pg_recorded"), graph.texts("pg_name"), graph.texts("pg_desc")
    groups = recorded_groups(graph)
    members = [*groups.lists, ()]
    names = ("comm_type", "comm_size", "comm_seq", "comm_src", "comm_dst", "comm_tag")
    columns = (graph.integers(name, -1)[rows].tolist() for name in names)
    return [
        Communication(
            name=_name(graph.type[row], kind),
            in_elements=size,
            group=recorded[row] or named[row],
            description=purpose[row],
            ranks=list(members[groups.of_node[row]]),
            sequence=sequence,
            source=source,
            target=target,
            tag=tag,
        )
        for row, kind, size, sequence, source, target, tag in zip(rows.tolist(), *columns, strict=True)
    ]


def _name(node: int, kind: int) -> str:
    """Returns the name that traces record: `all_reduce`, `send`."""
    is_collective = node == NodeType.COMM_COLL and kind in CollectiveType.__members__.values()
    return (CollectiveType(kind).name if is_collective else NodeType(node).name.removeprefix("COMM_")).lower()
