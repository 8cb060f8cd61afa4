"""Reads linked traces of any linker, and adds the communications that another one leaves out."""

from dataclasses import replace

import numpy as np

from ..schema.arguments import InputFile, path_of
from ..schema.columns import OpRows
from ..schema.linked import LinkedTrace, op_parents, read_linked as read_linked_file
from ..schema.progress import OnProgress, unseen
from ..schema.reasons import Reason
from .communication import collective_ops, groups_of_host, link_communications, process_groups, with_members
from .readers import Role


def read_linked(path: InputFile, on_progress: OnProgress = unseen) -> LinkedTrace:
    """Reads a linked trace, written by `write_linked` or by chakra_trace_link.

    Args:
        path: The file to read, or the open file.
        on_progress: Is called with the number of bytes read since the last call.

    Raises:
        DataError: The file is no linked trace.
    """
    with path_of(path) as path:
        linked = read_linked_file(path, on_progress)
    return linked if linked.communications else _with_communications(linked)


def _with_communications(linked: LinkedTrace) -> LinkedTrace:
    """Adds what its communication kernels did, as the `record_param_comms` ops that enclose their
    launches recorded it.
    """
    ops, activities = linked.ops, linked.activities
    no_device_ops = OpRows(np.empty(0, np.int64))
    collectives = collective_ops(ops, op_parents(ops), {role: {} for role in Role}, no_device_ops)
    recorded, row = link_communications(collectives, activities, linked.calls)
    unlisted: list[int] = []
    unreadable: list[int] = []
    groups = process_groups(groups_of_host(ops.name, ops.inputs, unreadable), unlisted)
    communications = with_members(recorded, groups, -1, unlisted)
    found = {Reason.MANY_MEMBERS: len(unlisted), Reason.UNREADABLE_GROUPS: len(unreadable)}
    linked.report.oddities.update({reason: count for reason, count in found.items() if count})
    return replace(
        linked,
        communications=communications,
        groups=groups,
        activities=replace(activities, communication_row=row),
    )
