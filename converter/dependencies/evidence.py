"""Marks edges that are known from timing alone as inferred."""

import numpy as np

from ...schema.columns import Categorical, Int64
from ...schema.graph import DependencyKind
from ...schema.linked import guessed


def by_evidence(kind: DependencyKind, evidence: Categorical) -> Int64:
    """Returns the kind of each edge, with INFERRED where the evidence is timing."""
    return np.where(guessed(evidence), int(kind | DependencyKind.INFERRED), int(kind))
