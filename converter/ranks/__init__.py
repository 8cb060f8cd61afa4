"""What ranks of a job share: which calls are one collective or message, what the ranks agree on, and how graphs keep
it.

The calls of a rank are columns of a few numbers for each collective and message (`graph_calls` from its graph,
`recorded_calls` from the arguments in its traces), so a job's ranks need not be in memory at once. `match` finds the
calls of several ranks that are one, and `begin_of_ranks` puts the ranks on one clock. `communication_summary` is what
other ranks have to know of a graph; what they agree on are columns over `matched_calls` of all summaries.

How long communication takes by a network's latency and bandwidth, and the network that measured times fit.
"""

from .agreement import (
    CommunicationSummary as CommunicationSummary,
    MatchedCalls as MatchedCalls,
    common_order as common_order,
    common_positions as common_positions,
    common_sizes as common_sizes,
    communication_summary as communication_summary,
    compute_instead as compute_instead,
    lacks_members as lacks_members,
    matched_calls as matched_calls,
    order_collectives as order_collectives,
    simulated_order as simulated_order,
    with_deferred_ends as with_deferred_ends,
    with_values as with_values,
)
from .calls import (
    EVER as EVER,
    Call as Call,
    Calls as Calls,
    MatchedTimes as MatchedTimes,
    Matching as Matching,
    MeasuredTimes as MeasuredTimes,
    awaits_all as awaits_all,
    begin_of_ranks as begin_of_ranks,
    graph_calls as graph_calls,
    match as match,
    measured_times as measured_times,
    recorded_calls as recorded_calls,
)
from .groups import (
    Group as Group,
    GroupNames as GroupNames,
    Groups as Groups,
    given_ranks as given_ranks,
    positions_in as positions_in,
    ranks_of as ranks_of,
    ranks_text as ranks_text,
    recognised as recognised,
    recorded_groups as recorded_groups,
    restrict_to_ranks as restrict_to_ranks,
)
from .network import (
    AWAITED_MESSAGE as AWAITED_MESSAGE,
    GIB as GIB,
    MESSAGE as MESSAGE,
    RING as RING,
    Cost as Cost,
    Factors as Factors,
    Link as Link,
    Network as Network,
    Transfer as Transfer,
    TwoDimensions as TwoDimensions,
    carried_excess as carried_excess,
    fitted_factors as fitted_factors,
    fitted_network as fitted_network,
    for_more_ranks as for_more_ranks,
    held_out_pct as held_out_pct,
    links_text as links_text,
    network_time_ns as network_time_ns,
    stages as stages,
    step_cost as step_cost,
)
