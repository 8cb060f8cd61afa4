"""Reports on runs for people: one HTML page, tables on the terminal, CSV and JSON. Only `render` loads what draws."""

from .inputs import ReadOptions, Sources, find_sources, read_ranks
from .output import print_tables, summary_text, tables_text, write_csv
from .page import check_page_name, render
from .report import Report, ReportRequest, report_on, report_on_diff
from .timeline import timeline
