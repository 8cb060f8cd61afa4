"""Finds which communication each kernel and op did, and in which process group, from the recorded arguments.

Communication by host threads (gloo): requests and transfers in, who waits for which transfer out.
"""

from .arguments import WAIT, ProcessGroups, from_device, from_host, groups_of_host, members
from .collectives import (
    RECORD, CollectiveOps, awaited_collectives, collective_ops, is_communication_kernel, link_communications,
)  # fmt: skip
from .transfers import (
    TRANSFER, host_communications, host_transfers, messages_in_flight, transfer_waits, transfers_of_other_steps,
)  # fmt: skip
