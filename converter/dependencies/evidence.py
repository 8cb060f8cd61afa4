"""What is known from timing alone is marked inferred."""

import numpy as np

from ...schema.columns import Categorical, Int64
from ...schema.graph import DependencyKind
from ...schema.linked import guessed


def by_evidence(kind: DependencyKind, found: Categorical) -> Int64:
    """Returns the kind of each edge, by how it was found."""
    return np.where(guessed(found), int(kind | DependencyKind.INFERRED), int(kind))
