"""What the traces of one process contradict themselves or each other in, though each row of them is well formed."""

from .contradiction import Contradiction as Contradiction
from .contradictions import contradictions as contradictions, contradictions_in_traces as contradictions_in_traces
