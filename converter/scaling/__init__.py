"""Scales a traced job to other data-parallel degrees: graphs of the same program with other ranks. `rank_facts` is all
that has to be known of each graph, so that these need not be in memory at once. `plan_scaling` decides from it, and
`resized` and `copied` make the graph of each copy of a rank.
"""

from .facts import Assumed, RankFacts, rank_facts
from .lengths import Grown
from .plan import Growth, ScalePlan, all_groups, copied, plan_scaling, resized
