"""What a rank communicated, in the order in which it issued it, from its linked trace."""

from typing import NamedTuple

import numpy as np

from ...converter.building import meaning
from ...converter.ranks import Group, GroupNames
from ...schema.columns import ABSENT, Int64, nearest
from ...schema.graph import NodeType
from ...schema.linked import Communication, LinkedTrace, Ops, op_parents

RECORD, ANNOTATION = "record_param_comms", "nccl:"


class Issued(NamedTuple):
    """One collective or message of a rank and the op that asked for it; `group` is None for messages and if unknown."""

    node: NodeType
    group: Group | None
    recorded: Communication
    op: str


def issued_by(linked: LinkedTrace) -> list[Issued]:
    """Returns what a rank communicates in the order in which it issued it."""
    names, issued = GroupNames(), list[Issued]()
    for number, op in _sort_by_issue(linked):
        communication = linked.communications[number]
        for comm in communication.coalesced or [communication]:
            meant = meaning(comm, "")
            node = meant.node if meant else NodeType.COMM_COLL
            has_group = node is NodeType.COMM_COLL and comm.ranks
            group = names.group_of(comm.ranks, comm.group, comm.description) if has_group else None
            issued.append(Issued(node, group, comm, op))
    return issued


def _sort_by_issue(linked: LinkedTrace) -> list[tuple[int, str]]:
    """Returns rows of `linked.communications` in the order of issue, each with the name of the op that asked for it.

    Where an activity has no launch call, in the order in which they started.
    """
    activities, ops = linked.activities, linked.ops
    on_device = np.flatnonzero(activities.communication_row >= 0)
    on_host = np.flatnonzero((ops.communication_row >= 0) & (ops.start != ABSENT))
    call = activities.call_row[on_device]
    issued = linked.calls.start[call] if (call >= 0).all() else activities.start[on_device]
    number = np.concatenate((activities.communication_row[on_device], ops.communication_row[on_host]))
    asked_by = _asked_by(ops, np.concatenate((activities.op_row[on_device], on_host)))
    order = np.argsort(np.concatenate((issued, ops.start[on_host])), kind="stable")
    # several kernels may do one communication
    _, first = np.unique(number[order], return_index=True)
    rows = order[np.sort(first)].tolist()
    return [(int(number[row]), ops.name[asked_by[row]] if asked_by[row] >= 0 else "") for row in rows]


def _asked_by(ops: Ops, row: Int64) -> Int64:
    """Returns for each op itself, or the nearest one around it that is no mere record of communication."""
    is_record = ops.name.where(lambda name: name == RECORD or name.startswith(ANNOTATION))
    return np.append(nearest(~is_record, op_parents(ops)), -1)[row]
