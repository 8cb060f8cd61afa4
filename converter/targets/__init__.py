"""Graphs made fit for one simulator, and a whole job for those that run GOAL."""

from ..options import ASTRA_SIM, GENERIC, GOAL, Target
from .astra_sim import TargetReport, for_astra_sim
from .coalesced import separate_messages
from .fitted_network import MESSAGE, Network, Transfer, fitted_network
from .goal import Algorithm, GoalOptions, GoalReport, Simulator, write_goal
from .idle_rank import idle_rank
from .roofline import Roofline, roofline_of
from .select import TARGET_HELP, TARGETS, WHOLE_JOB, for_target

__all__ = [
    "ASTRA_SIM",
    "GENERIC",
    "GOAL",
    "MESSAGE",
    "TARGETS",
    "TARGET_HELP",
    "WHOLE_JOB",
    "Algorithm",
    "GoalOptions",
    "GoalReport",
    "Network",
    "Roofline",
    "Simulator",
    "Target",
    "TargetReport",
    "Transfer",
    "fitted_network",
    "for_astra_sim",
    "for_target",
    "idle_rank",
    "roofline_of",
    "separate_messages",
    "write_goal",
]
