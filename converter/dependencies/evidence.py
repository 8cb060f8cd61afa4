"""What is known from timing alone is marked inferred."""

import numpy as np

from ...schema.columns import Int64, Strings
from ...schema.graph import DependencyKind
from ...schema.linked import Found


def by_evidence(kind: DependencyKind, found: Strings) -> Int64:
    """The kind of each edge, by how it was found."""
    by_timing = found.having(Found.TIMING.value.__eq__)
    return np.where(by_timing, int(kind | DependencyKind.INFERRED), int(kind))
