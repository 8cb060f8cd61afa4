"""Reads linked traces whoever linked them: what another linker leaves out and the ops still tell is added."""

from dataclasses import replace

import numpy as np

from ..schema.linked import LinkedTrace, op_parents, read_linked as read_linked_file
from ..schema.progress import Advanced, unseen
from .communication import (
    MANY_MEMBERS,
    UNREADABLE_GROUPS,
    collective_ops,
    groups_of_host,
    link_communications,
    process_groups,
    with_members,
)
from .readers import Role


def read_linked(path: str, advanced: Advanced = unseen) -> LinkedTrace:
    """Reads a linked trace, written by `write_linked` or by chakra_trace_link.

    Args:
        path: The file to read.
        advanced: Is called with the number of bytes read since the last call.

    Raises:
        DataError: The file is no linked trace.
    """
    linked = read_linked_file(path, advanced)
    return linked if linked.communications else _with_communications(linked)


def _with_communications(linked: LinkedTrace) -> LinkedTrace:
    """With what its communication kernels did, as the `record_param_comms` ops around their launches recorded it."""
    ops, activities = linked.ops, linked.activities
    collectives = collective_ops(ops, op_parents(ops), {role: {} for role in Role}, np.empty(0, np.int64))
    found, row = link_communications(collectives, activities, ops, linked.calls, activities.call_row, activities.op_row)
    unlisted: list[int] = []
    unreadable: list[int] = []
    groups = process_groups(groups_of_host(ops.name, ops.inputs, unreadable), unlisted)
    communications = with_members(found, groups, -1, unlisted)
    for what, rows in ((MANY_MEMBERS, unlisted), (UNREADABLE_GROUPS, unreadable)):
        if rows:
            linked.report.noted[what] = len(rows)
    return replace(
        linked,
        communications=communications,
        groups=groups,
        activities=replace(activities, communication_row=row),
    )
