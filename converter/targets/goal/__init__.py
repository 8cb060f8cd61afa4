"""Graphs of all ranks of a job in, one file in the GOAL language out, which LogGOPSim and ATLAHS run.

`rank_communication` is what all ranks have to know of one; `job` matches it over ranks and chooses an algorithm for
each match, and `algorithms` says what messages that means. `message_costs` fits a network to these, `excess_time` says
what they took beyond it, and `links` which of them share a link. `rank_program` makes operations of a rank's graph and
its `rank_messages`, on the cpus of `cpus`; `cpu_crossing` adds what LogGOPSim needs, and `goal_file` writes the lines
of `operations`.
"""

from .goal_file import GoalReport as GoalReport, write_goal as write_goal
from .goal_options import GoalOptions as GoalOptions
from .message_costs import MessageNetwork as MessageNetwork
