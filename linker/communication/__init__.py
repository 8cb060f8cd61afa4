"""Finds which communication each kernel and op did, and in which process group, from the recorded arguments.

Communication by host threads (gloo): requests and transfers in, who waits for which transfer out.
"""

from .arguments import (
    elements as elements,
    from_device as from_device,
    from_host as from_host,
    groups_of_host as groups_of_host,
    members as members,
    process_groups as process_groups,
    with_members as with_members,
)
from .collectives import (
    RECORD as RECORD,
    CollectiveOps as CollectiveOps,
    awaited_collectives as awaited_collectives,
    collective_ops as collective_ops,
    is_communication_kernel as is_communication_kernel,
    link_communications as link_communications,
)
from .transfers import (
    host_communications as host_communications,
    host_transfers as host_transfers,
    messages_in_flight as messages_in_flight,
    transfer_waits as transfer_waits,
)
