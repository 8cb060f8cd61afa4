"""Traces of all ranks in, a graph for each and what the ranks agree on out.

Says what is in the traces of a job and what is wrong with them, before any linking.

Merges the device traces of all ranks into one file: a trace to look at, or a database to count in.

A folder of a job's graphs in, a folder with those of the same program on other ranks out.
"""

from . import counting as counting
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
from .building import GRAPHS as GRAPHS, BuiltJob as BuiltJob, Outcomes as Outcomes, Runner as Runner, build as build
from .counting import merge_for_counting as merge_for_counting
from .cross_rank import mark_of as mark_of
from .diagnosis import Diagnosis as Diagnosis, diagnose as diagnose, in_parallel_if_large as in_parallel_if_large
from .diagnosis_findings import Finding as Finding
from .diagnosis_text import report as report
from .finish_rank import FITTED_TO_TRACED as FITTED_TO_TRACED
from .inspection import Inspection as Inspection
from .leftovers import GROUPS as GROUPS, REPORT as REPORT
from .merge_report import MergeReport as MergeReport
from .merge_traces import WRITERS as WRITERS, merge_traces as merge_traces
from .network_fit import (
    fit_error_text as fit_error_text,
    lacks_members as lacks_members,
    links_text as links_text,
    network_text as network_text,
    poor_fit as poor_fit,
    poor_goal_fit as poor_goal_fit,
)
from .scale_job import SCALE_REPORT as SCALE_REPORT, scale as scale, simulation_of as simulation_of
from .scale_report import ScaleReport as ScaleReport, lines as lines
from .viewing import merge_for_viewing as merge_for_viewing
