"""What all analyses share: a rank's linked trace and graph, classes of activities, intervals, steps and tables."""

from .annotations import (
    USER_SCOPE as USER_SCOPE,
    are_annotations as are_annotations,
    op_path as op_path,
    with_modules as with_modules,
)
from .captures import (
    KERNEL as KERNEL,
    Capture as Capture,
    Launched as Launched,
    captures_of as captures_of,
    kinds_of as kinds_of,
    read_captures as read_captures,
)
from .classes import (
    LABELS as LABELS,
    ActivityClass as ActivityClass,
    Codes as Codes,
    activity_classes as activity_classes,
    covered_time as covered_time,
    intervals_of as intervals_of,
)
from .first_start import first_start_ns as first_start_ns, last_end_ns as last_end_ns
from .graph_alone import activity_rows as activity_rows, rank_of_graph as rank_of_graph
from .intervals import (
    Series as Series,
    intersection as intersection,
    running_sum as running_sum,
    sequence as sequence,
    time_by_set as time_by_set,
)
from .rank_trace import (
    READ_STAGES as READ_STAGES,
    Analysis as Analysis,
    AnalysisOptions as AnalysisOptions,
    RankTrace as RankTrace,
    graph_of as graph_of,
    per_rank as per_rank,
    read_rank as read_rank,
)
from .recorded import Allocations as Allocations, ProfilerRange as ProfilerRange
from .steps import (
    WHOLE_RUN as WHOLE_RUN,
    Steps as Steps,
    faster_step_us as faster_step_us,
    steps_of as steps_of,
)
from .table import (
    BytesColumn as BytesColumn,
    Column as Column,
    Floats as Floats,
    Table as Table,
    integers as integers,
    microseconds as microseconds,
    percentage as percentage,
    rank_column as rank_column,
    text_column as text_column,
)
