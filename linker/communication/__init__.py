"""Finds which communication each kernel and op did, and in which process group, from the recorded arguments.

Communication by host threads (gloo): requests and transfers in, who waits for which transfer out.
"""

from .collective_ops import RECORD as RECORD, CollectiveOps as CollectiveOps, collective_ops as collective_ops
from .communication import (
    awaited_collectives as awaited_collectives,
    is_communication_kernel as is_communication_kernel,
    link_communications as link_communications,
)
from .host_communication import host_communications as host_communications
from .host_transfers import host_transfers as host_transfers
from .messages_in_flight import messages_in_flight as messages_in_flight
from .process_groups import (
    groups_of_host as groups_of_host,
    process_groups as process_groups,
    with_members as with_members,
)
from .recorded_arguments import (
    dtype_of as dtype_of,
    elements as elements,
    from_device as from_device,
    from_host as from_host,
    members as members,
)
from .transfer_waits import transfer_waits as transfer_waits
