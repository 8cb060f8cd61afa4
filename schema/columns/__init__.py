"""Columns of numpy arrays: texts, ragged rows, byte strings, groups of rows, intervals, trees.

Every other package builds on these. Also here: short reprs of large records, and data frames of columns.
"""

from .builders import (
    BytesColumnBuilder as BytesColumnBuilder,
    CategoricalBuilder as CategoricalBuilder,
    IntegerBuilder as IntegerBuilder,
    JsonRecords as JsonRecords,
    JsonRecordsBuilder as JsonRecordsBuilder,
    RowBuilder as RowBuilder,
)
from .byte_strings import (
    Bytes as Bytes,
    BytesColumn as BytesColumn,
    Part as Part,
    Spans as Spans,
    first_not_utf8 as first_not_utf8,
    join as join,
    join_parts as join_parts,
    repeated as repeated,
    total_lengths as total_lengths,
)
from .column_types import (
    ABSENT as ABSENT,
    ActivityRows as ActivityRows,
    Bool as Bool,
    CallRows as CallRows,
    Categorical as Categorical,
    CommunicationRows as CommunicationRows,
    DeviceOpRows as DeviceOpRows,
    Floats as Floats,
    Int32 as Int32,
    Int64 as Int64,
    Interner as Interner,
    NodeIds as NodeIds,
    NodeNumbers as NodeNumbers,
    Ns as Ns,
    OpRows as OpRows,
    Ragged as Ragged,
    RowMap as RowMap,
    Rows as Rows,
    Summary as Summary,
    SummaryRepr as SummaryRepr,
    Us as Us,
    bytes_text as bytes_text,
    format_counts as format_counts,
    microseconds as microseconds,
    rows_of as rows_of,
    summary_html as summary_html,
    summary_text as summary_text,
    time_text as time_text,
)
from .digit_runs import FIRST_LABEL as FIRST_LABEL, LABEL as LABEL, DigitRuns as DigitRuns, labelled as labelled
from .frames import (
    Frame as Frame,
    Tabular as Tabular,
    Values as Values,
    column_of as column_of,
    nullable as nullable,
    to_pandas as to_pandas,
    to_polars as to_polars,
)
from .groups import (
    Groups as Groups,
    Keys as Keys,
    Lookup as Lookup,
    asof_backward as asof_backward,
    asof_forward as asof_forward,
    cumcount as cumcount,
    group_ids as group_ids,
    group_searchsorted as group_searchsorted,
    group_sums as group_sums,
    groupby as groupby,
    is_group_start as is_group_start,
    previous_in_group as previous_in_group,
    rows_by_number as rows_by_number,
    rows_of_each as rows_of_each,
    split_groups as split_groups,
    within as within,
)
from .intervals import (
    ROUNDING as ROUNDING,
    TOLERANCE as TOLERANCE,
    Intervals as Intervals,
    NestedIntervals as NestedIntervals,
    Nesting as Nesting,
    Series as Series,
    ThreadIntervals as ThreadIntervals,
    busy_until as busy_until,
    covered_until as covered_until,
    covered_within as covered_within,
    intersection as intersection,
    is_covered as is_covered,
    nest as nest,
    running_sum as running_sum,
    sequence as sequence,
    thread_order as thread_order,
    time_by_set as time_by_set,
    union as union,
)
from .trees import Tree as Tree, nearest as nearest, parent_rows as parent_rows, rows_in_circles as rows_in_circles
from .workspace import (
    AttributeTable as AttributeTable,
    RowTable as RowTable,
    Table as Table,
    workspace_in as workspace_in,
)
