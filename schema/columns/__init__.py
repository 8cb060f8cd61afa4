"""Columns of numpy arrays: texts, ragged rows, byte strings, groups of rows, intervals, trees.

Every other room builds on these. Also here: how what is large shows itself in a few lines, and data frames of columns.
"""

from .byte_strings import Bytes, Spans, first_not_utf8, join, join_parts, repeated, total_lengths
from .column_types import ABSENT, Bool, Int32, Int64, NodeIds, Ns, Ragged, Rows, Strings, Us
from .frames import Values, nullable, to_pandas, to_polars
from .groups import (
    begins,
    first_from,
    last_up_to,
    numbered,
    places,
    previous_in_group,
    repetition,
    split_groups,
    within,
)
from .intervals import ROUNDING, TOLERANCE, Intervals, Nesting, innermost, nest, thread_order
from .lookups import Lookup
from .numbering import Numbering, rows_of
from .pieces import NumberPieces, RowPieces, StringPieces, TextPieces
from .row_map import RowMap
from .shown import Figures, Shown, counted, microseconds, time_text
from .sparse import Sparse, SparsePieces
from .table import AttributeTable, Table
from .texts import Texts
from .trees import Tree, nearest, parent_rows, rows_in_circles
from .workspace import mapped, workspace_in

__all__ = [
    "ABSENT",
    "ROUNDING",
    "TOLERANCE",
    "AttributeTable",
    "Bool",
    "Bytes",
    "Figures",
    "Int32",
    "Int64",
    "Intervals",
    "Lookup",
    "Nesting",
    "NodeIds",
    "Ns",
    "NumberPieces",
    "Numbering",
    "Ragged",
    "RowMap",
    "RowPieces",
    "Rows",
    "Shown",
    "Spans",
    "Sparse",
    "SparsePieces",
    "StringPieces",
    "Strings",
    "Table",
    "TextPieces",
    "Texts",
    "Tree",
    "Us",
    "Values",
    "begins",
    "counted",
    "first_from",
    "first_not_utf8",
    "innermost",
    "join",
    "join_parts",
    "last_up_to",
    "mapped",
    "microseconds",
    "nearest",
    "nest",
    "nullable",
    "numbered",
    "parent_rows",
    "places",
    "previous_in_group",
    "repeated",
    "repetition",
    "rows_in_circles",
    "rows_of",
    "split_groups",
    "thread_order",
    "time_text",
    "to_pandas",
    "to_polars",
    "total_lengths",
    "within",
    "workspace_in",
]
