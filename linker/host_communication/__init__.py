"""Communication by host threads (gloo): requests and transfers in, who waits for which transfer out."""

from .host_communication import host_communications
from .host_transfers import host_transfers
from .messages_in_flight import messages_in_flight
from .transfer_waits import transfer_waits

__all__ = [
    "host_communications",
    "host_transfers",
    "messages_in_flight",
    "transfer_waits",
]
