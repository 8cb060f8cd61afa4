"""How long a collective or message takes in a network: its steps and bytes, times what each takes there."""

import numpy as np

from .fitted_network import GIB, Link, Network
from .simulated_cost import STEPS, step_cost
from .transfer_cost import Transfer
from .two_dimensions import costs


def network_time_ns(network: Network, transfer: Transfer) -> float | None:
    """Returns how long the network takes for a transfer; None for a kind that the simulator has no algorithm for.

    >>> network_time_ns(Network(bandwidth_gb_s=1, latency_ns=500), Transfer(0, members=2, size=GIB, ns=0))
    1000002000.0
    """
    if transfer.kind not in STEPS:
        return None
    two = network.two_dimensions
    if two is None:
        steps, size = step_cost(transfer.kind, transfer.members, transfer.size, network.direct)
        return steps * 2 * network.latency_ns + size * _byte_ns(network)
    cost = costs([transfer], two.within.ranks, two.within.ranks * two.across.ranks, two.direct)[0]
    links = two.within, two.across
    return float(cost @ np.array([[2 * link.latency_ns, _byte_ns(link)] for link in links]).ravel())


def _byte_ns(link: Network | Link) -> float:
    return 1e9 / GIB / link.bandwidth_gb_s
