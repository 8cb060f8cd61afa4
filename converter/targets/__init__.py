"""Graphs made fit for one simulator, and a whole job for those that run GOAL.

Graphs of all ranks of a job in, one file in the GOAL language out, which LogGOPSim and ATLAHS run.

`rank_communication` is what all ranks have to know of one; `job` matches it over ranks and chooses an algorithm for
each match, and `algorithms` says what messages that means. `message_costs` fits a network to these, `excess_time` says
what they took beyond it, and `links` which of them share a link. `rank_program` makes operations of a rank's graph and
its `rank_messages`, on the cpus of `cpus`; `cpu_crossing` adds what LogGOPSim needs, and `goal_file` writes the lines
of `operations`.

What graphs need for a simulator that models communication, not for one that gives every node its measured time.
"""

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
from .excess_time import EXCESS_TIME as EXCESS_TIME, with_excess_time as with_excess_time
from .goal_file import GoalReport as GoalReport, write_goal as write_goal
from .goal_options import GoalOptions as GoalOptions
from .idle_rank import idle_rank as idle_rank
from .message_costs import MessageNetwork as MessageNetwork
from .ready_messages import (
    AWAITED as AWAITED,
    READY as READY,
    in_common_order as in_common_order,
    with_ready_messages as with_ready_messages,
)
from .roofline import Roofline as Roofline, roofline_of as roofline_of
from .select import lower_for_target as lower_for_target
from .start_offset import START_OFFSET as START_OFFSET
