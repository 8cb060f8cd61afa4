"""Scales a traced job to other data-parallel degrees: graphs of the same program with other ranks.

`rank_facts` is all that has to be known of each rank's graph: small, so the graphs need not be in memory at once.
Traced ranks stand in for missing ones that must be like them (`Assumed`).
`plan_scaling` decides from these which groups grow (`GroupUse`), how sizes change, and by which lines (`Fit`) the
measured lengths of collectives in growing groups change. `resized` and `copied` make the graph of each copy of a rank,
one at a time.
"""

from .facts import Assumed, RankFacts, rank_facts
from .lengths import Grown
from .plan import Growth, ScalePlan, all_groups, copied, plan_scaling, resized
