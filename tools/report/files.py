"""Tables in, files and JSON out: one CSV per table, or one object with a key per table and the rows as objects."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...schema.errors import DataError
from ...schema.files import open_output
from ..analyses.table import Table


def as_json(tables: Iterable[Table]) -> dict[str, list[dict[str, Any]]]:
    """The rows of every table by the table's name; null for unknown numbers."""
    return {table.name: table.rows() for table in tables}


def write_csv(tables: Iterable[Table], folder: Path) -> None:
    """Writes NAME.csv for every table, each whole or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made a folder ({error.strerror or error})") from error
    for table in tables:
        text = io.StringIO(newline="")
        out = csv.writer(text)
        out.writerow(column.name for column in table.columns)
        out.writerows(row.values() for row in table.rows())
        with open_output(str(folder / f"{table.name}.csv")) as stream:
            stream.write(text.getvalue().encode("utf-8", "replace"))
