"""Graphs made fit for one simulator, and what the ranks of a job have to agree on for it."""

from .astra_sim import TargetReport, for_astra_sim
from .coalesced import separate_messages
from .common_order import common_order, common_sizes, unmatched
from .groups import recorded_groups
from .issues import Issue, issues, settled
from .rework import compute_instead, order_collectives, resize_communication
from .select import ASTRA_SIM, GENERIC, TARGET_HELP, TARGETS, for_target
from .subset import restrict_to_ranks

__all__ = [
    "ASTRA_SIM",
    "GENERIC",
    "TARGETS",
    "TARGET_HELP",
    "Issue",
    "TargetReport",
    "common_order",
    "common_sizes",
    "compute_instead",
    "for_astra_sim",
    "for_target",
    "issues",
    "order_collectives",
    "recorded_groups",
    "resize_communication",
    "restrict_to_ranks",
    "separate_messages",
    "settled",
    "unmatched",
]
