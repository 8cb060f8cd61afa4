"""Graphs made fit for one simulator, and a whole job for those that run GOAL.

Graphs of all ranks of a job in, one file in the GOAL language out, which LogGOPSim and ATLAHS run.

`rank_communication` is what all ranks have to know of one; `job` matches it over ranks and chooses an algorithm for
each match, and `algorithms` says what messages that means. `message_costs` fits a network to these, `excess_time` says
what they took beyond it, and `links` which of them share a link. `rank_program` makes operations of a rank's graph and
its `rank_messages`, on the cpus of `cpus`; `cpu_crossing` adds what LogGOPSim needs, and `goal_file` writes the lines
of `operations`.

What graphs need for a simulator that models communication, not for one that gives every node its measured time.
"""

from .added_time import (
    EXCESS_TIME as EXCESS_TIME,
    START_OFFSET as START_OFFSET,
    idle_rank as idle_rank,
    with_excess_time as with_excess_time,
)
from .algorithms import MessageNetwork as MessageNetwork
from .astra_sim import (
    TargetReport as TargetReport,
    for_astra_sim as for_astra_sim,
    lower_for_target as lower_for_target,
)
from .communication import (
    AWAITED as AWAITED,
    LEAST_BYTES as LEAST_BYTES,
    READY as READY,
    in_common_order as in_common_order,
    separate_messages as separate_messages,
    simulated_as as simulated_as,
    with_ready_messages as with_ready_messages,
)
from .goal_file import GoalReport as GoalReport, write_goal as write_goal
from .goal_job import GoalOptions as GoalOptions
from .limits import Roofline as Roofline, computes as computes, roofline_of as roofline_of
