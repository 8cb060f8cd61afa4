"""What tests of rocpd databases write and read: rows at times after EPOCH, changed by SQL, and the tables read."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
from execgraph.linker.readers import DeviceTrace

EPOCH = 9_000_000_000_001


def rows(trace: DeviceTrace) -> list[tuple[str, str, int, int, int, int, int]]:
    """(name, category, device, stream, start, end, launching API row) of every activity."""
    found = trace.activities
    columns = (found.device, found.stream, found.start - EPOCH, found.end - EPOCH, found.correlation)
    numbers = np.stack(columns, axis=1).tolist() if len(found.start) else []
    return [(found.name[row], found.category[row], *values) for row, values in enumerate(numbers)]


def sql(path: Path, script: str) -> str:
    """Runs a script on a database, which is made if there is none; its path as text."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA synchronous = OFF;" + script)
    return str(path)
