"""Collectives and messages: arguments as recorded in, who communicates what in which process group out."""

from .communication import (
    RECORD,
    CollectiveOps,
    awaited_collectives,
    collective_ops,
    is_communication_kernel,
    link_communications,
)
from .process_groups import MANY_MEMBERS, UNREADABLE_GROUPS, groups_of_host, process_groups, with_members
from .recorded_arguments import dtype_of, elements, from_device, from_host, members

__all__ = [
    "MANY_MEMBERS",
    "RECORD",
    "UNREADABLE_GROUPS",
    "CollectiveOps",
    "awaited_collectives",
    "collective_ops",
    "dtype_of",
    "elements",
    "from_device",
    "from_host",
    "groups_of_host",
    "is_communication_kernel",
    "link_communications",
    "members",
    "process_groups",
    "with_members",
]
