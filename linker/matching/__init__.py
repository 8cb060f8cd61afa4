"""What belongs together in the two traces: host nodes and ops, launch calls and the activities that they launched."""

from .launches import enclosing_ops, external_ids_name_ops, launching_calls, launching_ops
from .ops import SMALLEST_AGREEMENT, Match, are_ops, is_op, match_ops

__all__ = [
    "SMALLEST_AGREEMENT",
    "Match",
    "are_ops",
    "enclosing_ops",
    "external_ids_name_ops",
    "is_op",
    "launching_calls",
    "launching_ops",
    "match_ops",
]
