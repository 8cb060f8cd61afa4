"""Merges the device traces of all ranks into one file: a trace to look at, or a database to count in."""

from . import counting
from .counting import merge_for_counting
from .report import MergeReport, RankReport
from .viewing import merge_for_viewing

__all__ = [
    "MergeReport",
    "RankReport",
    "counting",
    "merge_for_counting",
    "merge_for_viewing",
]
