"""A rank as the analyses see it: its traces or its graph in, columns, ops as a tree, classes of activities, tables out."""

from .annotations import USER_SCOPE, are_annotations, with_modules
from .began import began_ns
from .captures import KERNEL, Capture, Launched, captures_of, kinds_of, read_captures
from .classes import LABELS, ActivityClass, Codes, activity_classes, intervals_of
from .graph_alone import activity_rows, rank_of_graph
from .intervals import Intervals, Series, intersection, running_sum, sequence, time_by_set, union
from .rank_trace import READ_STAGES, Analysis, Options, RankTrace, graph_of, per_rank, read_rank
from .recorded import Allocations, ProfilerRange
from .shapes import op_shapes
from .steps import Steps, steps_of
from .table import Column, Floats, Table, Texts, microseconds, percentage, rank_column, texts

__all__ = [
    "KERNEL",
    "LABELS",
    "READ_STAGES",
    "USER_SCOPE",
    "ActivityClass",
    "Allocations",
    "Analysis",
    "Capture",
    "Codes",
    "Column",
    "Floats",
    "Intervals",
    "Launched",
    "Options",
    "ProfilerRange",
    "RankTrace",
    "Series",
    "Steps",
    "Table",
    "Texts",
    "activity_classes",
    "activity_rows",
    "are_annotations",
    "began_ns",
    "captures_of",
    "graph_of",
    "intersection",
    "intervals_of",
    "kinds_of",
    "microseconds",
    "op_shapes",
    "per_rank",
    "percentage",
    "rank_column",
    "rank_of_graph",
    "read_captures",
    "read_rank",
    "running_sum",
    "sequence",
    "steps_of",
    "texts",
    "time_by_set",
    "union",
    "with_modules",
]
