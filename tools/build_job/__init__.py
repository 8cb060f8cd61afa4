"""Traces of all ranks in, a graph for each and what the ranks agree on out."""

from .astra_sim_files import (
    ASTRA_SIM_FILES as ASTRA_SIM_FILES,
    Simulation as Simulation,
    simulator_command as simulator_command,
    write_astra_sim_files as write_astra_sim_files,
)
from .build_options import BuildOptions as BuildOptions
from .build_report import (
    BUILT as BUILT,
    COLLECTIVES as COLLECTIVES,
    EXCESS as EXCESS,
    START_OFFSET as START_OFFSET,
    BuildReport as BuildReport,
    RankSummary as RankSummary,
    read_report as read_report,
    table as table,
    time_lines as time_lines,
)
from .cross_rank import mark_of as mark_of
from .finish_rank import FITTED_TO_TRACED as FITTED_TO_TRACED
from .job import GRAPHS as GRAPHS, BuiltJob as BuiltJob, Outcomes as Outcomes, Runner as Runner, build as build
from .leftovers import GROUPS as GROUPS, REPORT as REPORT
from .network_fit import (
    fit_error_text as fit_error_text,
    lacks_members as lacks_members,
    links_text as links_text,
    network_text as network_text,
    poor_fit as poor_fit,
    poor_goal_fit as poor_goal_fit,
)
