"""Reports on runs for people: one HTML page, tables on the terminal, CSV and JSON.

Nothing here loads what draws charts: only `render` does.
"""

from .inputs import (
    ReadOptions as ReadOptions,
    Sources as Sources,
    find_sources as find_sources,
    of_ranks as of_ranks,
    read_ranks as read_ranks,
)
from .output import (
    print_tables as print_tables,
    summary_text as summary_text,
    tables_text as tables_text,
    write_csv as write_csv,
)
from .page import is_page_name as is_page_name, render as render
from .report import (
    Report as Report,
    ReportRequest as ReportRequest,
    overlay_path as overlay_path,
    report_on as report_on,
    report_on_diff as report_on_diff,
)
from .timeline import timeline as timeline
