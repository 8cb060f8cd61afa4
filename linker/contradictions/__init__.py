"""What the traces of one process contradict themselves or each other in, though each row of them is well formed."""

from .contradiction import Contradiction
from .contradictions import contradictions, contradictions_in_traces

__all__ = [
    "Contradiction",
    "contradictions",
    "contradictions_in_traces",
]
