"""Reports on runs for people: one HTML page, tables on the terminal, CSV and JSON.

Draws tables as charts.

Makes a timeline of the whole run from replays of ranks, within the bytes that a page has for it.

The page unpacks and draws it (page.timeline.js): single bars as far as they are in it, else sums over stretches of
time.
"""

from .charts import CHARTS as CHARTS
from .drawing import Chart as Chart
from .drawing_library import drawing_library as drawing_library
from .files import overlay_path as overlay_path, print_tables as print_tables, write_csv as write_csv
from .inputs import (
    ReadOptions as ReadOptions,
    Sources as Sources,
    find_sources as find_sources,
    of_ranks as of_ranks,
    read_ranks as read_ranks,
)
from .nested import HostOps as HostOps, host_ops as host_ops
from .overview_charts import gains as gains, limits as limits, spent as spent
from .page import is_page_name as is_page_name, render as render
from .report import (
    Report as Report,
    ReportRequest as ReportRequest,
    report_on as report_on,
    report_on_diff as report_on_diff,
)
from .text import Hints as Hints, summary_text as summary_text, tables_text as tables_text
from .timeline import Timeline as Timeline, timeline as timeline
from .units import in_suitable_units as in_suitable_units
