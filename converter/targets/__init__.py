"""Graphs made fit for one simulator, and a whole job for those that run GOAL."""

from ...schema.choices import (
    ASTRA_SIM as ASTRA_SIM,
    GENERIC as GENERIC,
    GOAL as GOAL,
    TARGETS as TARGETS,
    Target as Target,
)
from .astra_sim import TargetReport as TargetReport, for_astra_sim as for_astra_sim
from .coalesced import separate_messages as separate_messages
from .collectives import LEAST_BYTES as LEAST_BYTES, simulated_as as simulated_as
from .goal import (
    GoalOptions as GoalOptions,
    GoalReport as GoalReport,
    MessageNetwork as MessageNetwork,
    write_goal as write_goal,
)
from .idle_rank import idle_rank as idle_rank
from .roofline import Roofline as Roofline, roofline_of as roofline_of
from .select import lower_for_target as lower_for_target
from .simulated_communication import AWAITED as AWAITED, EXCESS_TIME as EXCESS_TIME, READY as READY
from .start_offset import START_OFFSET as START_OFFSET
