"""Formats a report for a terminal: the verdict, the findings and tables; writes tables as JSON or CSV."""

import csv
import io
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ...schema.columns import shortened, time_text
from ...schema.errors import Remedy, Spelled
from ...schema.io import fresh_folder, locked, make_folder, open_output, put_in_place
from ...schema.linked import STEP_MARK
from ..analyses import Column, Table
from ..terminal import in_one_line, plain, print_json
from .cells import cell, heading
from .report import FINDINGS, Report
from .statements import PHASES, overlap

OF_HOST = (
    "host_phases", "host_time_per_op", "critical_path", "modules", "memory_timeline", "collectives_over_ranks", "trace_diff",
)  # fmt: skip
"""The analyses that can have rows for a run without a device."""
NO_DEVICE = "no device activity was recorded"
NO_ROWS = "no rows"
ROWS, WIDEST, NARROW = 12, 56, 30
COLUMNS, INDENT = 100, "     "
FINDINGS_SHOWN = 5
NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=%|µs|ms|s\b)")
QUOTED = re.compile(r"--scale '[^']*'")
TOGETHER = "\xa0"
ALL_FINDINGS = Spelled("--all", "report.findings")
ALL_TABLES = Spelled(
    "Tables: --all or --only NAME; all rows: --csv DIR; page with charts and timeline: -o report.html",
    "All tables by name: report.tables; page with charts and timeline: eg.report(inputs, 'report.html')",
)
"""Where there is more of them."""
WAITING = ".tables"
"""The folder in which tables are written until all are complete."""
FORMULA = (*"=+-@\t\r\n", *"＝＋－＠")
"""The characters that a formula begins with, in half and full width."""


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
    """Returns the verdict, the findings in the order of their gain, how the ranks spent the run, and where more is."""
    gains = sum(finding.gain is not None for finding in report.findings)
    # where nothing has a gain, what limits the trust is all there is to say
    count = min(gains, FINDINGS_SHOWN) or len(report.findings)
    chosen = [_short_table(report)]
    if "trace_diff_runs" in report.tables:
        # without the marks of steps; without times, to be narrow
        diff = report.tables["trace_diff"]
        names = "kind", "name", "shape", "category", "difference", "count_a", "count_b"
        is_work = np.array([not name.startswith(STEP_MARK) for name in diff["name"]], np.bool_)
        columns = [column for column in diff.columns if column.name in names]
        differing = Table(diff.name, "What differs most", columns, diff.note).take(is_work)
        chosen = [report.tables["trace_diff_runs"], differing]
    tables = (as_text(table, NARROW) for table in chosen if table)
    return "\n\n".join(filter(None, [*_advice(report, count), *tables, str(ALL_TABLES)]))


def _advice(report: Report, count: int) -> list[str]:
    """Returns the verdict, so many findings with a gain, the other titles, what all bring if gains do not add up."""
    findings, gains = report.findings, [finding for finding in report.findings if finding.gain is not None]
    lines = ["Seen, but not known to limit the run:"] * bool(findings and not gains)
    listed = gains[:count] if count < len(findings) else findings
    for number, finding in enumerate(listed, 1):
        saves = f". {finding.remedy} would save {finding.gain.text}" if finding.gain else ""
        lines.append(_wrapped(f"{number:>3}. {finding.title}{saves}", INDENT))
        parts = finding.evidence, f"→ {finding.advice}", finding.question and f"? {finding.question}"
        lines += [
            _wrapped(f"{INDENT}{part}", f"{INDENT}{'  ' * (number > 0)}") for number, part in enumerate(parts) if part
        ]
    titles = [finding.title for finding in findings if finding not in listed]
    if titles:
        lines.append(_wrapped(f"     Also: {'; '.join(titles)} ({ALL_FINDINGS} says more)", INDENT))
    return [_wrapped(report.verdict), "\n".join(lines), _wrapped(overlap(report.together)) if report.together else ""]


def _wrapped(text: str, indent: str = "") -> str:
    """Returns the text in lines of COLUMNS, with no number apart from its unit and no question in pieces."""
    joined = NUMBER_AND_UNIT.sub(TOGETHER, in_one_line(text))
    joined = QUOTED.sub(lambda quoted: quoted[0].replace(" ", TOGETHER), joined)
    lines = textwrap.fill(joined, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace(TOGETHER, " ")


def _short_table(report: Report) -> Table | None:
    """Returns how each device spent the run; without a device the phases of the host's steps."""
    names = ("temporal_breakdown", "critical_path_replay", "communication_computation_overlap", "host_phases")
    devices, path, overlapping, phases = map(report.tables.get, names)
    clock = "" if report.is_of_recording else "recorded "
    if not devices or not path:
        return _phases(phases, clock) if phases is not None else None
    # a job that trace-scale made was never measured
    run = float(np.asarray(path["measured"])[0]) or float(np.asarray(path["replayed"])[0])
    busy = np.asarray(devices["busy"])
    times: dict[str, Any] = {"busy": busy, "computing": devices["compute"], "idle": run - busy}
    if overlapping is not None:
        exposed = {(row["rank"], row["device"]): row["exposed_communication"] for row in overlapping.rows()}
        of_devices = zip(devices["rank"], devices["device"], strict=True)
        times["exposed_communication"] = [exposed.get(device, 0.0) for device in of_devices]
        times["idle"] = times.pop("idle")
    shares = [Column(f"{name}_pct", "%", 100 * np.asarray(time) / (run or 1.0)) for name, time in times.items()]
    columns = [*devices.columns[:2], *shares, Column("activities", "", devices["activities"])]
    partly = ", as far as its work was recorded" if report.lost_work else ""
    return Table("devices", f"How each device spent the {clock}run of {time_text(run)}{partly}", columns)


def _phases(table: Table, clock: str) -> Table:
    """Returns the shares of the phases of each step in percent, in a title and not in each heading, to be narrow."""
    time = np.asarray(table["time"], np.float64)
    pct = {name: 100 * np.asarray(table[name], np.float64) / np.where(time > 0, time, 1) for name in PHASES}
    titles = ("python" if name == "between_ops" else name.replace("_and_", "/").replace("_", " ") for name in PHASES)
    shares = [Column(title, "", np.round(of, 1)) for title, of in zip(titles, pct.values(), strict=True)]
    title = f"Time of the host by phase of each {clock}step, in % (python: between ops)"
    return Table(table.name, title, [*table.columns[:2], Column("time", "ms", time / 1000), *shares])


def tables_text(report: Report) -> str:
    """Returns the verdict and all findings, or how to record what is missing; the tables; why others have no rows."""
    tables = [table for name, table in report.tables.items() if name != FINDINGS]
    advice = _advice(report, len(report.findings)) if report.verdict else ["\n".join(report.advice)]
    missing = [f"  {reason}: {'; '.join(titles)}" for reason, titles in absent_tables(tables, report.on_device).items()]
    absent = "\n".join(["Not in this run", *missing]) if missing else ""
    return "\n\n".join(filter(None, [*advice, report.clock_of_tables, *map(as_text, filter(None, tables)), absent]))


def as_text(table: Table, widest: int = WIDEST) -> str:
    """Returns the title, the note, and the first ROWS rows of a table, without columns of which nothing is known."""
    lines = [_wrapped(table.title + (f" ({table.note})" if table.note else ""), "  ")]
    if len(table):
        rows = zip(*(_cells(column, widest) for column in table.columns if not column.is_empty), strict=True)
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


def with_notes(tables: Iterable[Table], note: str = "") -> Iterator[Table]:
    """Yields the tables, and a table of their notes, with a note on all of them."""
    notes = {"all tables": note} if note else {}
    for table in tables:
        notes |= {table.name: table.note} if table.note else {}
        yield table
    yield Table("notes", "Notes", [Column("table", "", [*notes]), Column("note", "", [*notes.values()])])


def print_tables(tables: Iterable[Table], note: str = "") -> None:
    """Prints one JSON object: the rows of every table by the table's name, null for unknown numbers."""

    def pieces() -> Iterator[bytes]:
        separator = b"{"
        for table in with_notes(tables, note):
            yield separator + orjson.dumps(table.name) + b":"
            yield from table.json_pieces()
            separator = b",\n"
        yield b"}\n"

    print_json(pieces())


def write_csv(tables: Iterable[Table], folder: Path, note: str = "") -> None:
    """Writes NAME.csv for every table; if one fails, none is written."""
    make_folder(folder)
    with locked(folder / f"{WAITING}.lock", str(folder)), fresh_folder(folder / WAITING) as waiting:
        names = []
        for table in with_notes(tables, note):
            names.append(f"{table.name}.csv")
            with open_output(str(waiting / names[-1])) as stream:
                stream.write(_lines([[column.name for column in table.columns]]))
                for piece in table.pieces():
                    stream.write(_lines(row.values() for row in piece.rows()))
        for name in names:
            put_in_place(waiting / name, folder / name)


def _lines(rows: Iterable[Iterable[Any]]) -> bytes:
    r"""Returns rows as CSV; a text that a spreadsheet would take for a formula gets a ' in front, as when typed.

    Control characters of terminals become escapes.

    >>> print(_lines([["=1+1", "gemm\x1b[2J", -1.5]]).decode().rstrip())
    '=1+1,gemm\x1b[2J,-1.5
    """
    text = io.StringIO(newline="")
    csv.writer(text).writerows(
        [plain("'" * value.startswith(FORMULA) + value) if isinstance(value, str) else value for value in row]
        for row in rows
    )
    return text.getvalue().encode("utf-8", "replace")
