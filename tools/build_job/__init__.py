"""Traces of all ranks in, a graph for each and what the ranks agree on out."""

from .astra_sim_files import FOLDER as ASTRA_SIM_FILES
from .astra_sim_files import Simulation, simulator_command, write_astra_sim_files
from .build_options import BuildOptions
from .build_report import BUILT, RankSummary, table
from .cross_rank import mark_of
from .job import GRAPHS, Runner, build
from .leftovers import GROUPS, REPORT

__all__ = [
    "ASTRA_SIM_FILES",
    "BUILT",
    "GRAPHS",
    "GROUPS",
    "REPORT",
    "BuildOptions",
    "RankSummary",
    "Runner",
    "Simulation",
    "build",
    "mark_of",
    "simulator_command",
    "table",
    "write_astra_sim_files",
]
