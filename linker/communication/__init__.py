"""Finds which communication each kernel and op did, in which group, and who waits for transfers of the host (gloo)."""

from .arguments import WAIT, ProcessGroups, from_device, from_host, groups_of_host, members
from .collectives import (
    RECORD, CollectiveOps, awaited_collectives, collective_ops, is_communication_kernel, link_communications,
)  # fmt: skip
from .transfers import (
    TRANSFER, Transfers, host_communications, host_transfers, messages_in_flight, transfer_waits, transfers_of_other_steps,
)  # fmt: skip
