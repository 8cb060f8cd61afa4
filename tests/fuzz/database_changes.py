"""Changes a database in its cells, rows, tables or bytes."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from random import Random

from fuzz.byte_changes import changed_bytes
from fuzz.values import CHANGES

CELLS = [
    None, -1, 0, 1 << 31, (1 << 63) - 1, -(1 << 63), 0.5, 1e300, float("inf"), "", "NaN", "x" * 70_000, "\0", b"\xff\xfe", "9" * 40,
]  # fmt: skip


def change_database(path: Path, random: Random) -> None:
    """Changes cells, rows, tables, or bytes of the database."""
    if random.random() < 0.2:
        path.write_bytes(changed_bytes(path.read_bytes(), random))
        return
    with closing(sqlite3.connect(path)) as connection:
        for _ in range(random.choice(CHANGES)):
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            if tables:
                with suppress(sqlite3.Error):
                    _change_table(connection, random.choice(tables), random)
        connection.commit()


def _change_table(connection: sqlite3.Connection, table: str, random: Random) -> None:
    columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
    column, other = random.choice(columns), random.choice(columns)
    some = random.choice(
        ["", f'WHERE rowid = (SELECT rowid FROM "{table}" ORDER BY rowid LIMIT 1 OFFSET {random.randrange(3)})']
    )
    way = random.random()
    if way < 0.5:
        connection.execute(f'UPDATE "{table}" SET "{column}" = ? {some}', (random.choice(CELLS),))
    elif way < 0.6:
        connection.execute(f'UPDATE "{table}" SET "{column}" = "{other}" {some}')
    elif way < 0.7:
        connection.execute(f'DELETE FROM "{table}" {some}')
    elif way < 0.8:
        rest = ", ".join(f'"{name}"' for name in columns[1:])
        connection.execute(f'INSERT INTO "{table}" ({rest}) SELECT {rest} FROM "{table}"')
    else:
        connection.execute(
            random.choice(
                [
                    f'DROP TABLE "{table}"',
                    f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}_"',
                    f'ALTER TABLE "{table}" DROP COLUMN "{column}"',
                    f'ALTER TABLE "{table}" RENAME TO "{table}_"',
                ]
            )
        )
