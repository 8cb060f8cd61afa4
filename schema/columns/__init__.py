"""Columns of numpy arrays: texts, ragged rows, byte strings, groups of rows, intervals, trees.

Every other room builds on these. Also here: how what is large shows itself in a few lines, and data frames of columns.
"""

from .byte_strings import Bytes, Spans, first_not_utf8, join, join_parts, repeated, total_lengths
from .column_types import ABSENT, Bool, Int32, Int64, NodeIds, Ns, Ragged, Rows, Strings, Us
from .frames import Values, nullable, to_pandas, to_polars
from .groups import (
    among,
    begins,
    distinct,
    first_from,
    last_up_to,
    numbered,
    places,
    previous_in_group,
    repetition,
    rows_by_number,
    rows_of_each,
    split_groups,
    stacked,
    taken,
    within,
)
from .intervals import ROUNDING, TOLERANCE, Intervals, Nesting, innermost, nest, thread_order
from .lookups import Lookup, one_by_one
from .numbering import Numbering, rows_of
from .on_disk import columns_in, filled, in_blocks, let_go, mapped_file, settled
from .pieces import NumberPieces, RowPieces, StringPieces, TextPieces
from .shown import Figures, Shown, counted, microseconds, time_text
from .sparse import Sparse, SparsePieces
from .texts import Texts
from .trees import Tree, nearest, parent_rows, rows_in_circles

__all__ = [
    "ABSENT",
    "ROUNDING",
    "TOLERANCE",
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
    "RowPieces",
    "Rows",
    "Shown",
    "Spans",
    "Sparse",
    "SparsePieces",
    "StringPieces",
    "Strings",
    "TextPieces",
    "Texts",
    "Tree",
    "Us",
    "Values",
    "among",
    "begins",
    "columns_in",
    "counted",
    "distinct",
    "filled",
    "first_from",
    "first_not_utf8",
    "in_blocks",
    "innermost",
    "join",
    "join_parts",
    "last_up_to",
    "let_go",
    "mapped_file",
    "microseconds",
    "nearest",
    "nest",
    "nullable",
    "numbered",
    "one_by_one",
    "parent_rows",
    "places",
    "previous_in_group",
    "repeated",
    "repetition",
    "rows_by_number",
    "rows_in_circles",
    "rows_of",
    "rows_of_each",
    "settled",
    "split_groups",
    "stacked",
    "taken",
    "thread_order",
    "time_text",
    "to_pandas",
    "to_polars",
    "total_lengths",
    "within",
]
