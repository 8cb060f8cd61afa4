"""Changes the bytes of any file, JSON where it hurts, and databases in their cells, rows, tables or bytes.

Values of JSON become others of every type and size; parts are removed, doubled, exchanged.
"""

import copy
import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

from fuzz.texts import AS_IT_STANDS, CHANGES, LITERALS, NUMBERS, VALUES

TOKENS = [
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\n", b"\0", b"null", b"NaN", b"-1", b"1e400", b"}]", b"},"),
    *(b'{"ph":', b'"name": "', b'"traceEvents": [', b'"nodes": [', b'"ts": ', b"\\ud800", b"\xff", b"\xef\xbb\xbf"),
    *(b"\xff" * 9, b"9" * 400, b"[" * 3000, b"\x80\x80\x80\x80\x08"),
]


def changed_bytes(text: bytes, random: Random) -> bytes:
    """The text with a stretch of it lost, doubled, moved, overwritten, or of another place."""
    begin, elsewhere = random.randrange(len(text) + 1), random.randrange(len(text) + 1)
    end, token = begin + random.choice([1, 2, 10, 100, 1000, 10_000]), random.choice(TOKENS)
    flipped = bytes(byte ^ 1 << random.randrange(8) for byte in text[begin : begin + 1])
    return random.choice(
        [
            text[:begin],
            text[:begin] + text[end:],
            text[:end] + text[begin:],
            text[:begin] + token + text[begin:],
            text[:begin] + token + text[begin + len(token) :],
            text[:begin] + text[elsewhere : elsewhere + end - begin] + text[end:],
            text[:begin] + bytes(len(text[begin:end])) + text[end:],
            text[:begin] + flipped + text[begin + 1 :],
        ]
    )


SMALL = 2000
SHORT = 9
"""Lists of fewer parts may mean something by their place."""

CONTAINERS = (dict, list)
Slot = tuple[Any, Any]
"""A list or an object, and the place or key of something in it."""


def changed_json(text: bytes, random: Random) -> bytes:
    """The JSON with some changes of its values, then sometimes one of its bytes."""
    document = json.loads(text)
    for _ in range(random.choice(CHANGES)):
        with suppress(_NothingThere):
            random.choice(JSON_CHANGES)(document, random)
    written = json.dumps(document, indent=random.choice([None, None, 1]))
    for literal in LITERALS:
        written = written.replace(json.dumps(literal), literal.removeprefix(AS_IT_STANDS))
    changed = written.encode()
    return changed_bytes(changed, random) if random.random() < 0.05 else changed


class _NothingThere(Exception):
    """The document has no value left to change."""


def _keys(container: Any) -> list[Any]:
    return list(container) if isinstance(container, dict) else list(range(len(container)))


def _slot(document: Any, random: Random) -> Slot:
    """Some value, by its meaning: what is in a thousand nodes is not chosen more often than what is there once."""
    found: dict[str, list[Slot]] = defaultdict(list)
    if type(document) in CONTAINERS:
        _collect(document, "", found)
    if not found:
        raise _NothingThere
    return random.choice(found[random.choice(list(found))])


def _collect(container: Any, meaning: str, found: dict[str, list[Slot]]) -> None:
    """The slots of a document by the keys on the way to them; what lists a name and a value is known by the name."""
    is_object = type(container) is dict
    if is_object and "value" in container:
        meaning = f"{meaning}.{container.get('name')}"
    else:
        meaning += "."
    many = not is_object and len(container) >= SHORT
    for key, value in container.items() if is_object else enumerate(container):
        mine = f"{meaning}{'*' if many else key}"[:200]
        found[mine].append((container, key))
        if type(value) in CONTAINERS:
            _collect(value, mine, found)


def _replace(document: Any, random: Random) -> None:
    here, key = _slot(document, random)
    here[key] = copy.deepcopy(random.choice(VALUES))


def _alter(document: Any, random: Random) -> None:
    """Another value of its type, or the same of another type."""
    here, key = _slot(document, random)
    value = here[key]
    if isinstance(value, int | float) and not isinstance(value, bool):
        choices: list[Any] = [value + 1, -value, value * 10**6, value * 10**15, str(value), float(value), [value]]
        here[key] = random.choice(choices)
    elif isinstance(value, str):
        here[key] = random.choice(
            [value[:SMALL] * 100, value[: len(value) // 2], value + "\0", [value], {value: value}, value.upper()]
        )
    else:
        here[key] = random.choice([[value], {"x": value}, json.dumps(value)])


def _remove(document: Any, random: Random) -> None:
    here, key = _slot(document, random)
    del here[key]


def _repeat(document: Any, random: Random) -> None:
    here, key = _slot(document, random)
    again = copy.deepcopy(here[key])
    if isinstance(here, list):
        here[key:key] = [again] * random.choice([1, 1, 3, 50] if len(repr(again)) < SMALL else [1])
    else:
        here[random.choice(_keys(here))] = again


def _exchange(document: Any, random: Random) -> None:
    (here, key), (there, other) = _slot(document, random), _slot(document, random)
    first, second = copy.deepcopy(here[key]), copy.deepcopy(there[other])
    here[key] = second
    with suppress(IndexError):
        there[other] = first


def _rename(document: Any, random: Random) -> None:
    here, key = _slot(document, random)
    if isinstance(here, dict):
        here[random.choice(["", "id", "name", "args", "x" * 2000, "\0"])] = here.pop(key)


def _everywhere(document: Any, random: Random) -> None:
    """The same in every object of a list, as a writer with a defect does it."""
    _, key = _slot(document, random)
    value, growing = random.choice([*VALUES, *NUMBERS]), random.random() < 0.3
    for number, one in enumerate(_objects_with(document, key)):
        one[key] = value + number if growing and type(value) in (int, float) else copy.deepcopy(value)


def _objects_with(value: Any, key: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        mine = [value] if key in value else []
        return mine + [one for inside in value.values() for one in _objects_with(inside, key)]
    return [one for inside in value for one in _objects_with(inside, key)] if isinstance(value, list) else []


JSON_CHANGES: list[Callable[[Any, Random], None]] = [
    _replace, _replace, _replace, _alter, _alter, _remove, _repeat, _exchange, _rename, _everywhere,
]  # fmt: skip


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
