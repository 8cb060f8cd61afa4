"""Formats a report for a terminal: the verdict, the findings and one table, in 100 columns; or all tables, by their
first rows, and why others have none.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from ...schema.columns import Floats, time_text
from ...schema.errors import Remedy, Spelled
from ...schema.linked import STEP_MARK
from ..analyses import Column, Finding, Table
from ..terminal import in_one_line
from .cells import cell, heading, shortened
from .files import FINDINGS
from .report import Report
from .statements import overlap

OF_HOST = (
    "host_phases", "host_time_per_op", "critical_path", "modules", "memory_timeline", "collectives_over_ranks", "trace_diff", "what_if",
)  # fmt: skip
"""The analyses that can have rows for a run without a device."""
NO_DEVICE = "no device activity was recorded"
NO_ROWS = "no rows"
ROWS, WIDEST, NARROW = 12, 56, 30
COLUMNS, INDENT = 100, "     "
FINDINGS_SHOWN = 5
NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=%|µs|ms|s\b)")
TOGETHER = "\xa0"
PHASES = {"forward": "", "backward": "", "optimizer": "", "data_loading": "", "waiting": "", "between_ops": "python"}
"""The phases of a step in the short table, and what they are called there where that is shorter."""
ALL_FINDINGS = Spelled("--all", "report.findings")
ALL_TABLES = Spelled(
    "Tables: --all or --only NAME; all rows: --csv DIR; page with charts and timeline: -o report.html",
    "All tables by name: report.tables; page with charts and timeline: eg.report(inputs, 'report.html')",
)
"""Where there is more of them."""


def absent_tables(tables: Iterable[Table], on_device: bool) -> dict[str, list[str]]:
    """Returns the titles of the tables without rows by reason, without details whose main table has none either."""
    titles_by_reason: dict[str, dict[str, str]] = {}
    for table in tables:
        if len(table):
            continue
        is_possible = on_device or table.name.startswith(OF_HOST)
        titles = titles_by_reason.setdefault(table.note or NO_ROWS if is_possible else NO_DEVICE, {})
        if not any(table.name.startswith(f"{name}_") for name in titles):
            titles[table.name] = table.title
    return {reason: [*titles.values()] for reason, titles in titles_by_reason.items()}


def summary_text(report: Report) -> str:
    """Returns the verdict, the findings in the order of their gain, how the ranks spent the run, and where there
    is more.
    """
    gains = sum(finding.gain is not None for finding in report.findings)
    # where nothing has a gain, what limits the trust is all there is to say
    count = min(gains, FINDINGS_SHOWN) or len(report.findings)
    findings = "\n".join(_finding_lines(report.findings, count))
    chosen = [_answers(report.tables.get("what_if")), _short_table(report)]
    if "trace_diff_runs" in report.tables:
        chosen = [report.tables["trace_diff_runs"], _largest_differences(report.tables["trace_diff"])]
    tables = [table for table in chosen if table is not None and len(table)]
    parts = [
        _wrapped(report.verdict, ""),
        findings,
        _overlap_text(report),
        *(as_text(table, NARROW) for table in tables),
        str(ALL_TABLES),
    ]
    return "\n\n".join(filter(None, parts))


def _finding_lines(findings: list[Finding], count: int) -> Iterator[str]:
    """Yields so many findings with a gain, and the titles of the others; of those without a gain all there is to say if
    all findings are shown.
    """
    gains = [finding for finding in findings if finding.gain is not None]
    listed = gains[:count] if count < len(findings) else findings
    for number, finding in enumerate(listed, 1):
        gain = f" ({finding.gain.text})" if finding.gain else ""
        yield _wrapped(f"{number:>3}. {finding.title}{gain}", INDENT)
        yield _wrapped(f"{INDENT}{finding.evidence}", INDENT)
        yield _wrapped(f"{INDENT}→ {finding.advice}", f"{INDENT}  ")
    titles = [finding.title for finding in findings if finding not in listed]
    if titles:
        yield _wrapped(f"     Also: {'; '.join(titles)} ({ALL_FINDINGS} says more)", INDENT)


def _overlap_text(report: Report) -> str:
    """Returns what all findings bring together, where their gains cannot be added; else ""."""
    gain = report.together
    return _wrapped(overlap(gain), "") if gain else ""


def _wrapped(text: str, indent: str) -> str:
    """Returns the text in lines of COLUMNS, with no number apart from its unit."""
    joined = NUMBER_AND_UNIT.sub(TOGETHER, in_one_line(text))
    lines = textwrap.fill(joined, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace(TOGETHER, " ")


def _answers(table: Table | None) -> Table | None:
    """Returns the answers to what-if questions without what follows from the other columns, to be narrow."""
    if table is None:
        return None
    return replace(table, columns=[column for column in table.columns if column.name != "saved"])


def _short_table(report: Report) -> Table | None:
    """Returns how each device spent the run; without a device the phases of the host's steps."""
    devices, path = report.tables.get("temporal_breakdown"), report.tables.get("critical_path_replay")
    if devices is None or not len(devices) or path is None or not len(path):
        return _phases(report.tables.get("host_phases"), _clock(report))
    # a job that trace-scale made was never measured
    run = float(np.asarray(path["measured"])[0]) or float(np.asarray(path["replayed"])[0])
    exposed = report.tables.get("communication_computation_overlap")
    columns = [
        *devices.columns[:2],
        _share("busy_pct", devices["busy"], run),
        _share("computing_pct", devices["compute"], run),
        *(
            [_share("exposed_communication_pct", _of_devices(devices, exposed, "exposed_communication"), run)]
            if exposed is not None
            else []
        ),
        _share("idle_pct", run - np.asarray(devices["busy"]), run),
        Column("activities", "", devices["activities"]),
    ]
    return Table("devices", f"How each device spent the run of {time_text(run)}{_clock(report)}", columns)


def _clock(report: Report) -> str:
    """Returns that a table is as recorded, where what is above it is without a profiler; else ""."""
    return "" if report.is_of_recording else ", as recorded (the verdict is without a profiler)"


def _phases(table: Table | None, clock: str) -> Table | None:
    """Returns the shares of the phases of each step in percent, in a title and not in each heading, to be narrow."""
    if table is None:
        return None
    time = np.asarray(table["time"], np.float64)
    shares = [
        Column(short or name, "", np.round(100 * np.asarray(table[name], np.float64) / np.where(time > 0, time, 1), 1))
        for name, short in PHASES.items()
    ]
    title = f"Time of the host by phase of each step, in % (python: between ops){clock}"
    return Table(table.name, title, [*table.columns[:2], Column("time", "ms", time / 1000), *shares])


def _largest_differences(table: Table) -> Table:
    """Returns the ops, calls and kernels that differ most, without the marks of steps; without shapes and times, to be
    narrow.
    """
    names = ("kind", "name", "category", "difference", "count_a", "count_b")
    columns = [column for column in table.columns if column.name in names]
    is_work = np.array([not name.startswith(STEP_MARK) for name in table["name"]], np.bool_)
    return Table(table.name, "What differs most", columns).take(is_work)


def _share(name: str, time: object, run: float) -> Column:
    return Column(name, "%", 100 * np.asarray(time, np.float64) / (run or 1.0))


def _of_devices(devices: Table, table: Table, column: str) -> Floats:
    """Returns a column of another table for each row of `devices`, 0 where it has none."""
    keys = [zip(rows["rank"], rows["device"], strict=True) if len(rows) else [] for rows in (devices, table)]
    values = dict(zip(keys[1], table[column], strict=True)) if len(table) else {}
    return np.array([values.get(key, 0.0) for key in keys[0]], np.float64)


def tables_text(report: Report) -> str:
    """Returns the verdict and all findings, or how to record what is missing; the text of all tables with rows; and why
    the others have none.
    """
    tables = [table for name, table in report.tables.items() if name != FINDINGS]
    findings = "\n".join(_finding_lines(report.findings, len(report.findings)))
    advice = [_wrapped(report.verdict, ""), findings, _overlap_text(report)]
    if not report.verdict:
        advice = ["\n".join(report.advice)]
    parts = [*filter(None, [*advice, report.clock_of_tables]), *(as_text(table) for table in tables if len(table))]
    missing = [f"  {reason}: {'; '.join(titles)}" for reason, titles in absent_tables(tables, report.on_device).items()]
    return "\n\n".join([*parts, *(["\n".join(["Not in this run", *missing])] if missing else [])])


def as_text(table: Table, widest: int = WIDEST) -> str:
    """Returns the title, the note, and the first ROWS rows of a table, texts of at most `widest` letters."""
    lines = [in_one_line(table.title + (f" ({table.note})" if table.note else ""))]
    if len(table):
        rows = zip(*(_cells(column, widest) for column in table.columns), strict=True)
        lines += [f"  {'  '.join(row).rstrip()}" for row in rows]
    if len(table) > ROWS:
        lines.append(f"  … {len(table) - ROWS:,} more rows ({Remedy.CSV})")
    return "\n".join(lines)


def _cells(column: Column, widest: int) -> Iterable[str]:
    """Returns the heading and the cells of a column, all of one width; numbers to the right, texts to the left."""
    if isinstance(column.values, list):
        texts = (shortened(in_one_line(cell(text)), widest) for text in column.values[:ROWS])
        cells = [heading(column.name, column.unit), *texts]
        return [text.ljust(max(map(len, cells))) for text in cells]
    values = column.values[:ROWS].tolist()
    cells = [heading(column.name, column.unit), *(cell(value, column.name, column.unit) for value in values)]
    return [text.rjust(max(map(len, cells))) for text in cells]
