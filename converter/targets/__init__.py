"""Graphs made fit for one simulator, and a whole job for those that run GOAL.

A generic graph in, one for the target out (`lower_for_target`); for ASTRA-sim `astra_sim.PASSES` lists what is done and
why. Graphs of all ranks of a job in, one file in the GOAL language out, which LogGOPSim and ATLAHS run (`write_goal`).
"""

from .algorithms import MessageNetwork as MessageNetwork
from .astra_sim import for_astra_sim as for_astra_sim, lower_for_target as lower_for_target
from .communication import (
    AWAITED as AWAITED,
    LEAST_BYTES as LEAST_BYTES,
    READY as READY,
    separate_messages as separate_messages,
    simulated_as as simulated_as,
)
from .goal_job import GoalOptions as GoalOptions
from .goal_program import GoalReport as GoalReport, write_goal as write_goal
from .times import (
    EXCESS_TIME as EXCESS_TIME,
    START_OFFSET as START_OFFSET,
    Roofline as Roofline,
    computes as computes,
    idle_rank as idle_rank,
    roofline_of as roofline_of,
)
