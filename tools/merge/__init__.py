"""Merges the device traces of all ranks into one file: a trace to look at, or a database to count in."""

from . import counting as counting
from .counting import merge_for_counting as merge_for_counting
from .merge_traces import WRITERS as WRITERS, merge_traces as merge_traces
from .report import MergeReport as MergeReport
from .viewing import merge_for_viewing as merge_for_viewing
