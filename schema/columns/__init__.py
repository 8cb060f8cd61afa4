"""Columns of numpy arrays: texts, ragged rows, byte strings, groups of rows, intervals, trees; data frames of them."""

from .byte_strings import (
    Bytes, BytesColumn, BytesColumnBuilder, CategoricalBuilder, IntegerBuilder, RecordBuilder, RecordsByRow, RowBuilder,
    TableBuilder,
)  # fmt: skip
from .column_types import (
    ABSENT, ActivityRows, Bool, CallRows, Categorical, CommunicationRows, DeviceOpRows, Floats, Int32, Int64, Interner,
    NodeIds, NodeNumbers, Ns, OpRows, Ragged, RowMap, Rows, Summary, SummaryRepr, bytes_text, format_counts,
    microseconds_text, rows_of, shortened, signed_pct, summary_html, summary_text, time_text,
)  # fmt: skip
from .frames import Frame, RowTable, Tabular, Values, column_of, nullable, to_pandas, to_polars
from .groups import (
    Groups, Keys, Lookup, asof_backward, asof_forward, cumcount, group_ids, group_searchsorted, group_sums, groupby,
    is_group_start, isin, positions, previous_in_group, rows_by_number, rows_of_each, split_groups, within,
)  # fmt: skip
from .intervals import (
    ROUNDING, TOLERANCE, Intervals, NestedIntervals, Nesting, Series, ThreadIntervals, busy_until, covered_until,
    covered_within, is_covered, nest, nesting_lanes, running_sum, sequence, thread_order, time_by_set, union,
)  # fmt: skip
from .trees import Tree, earliest_order, nearest, numbers, parent_rows, rows_in_circles, topological_order
