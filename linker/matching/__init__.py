"""What belongs together in the two traces: host nodes and ops, launch calls and the activities that they launched."""

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
