"""Says what is in the traces of a job and what is wrong with them, before any linking."""

from .diagnosis import Diagnosis, diagnose, in_parallel_if_large
from .findings import Finding
from .inspection import Inspection
from .text import report

__all__ = [
    "Diagnosis",
    "Finding",
    "Inspection",
    "diagnose",
    "in_parallel_if_large",
    "report",
]
