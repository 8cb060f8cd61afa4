"""Says what is in the traces of a job and what is wrong with them, before any linking."""

from .diagnosis import Diagnosis as Diagnosis, diagnose as diagnose, in_parallel_if_large as in_parallel_if_large
from .findings import Finding as Finding
from .inspection import Inspection as Inspection
from .text import report as report
