"""Graphs made fit for one simulator."""

from ..options import ASTRA_SIM, GENERIC, Target
from .astra_sim import TargetReport, for_astra_sim
from .coalesced import separate_messages
from .fitted_network import MESSAGE, Network, Transfer, fitted_network
from .select import TARGET_HELP, TARGETS, for_target

__all__ = [
    "ASTRA_SIM",
    "GENERIC",
    "MESSAGE",
    "TARGETS",
    "TARGET_HELP",
    "Network",
    "Target",
    "TargetReport",
    "Transfer",
    "fitted_network",
    "for_astra_sim",
    "for_target",
    "separate_messages",
]
