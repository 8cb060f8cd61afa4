"""Graphs of a traced job in, graphs of the same program with other ranks out.

`rank_facts` is what has to be known of each rank's graph: small, so that the graphs need not be in memory at once. `plan_scaling`
decides on them which groups grow (`Role`), what becomes of sizes, and by which lines (`Fit`) the measured lengths of collectives
whose group grew follow. `resized` and `copied` make the graph of each copy of a rank, one at a time.
"""

from .copies import copied, resized
from .fits import Fit, Line
from .lengths import Grown
from .numbering import all_groups
from .places import Places
from .plan import Growth, RankPlan, ScalePlan, plan_scaling
from .rank_facts import RankFacts, rank_facts
from .roles import Role

__all__ = [
    "Fit",
    "Grown",
    "Growth",
    "Line",
    "Places",
    "RankFacts",
    "RankPlan",
    "Role",
    "ScalePlan",
    "all_groups",
    "copied",
    "plan_scaling",
    "rank_facts",
    "resized",
]
