"""Columns of numpy arrays: texts, ragged rows, byte strings, groups of rows, intervals, trees.

Every other room builds on these. Also here: how what is large shows itself in a few lines, and data frames of columns.
"""

from .byte_strings import (
    Bytes as Bytes,
    Spans as Spans,
    first_not_utf8 as first_not_utf8,
    join as join,
    join_parts as join_parts,
    repeated as repeated,
    total_lengths as total_lengths,
)
from .column_types import (
    ABSENT as ABSENT,
    Bool as Bool,
    Int32 as Int32,
    Int64 as Int64,
    NodeIds as NodeIds,
    Ns as Ns,
    Ragged as Ragged,
    Rows as Rows,
    Strings as Strings,
    Us as Us,
)
from .frames import Values as Values, nullable as nullable, to_pandas as to_pandas, to_polars as to_polars
from .groups import (
    begins as begins,
    first_from as first_from,
    last_up_to as last_up_to,
    numbered as numbered,
    places as places,
    previous_in_group as previous_in_group,
    repetition as repetition,
    rows_by_number as rows_by_number,
    rows_of_each as rows_of_each,
    split_groups as split_groups,
    within as within,
)
from .intervals import (
    ROUNDING as ROUNDING,
    TOLERANCE as TOLERANCE,
    Intervals as Intervals,
    Nesting as Nesting,
    innermost as innermost,
    nest as nest,
    thread_order as thread_order,
)
from .lookups import Lookup as Lookup
from .numbering import Numbering as Numbering, rows_of as rows_of
from .pieces import (
    NumberPieces as NumberPieces,
    RowPieces as RowPieces,
    StringPieces as StringPieces,
    TextPieces as TextPieces,
)
from .row_map import RowMap as RowMap
from .shown import (
    Figures as Figures,
    Shown as Shown,
    counted as counted,
    microseconds as microseconds,
    time_text as time_text,
)
from .sparse import Sparse as Sparse, SparsePieces as SparsePieces
from .table import AttributeTable as AttributeTable, Table as Table
from .texts import Texts as Texts
from .trees import Tree as Tree, nearest as nearest, parent_rows as parent_rows, rows_in_circles as rows_in_circles
from .workspace import mapped as mapped, workspace_in as workspace_in
