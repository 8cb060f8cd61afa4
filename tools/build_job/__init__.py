"""Traces of all ranks in, a graph for each and what the ranks agree on out."""

from .build_options import BuildOptions
from .build_report import BUILT, RankSummary, table
from .cross_rank import mark_of
from .job import REPORT, Runner, build

__all__ = [
    "BUILT",
    "REPORT",
    "BuildOptions",
    "RankSummary",
    "Runner",
    "build",
    "mark_of",
    "table",
]
