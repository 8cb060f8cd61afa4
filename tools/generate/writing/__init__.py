"""A simulated run in, the files that the profiler would have written out."""

from .chrome import Rows as Rows
from .files import write_traces as write_traces
from .identity import correlation as correlation, identify as identify
from .recorded_activities import is_recorded as is_recorded
