"""How far a fitted network is off for transfers that it was not fitted to."""

from collections.abc import Sequence

import numpy as np

from ...schema.columns import Int64
from .transfer_cost import Factors, fitted_factors

LEAST_SIZES = 3
"""Sizes that a fit needs to be judged: if one is left out, the other two still distinguish latency and bandwidth."""
PARTS = 10
"""Into how many parts the sizes are divided, of which one at a time is left out; fewer sizes are left out singly."""


def held_out_pct(relative: Factors, size: Int64) -> float | None:
    """Returns the median error in % of each part of the sizes in the network that fits the other parts; None for too
    few sizes. A row of `relative` is what a transfer costs, divided by its measured time; `size` numbers its size.

    A size that alone tells of a dimension is not judged.
    """
    sizes = int(size.max()) + 1
    parts = [size % PARTS == part for part in range(min(PARTS, sizes))] if sizes >= LEAST_SIZES else []
    errors = []
    for part in parts:
        is_known = (relative[~part] > 0).any(axis=0)
        held_out = relative[part][((relative[part] > 0) <= is_known).all(axis=1)]
        if len(held_out):
            errors.append(relative_errors(relative[~part], held_out))
    return median_pct(errors)


def relative_errors(fitted: Factors, held_out: Factors) -> Factors:
    """Returns how far off, relatively, the network that fits some transfers is for others."""
    return np.asarray(np.abs(held_out @ fitted_factors(fitted) - 1))


def median_pct(errors: Sequence[Factors]) -> float | None:
    """Returns the median of relative errors in %; None if there are none."""
    return round(100 * float(np.median(np.concatenate(errors))), 1) if errors else None
