"""What several ranks of a job have in common: which of their communications are one, what they have to agree on, and graphs that keep it.

A rank's calls are columns of a few numbers for each collective and message (`graph_calls` of its graph, `recorded_calls` of the arguments
in its traces), so that a job's ranks need not be in memory at once. `match` tells which calls of several ranks are one collective or
message, `recognised` which groups are one.

`begin_of_ranks` puts the ranks on one clock.

`communication_summary` is what other ranks have to know of a graph. `settled` adds the matches to those of all ranks; from them
`common_order`, `common_sizes` and `unmatched` tell what each graph has to keep, and `order_collectives`, `resize_communication`,
`compute_instead` and `restrict_to_ranks` make it so.
"""

from .applying import compute_instead, order_collectives, resize_communication
from .calls import Call, Calls, awaits_all, graph_calls, recorded_calls
from .clocks import EVER, Attendance, begin_of_ranks
from .communication_summary import CommunicationEntry, CommunicationSummary, communication_summary, settled
from .consensus import common_order, common_sizes, unmatched
from .groups import Group, GroupNames, recognised
from .matching import Matching, match
from .rank_lists import given_ranks, positions_in, ranks_of, ranks_text
from .recorded_groups import Groups, recorded_groups
from .subset import restrict_to_ranks

__all__ = [
    "EVER",
    "Attendance",
    "Call",
    "Calls",
    "CommunicationEntry",
    "CommunicationSummary",
    "Group",
    "GroupNames",
    "Groups",
    "Matching",
    "awaits_all",
    "begin_of_ranks",
    "common_order",
    "common_sizes",
    "communication_summary",
    "compute_instead",
    "given_ranks",
    "graph_calls",
    "match",
    "order_collectives",
    "positions_in",
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
