"""What several ranks of a job have in common: which of their communications are one, what they have to agree on, and
graphs that keep it.

A rank's calls are columns of a few numbers for each collective and message (`graph_calls` of its graph,
`recorded_calls` of the arguments in its traces), so that a job's ranks need not be in memory at once. `match` tells
which calls of several ranks are one collective or message, `recognised` which groups are one.

`begin_of_ranks` puts the ranks on one clock.

`communication_summary` is what other ranks have to know of a graph. `settled` adds the matches to those of all ranks;
from them `common_order`, `common_sizes` and `unmatched` tell what each graph has to keep, and `order_collectives`,
`resize_communication`, `compute_instead` and `restrict_to_ranks` make it so.
"""

from .applying import (
    compute_instead as compute_instead,
    order_collectives as order_collectives,
    resize_communication as resize_communication,
)
from .calls import (
    Call as Call,
    Calls as Calls,
    awaits_all as awaits_all,
    graph_calls as graph_calls,
    recorded_calls as recorded_calls,
)
from .clocks import EVER as EVER, MatchedTimes as MatchedTimes, begin_of_ranks as begin_of_ranks
from .communication_summary import (
    CommunicationEntry as CommunicationEntry,
    CommunicationSummary as CommunicationSummary,
    communication_summary as communication_summary,
    settled as settled,
)
from .consensus import common_order as common_order, common_sizes as common_sizes, unmatched as unmatched
from .groups import Group as Group, GroupNames as GroupNames, recognised as recognised
from .matching import Matching as Matching, match as match
from .rank_lists import given_ranks as given_ranks, ranks_of as ranks_of, ranks_text as ranks_text
from .recorded_groups import Groups as Groups, recorded_groups as recorded_groups
from .subset import restrict_to_ranks as restrict_to_ranks
