"""The traces or graphs of all ranks of a job in; their graphs, a diagnosis, one merged trace or a scaled job out."""

from .astra_sim_files import (
    AstraSimOptions, BuildTarget, build_options, fit_error_text, network_text, poor_fit, poor_goal_fit,
    simulator_command, write_astra_sim_files,
)  # fmt: skip
from .build_report import BUILT, REPORT, BuildOptions, BuildReport, RankSummary, read_report, table, time_lines
from .building import BuiltJob, Outcomes, Runner, build
from .cross_rank import compare_ranks, ranks_in_words, why_no_job
from .diagnosis import Diagnosis, Finding, diagnose
from .diagnosis_text import report
from .merge_survey import MergeReport
from .merging import TABLES_AND_QUERIES, WRITERS, merge_for_counting, merge_traces
from .rank_comms import RankComms, issued_by, summarise_rank
from .scaling import SCALE_REPORT, ScaleReport, lines, scale, simulation_of
from .viewing import merge_for_viewing
