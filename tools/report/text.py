"""Formats a report for a terminal: the first rows of each table, and the reasons why some tables have none."""

from ..analyses import Column, Table
from ..terminal import in_one_line
from .absent import absent_tables
from .cells import cell, heading, shortened
from .report import Report

ROWS, WIDEST = 12, 56


def report_text(report: Report) -> str:
    """Returns how to record what is missing, the text of all tables with rows, and why the others have none."""
    tables = report.tables.values()
    advice = ["\n".join(report.advice)] if report.advice else []
    parts = [*advice, *(as_text(table) for table in tables if len(table))]
    missing = [f"  {reason}: {'; '.join(titles)}" for reason, titles in absent_tables(tables, report.on_device).items()]
    return "\n\n".join([*parts, *(["\n".join(["Not in this run", *missing])] if missing else [])])


def as_text(table: Table) -> str:
    """Returns the title, the note, and the first ROWS rows of a table."""
    lines = [in_one_line(table.title + (f" ({table.note})" if table.note else ""))]
    if len(table):
        rows = zip(*(_cells(column) for column in table.columns), strict=True)
        lines += [f"  {'  '.join(row).rstrip()}" for row in rows]
    if len(table) > ROWS:
        lines.append(f"  … {len(table) - ROWS:,} more rows")
    return "\n".join(lines)


def _cells(column: Column) -> list[str]:
    """Returns the heading and the cells of a column, all of one width; numbers to the right, texts to the left."""
    if isinstance(column.values, list):
        cells = [heading(column.name, column.unit), *map(_shortened, column.values[:ROWS])]
        return [text.ljust(max(map(len, cells))) for text in cells]
    values = column.values[:ROWS].tolist()
    cells = [heading(column.name, column.unit), *(cell(value, column.name, column.unit) for value in values)]
    return [text.rjust(max(map(len, cells))) for text in cells]


def _shortened(name: str) -> str:
    return shortened(in_one_line(cell(name)), WIDEST)
