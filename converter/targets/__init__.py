"""Graphs made fit for one simulator, and a whole job for those that run GOAL.

A generic graph in, one for the target out (`lower_for_target`); for ASTRA-sim `astra_sim.PASSES` lists what is done and
why. Graphs of all ranks of a job in, one file in the GOAL language out, which LogGOPSim and ATLAHS run (`write_goal`).
"""

from .algorithms import MessageNetwork
from .astra_sim import lower_for_target
from .communication import AWAITED, LEAST_BYTES, READY, separate_messages, simulated_as
from .goal_job import GoalOptions
from .goal_program import GoalReport, write_goal
from .times import EXCESS_TIME, START_OFFSET, Roofline, computes, idle_rank, roofline_of
