"""Communication by host threads (gloo): requests and transfers in, who waits for which transfer out."""

from .host_communication import host_communications as host_communications
from .host_transfers import host_transfers as host_transfers
from .messages_in_flight import messages_in_flight as messages_in_flight
from .transfer_waits import transfer_waits as transfer_waits
