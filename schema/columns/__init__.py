"""Columns of numpy arrays: texts, ragged rows, byte strings, groups of rows, intervals, trees.

Every other package builds on these. Also here: short reprs of large records, and data frames of columns.
"""

from .builders import (
    BytesColumnBuilder as BytesColumnBuilder,
    CategoricalBuilder as CategoricalBuilder,
    IntegerBuilder as IntegerBuilder,
    RowBuilder as RowBuilder,
)
from .byte_strings import (
    Bytes as Bytes,
    Part as Part,
    Spans as Spans,
    first_not_utf8 as first_not_utf8,
    join as join,
    join_parts as join_parts,
    repeated as repeated,
    total_lengths as total_lengths,
)
from .bytes_column import BytesColumn as BytesColumn
from .column_types import (
    ABSENT as ABSENT,
    ActivityRows as ActivityRows,
    Bool as Bool,
    CallRows as CallRows,
    Categorical as Categorical,
    CommunicationRows as CommunicationRows,
    DeviceOpRows as DeviceOpRows,
    Int32 as Int32,
    Int64 as Int64,
    NodeIds as NodeIds,
    NodeNumbers as NodeNumbers,
    Ns as Ns,
    OpRows as OpRows,
    Ragged as Ragged,
    Rows as Rows,
    Us as Us,
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
    Keys as Keys,
    asof_backward as asof_backward,
    asof_forward as asof_forward,
    cumcount as cumcount,
    group_ids as group_ids,
    group_searchsorted as group_searchsorted,
    group_sums as group_sums,
    is_group_start as is_group_start,
    previous_in_group as previous_in_group,
    rows_by_number as rows_by_number,
    rows_of_each as rows_of_each,
    split_groups as split_groups,
    within as within,
)
from .interner import Interner as Interner, rows_of as rows_of
from .intervals import (
    Intervals as Intervals,
    busy_until as busy_until,
    covered_until as covered_until,
    covered_within as covered_within,
    union as union,
)
from .json_records import JsonRecords as JsonRecords, JsonRecordsBuilder as JsonRecordsBuilder
from .lookups import Lookup as Lookup
from .nesting import (
    ROUNDING as ROUNDING,
    TOLERANCE as TOLERANCE,
    NestedIntervals as NestedIntervals,
    Nesting as Nesting,
    ThreadIntervals as ThreadIntervals,
    is_covered as is_covered,
    nest as nest,
    thread_order as thread_order,
)
from .row_map import RowMap as RowMap
from .summary_repr import (
    Summary as Summary,
    SummaryRepr as SummaryRepr,
    bytes_text as bytes_text,
    format_counts as format_counts,
    microseconds as microseconds,
    summary_html as summary_html,
    summary_text as summary_text,
    time_text as time_text,
)
from .table import AttributeTable as AttributeTable, RowTable as RowTable, Table as Table
from .trees import Tree as Tree, nearest as nearest, parent_rows as parent_rows, rows_in_circles as rows_in_circles
from .workspace import workspace_in as workspace_in
