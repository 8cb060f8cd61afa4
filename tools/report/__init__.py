"""Reports on runs for people: one HTML page, tables on the terminal, CSV and JSON."""

from .files import overlay_path, print_tables, write_csv
from .inputs import Sources, find_sources, of_ranks
from .page import render
from .report import Wanted, report_on, report_on_diff
from .text import report_text

__all__ = [
    "Sources",
    "Wanted",
    "find_sources",
    "of_ranks",
    "overlay_path",
    "print_tables",
    "render",
    "report_on",
    "report_on_diff",
    "report_text",
    "write_csv",
]
