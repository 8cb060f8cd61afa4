"""Traces of all ranks in, a graph for each and what the ranks agree on out."""

from .astra_sim_files import Simulation, write_astra_sim_files
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
    "Simulation",
    "build",
    "mark_of",
    "table",
    "write_astra_sim_files",
]
