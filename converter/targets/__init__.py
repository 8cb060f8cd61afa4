"""Graphs made fit for one simulator, and a whole job for those that run GOAL."""

from ...schema.choices import ASTRA_SIM, GENERIC, GOAL, TARGETS, Algorithm, Simulator, Target
from .astra_sim import TargetReport, for_astra_sim
from .coalesced import separate_messages
from .collectives import LEAST_BYTES
from .fitted_network import GIB, Network, fitted_network
from .goal import GoalOptions, GoalReport, write_goal
from .idle_rank import idle_rank
from .roofline import Roofline, roofline_of
from .select import for_target
from .transfer_cost import MESSAGE, RING, Cost, Factors, Transfer, fitted_factors

__all__ = [
    "ASTRA_SIM",
    "GENERIC",
    "GIB",
    "GOAL",
    "LEAST_BYTES",
    "MESSAGE",
    "RING",
    "TARGETS",
    "Algorithm",
    "Cost",
    "Factors",
    "GoalOptions",
    "GoalReport",
    "Network",
    "Roofline",
    "Simulator",
    "Target",
    "TargetReport",
    "Transfer",
    "fitted_factors",
    "fitted_network",
    "for_astra_sim",
    "for_target",
    "idle_rank",
    "roofline_of",
    "separate_messages",
    "write_goal",
]
