"""What ranks of a job share: which calls are one collective or message, what the ranks agree on, how graphs keep it.
The calls of a rank are a few columns (`graph_calls`, `recorded_calls`), so a job's ranks need not be in memory at once.
`match` finds the calls of several ranks that are one, and `begin_of_ranks` puts the ranks on one clock.
"""

from .agreement import (
    SimulatedCalls, common_order, common_positions, common_sizes, communication_summary, compute_instead, lacks_members,
    matched_calls, order_collectives, shared_ids, simulated_order, with_deferred_ends, with_values,
)  # fmt: skip
from .calls import (
    EVER, FEW, Call, Calls, MeasuredTimes, awaits_all, graph_calls, issued_at, match, measured_times,
    recorded_calls, share_no_step, spans_of,
)  # fmt: skip
from .clocks import begin_of_ranks, clock_contradictions, contradictions
from .groups import (
    Group, GroupNames, Groups, given_ranks, positions_in, ranks_of, ranks_text, recognised, recorded_groups,
    renumbered_ends, restrict_to_ranks,
)  # fmt: skip
from .network import (
    AWAITED_MESSAGE, GIB, MOST_BANDWIDTH, MESSAGE, RING, Cost, Factors, Link, Network, Transfer, TwoDimensions,
    carried_excess, fitted_factors, fitted_network, for_more_ranks, held_out_pct, links_text, network_time_ns, stages,
    step_cost,
)  # fmt: skip
