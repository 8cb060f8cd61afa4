"""Matches rows that belong together: host nodes and ops of the device trace, activities and their launch calls."""

from .launches import (
    enclosing_ops as enclosing_ops,
    external_ids_name_ops as external_ids_name_ops,
    launching_calls as launching_calls,
    launching_ops as launching_ops,
)
from .ops import (
    SMALLEST_AGREEMENT as SMALLEST_AGREEMENT,
    Match as Match,
    are_ops as are_ops,
    is_op as is_op,
    match_ops as match_ops,
)
