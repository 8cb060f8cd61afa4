"""Tables for a terminal: aligned columns, the first rows, and how many are not shown."""

from ..analyses import Column, Table
from .charts import cell, heading, shortened

ROWS, WIDEST = 12, 56


def as_text(table: Table, rows: int = ROWS) -> str:
    """The title, the note, and the first `rows` rows of a table."""
    lines = [table.title + (f" ({table.note})" if table.note else "")]
    if len(table):
        lines += _grid([_cells(column, rows) for column in table.columns])
    if len(table) > rows:
        lines.append(f"  … {len(table) - rows:,} more rows")
    return "\n".join(lines)


def _cells(column: Column, rows: int) -> list[str]:
    """The heading and the cells, as wide as the widest; numbers to the right, texts to the left."""
    if isinstance(column.values, list):
        cells = [heading(column.name, column.unit), *map(_shortened, column.values[:rows])]
        return [text.ljust(max(map(len, cells))) for text in cells]
    values = column.values[:rows].tolist()
    cells = [heading(column.name, column.unit), *(cell(value, column.name, column.unit) for value in values)]
    return [text.rjust(max(map(len, cells))) for text in cells]


def _shortened(name: str) -> str:
    return shortened(cell(name), WIDEST)


def _grid(columns: list[list[str]]) -> list[str]:
    return ["  " + "  ".join(row).rstrip() for row in zip(*columns, strict=True)]
