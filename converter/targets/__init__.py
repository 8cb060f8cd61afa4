"""Graphs made fit for one simulator."""

from .astra_sim import TargetReport, for_astra_sim
from .coalesced import separate_messages
from .select import ASTRA_SIM, GENERIC, TARGET_HELP, TARGETS, for_target

__all__ = [
    "ASTRA_SIM",
    "GENERIC",
    "TARGETS",
    "TARGET_HELP",
    "TargetReport",
    "for_astra_sim",
    "for_target",
    "separate_messages",
]
