"""Writes the analyses of a run to files: tables as JSON or CSV, and device traces with events added to them."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from ...schema.errors import DataError
from ...schema.io import fresh_folder, locked, make_folder, open_output, put_in_place
from ..analyses import AnalysisOptions, Column, Finding, RankTrace, Table, overlay_events, write_overlay
from ..terminal import plain, print_json

FINDINGS = "findings"
ALL_TABLES = "all tables"
WAITING = ".tables"
"""The folder in which tables are written until all are complete."""
FORMULA = (*"=+-@\t\r\n", *"＝＋－＠")
"""The characters that a formula begins with, in half and full width."""


def findings_table(findings: Sequence[Finding], verdict: str) -> Table:
    """Returns the findings as a table, whose note is the verdict; NaN where no gain is known."""
    gains = [finding.gain for finding in findings]
    columns = [
        Column("finding", "", [finding.title for finding in findings]),
        Column("gain", "µs", np.array([gain.us if gain else np.nan for gain in gains], np.float64)),
        Column("gain_pct", "%", np.array([gain.pct if gain else np.nan for gain in gains], np.float64)),
        Column("evidence", "", [finding.evidence for finding in findings]),
        Column("advice", "", [finding.advice for finding in findings]),
        Column("table", "", [finding.table for finding in findings]),
    ]
    return Table(FINDINGS, "Findings", columns, verdict)


def with_notes(tables: Iterable[Table], note: str = "") -> Iterator[Table]:
    """Yields the tables, and a table of their notes, with a note on all of them."""
    notes = {ALL_TABLES: note} if note else {}
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


def overlay_path(path: str, rank: int, several: bool) -> str:
    """Returns the file of a rank's overlay: `path`, or one beside it for each of several ranks.

    >>> overlay_path("out/run.json.gz", 3, several=True)
    'out/run.rank3.json.gz'
    """
    if not several:
        return path
    stem, dot, ending = Path(path).name.partition(".")
    return str(Path(path).with_name(f"{stem}.rank{rank}{dot}{ending}"))


def lay_over(rank: RankTrace, path: str, options: AnalysisOptions) -> None:
    """Writes the rank's device trace with counters, the critical path and kernel patterns.

    Raises DataError if it has no device trace.
    """
    if not rank.path:
        raise DataError(
            f"rank {rank.rank}: has no device trace to lay anything over; give it in place of what was made from it"
        )
    write_overlay(rank.path, path, overlay_events(rank, options))
