"""Scales a traced job to other data-parallel degrees: graphs of the same program with other ranks.

`rank_facts` is all that has to be known of each rank's graph: small, so the graphs need not be in memory at once.
`plan_scaling` decides from these which groups grow (`GroupRole`), how sizes change, and by which lines the
measured lengths of collectives in growing groups change. `resized` and `copied` make the graph of each copy of a rank,
one at a time.
"""

from .copies import copied as copied, resized as resized
from .group_numbering import all_groups as all_groups
from .group_roles import GroupRole as GroupRole
from .lengths import Grown as Grown
from .plan import Growth as Growth, ScalePlan as ScalePlan, plan_scaling as plan_scaling
from .rank_facts import RankFacts as RankFacts, rank_facts as rank_facts
