"""The traces or graphs of all ranks of a job in; their graphs, a diagnosis, one merged trace or a scaled job out.

`build` makes a graph for each rank and says what the ranks agree on, `diagnose` says what is wrong with traces before
any linking, `merge_traces` puts device traces into one file, `scale` writes the graphs of the same program on other
ranks.
"""

from .astra_sim_files import (
    Simulation as Simulation,
    fit_error_text as fit_error_text,
    lacks_members as lacks_members,
    network_text as network_text,
    poor_fit as poor_fit,
    poor_goal_fit as poor_goal_fit,
    simulator_command as simulator_command,
    write_astra_sim_files as write_astra_sim_files,
)
from .build_report import (
    BUILT as BUILT,
    REPORT as REPORT,
    BuildOptions as BuildOptions,
    BuildReport as BuildReport,
    RankSummary as RankSummary,
    table as table,
    time_lines as time_lines,
)
from .building import BuiltJob as BuiltJob, Outcomes as Outcomes, Runner as Runner, build as build
from .diagnosis import Diagnosis as Diagnosis, diagnose as diagnose, report as report
from .diagnosis_findings import Finding as Finding
from .merge_survey import MergeReport as MergeReport
from .merging import (
    TABLES_AND_QUERIES as TABLES_AND_QUERIES,
    WRITERS as WRITERS,
    merge_for_counting as merge_for_counting,
    merge_traces as merge_traces,
)
from .scaling import (
    SCALE_REPORT as SCALE_REPORT,
    ScaleReport as ScaleReport,
    lines as lines,
    scale as scale,
    simulation_of as simulation_of,
)
from .viewing import merge_for_viewing as merge_for_viewing
