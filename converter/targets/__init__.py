"""Graphs made fit for one simulator (`lower_for_target`), and a whole job as a file in GOAL (`write_goal`)."""

from .algorithms import MessageNetwork
from .astra_sim import lower_for_target
from .communication import AWAITED, LEAST_BYTES, READY, separate_messages, simulated_as
from .goal_job import GoalOptions
from .goal_program import GoalReport, write_goal
from .times import EXCESS_TIME, START_OFFSET, Roofline, computes, idle_rank, roofline_of
