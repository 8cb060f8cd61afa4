"""What several ranks of a job have in common: who meets whom, what they have to agree on, and graphs that keep it.

In: each rank's calls (`graph_calls` of its graph, `recorded_calls` of the arguments in its traces), columns of a few numbers for each
collective and message, so that a job's ranks need not be in memory at once. Out: `match` tells which of them meet, `recognised` alone
which groups are one. Of the issues of all ranks, `settled` by that, `common_order`, `common_sizes` and `unmatched` say what each graph
has to keep; `order_collectives`, `resize_communication`, `compute_instead` and `restrict_to_ranks` make it so.
"""

from .applying import compute_instead, order_collectives, resize_communication
from .calls import Call, Calls, awaits_all, graph_calls, recorded_calls
from .communication_summary import Issue, RankIssues, issues, settled
from .consensus import common_order, common_sizes, unmatched
from .groups import Group, GroupNames, recognised
from .matching import Matching, match
from .rank_lists import ranks_of, ranks_text
from .recorded_groups import Groups, recorded_groups
from .subset import restrict_to_ranks

__all__ = [
    "Call",
    "Calls",
    "Group",
    "GroupNames",
    "Groups",
    "Issue",
    "Matching",
    "RankIssues",
    "awaits_all",
    "common_order",
    "common_sizes",
    "compute_instead",
    "graph_calls",
    "issues",
    "match",
    "order_collectives",
    "ranks_of",
    "ranks_text",
    "recognised",
    "recorded_calls",
    "recorded_groups",
    "resize_communication",
    "restrict_to_ranks",
    "settled",
    "unmatched",
]
