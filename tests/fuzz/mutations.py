"""Changes files where it hurts: values become others of every type and size; parts are taken away, doubled and exchanged.

JSON is changed in its values, a graph in the fields of its messages, a database in its cells, any file in its bytes. All by a `Random`,
so that a seed tells the file.
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

from execgraph.schema.graph.varints import varint

AS_IT_STANDS = "@as it stands@"
"""Before a text that is to stand in JSON without quotes."""
INT32, INT64 = 1 << 31, 1 << 63
NUMBERS = [
    *(-1, 0, 1, 7, 0.5, 255, 10**17, 1e18, 1 << 62, (1 << 53) + 1),
    *(
        INT32,
        -INT32 - 1,
        2 * INT32,
        INT64 - 1,
        INT64,
        -INT64,
        -INT64 - 1,
        2 * INT64,
        -2 * INT64,
        10**30,
        -(10**30),
        1e300,
        -1e300,
    ),
]
LITERALS = [
    f"{AS_IT_STANDS}{text}"
    for text in ("1e400", "NaN", "-Infinity", "-0.0", "9" * 400, '"\\ud800"', "1e-400", "[" * 900 + "]" * 900)
]
TENSOR, HUGE_TENSOR = [3, 4, 0, 5, 4, "cuda:0"], [*[10**30] * 5, "cuda:" + "9" * 30]
TEXTS = [
    *(
        "",
        " ",
        "\0",
        "é\u2028",
        "x" * 70_000,
        "9" * 5000,
        str(10**30),
        "-1",
        "7",
        "0x7fffffffffffffff",
        "NaN",
        "nan",
        "inf",
        "None",
    ),
    *("[1, 2]", "[[[", "{", "[0, 1, ...]", '["cpu", [1e999]]', "Tensor(float)", "rank 7", "0-99999999", "0-3:0"),
    *(
        "ProfilerStep#" + "9" * 30,
        "ProfilerStep#-1",
        "ProfilerStep#",
        "kernel",
        "cpu_op",
        "gpu_memcpy",
        "cuda_sync",
        "cuda_runtime",
    ),
    *(
        "X",
        "M",
        "record_param_comms",
        "nccl:all_reduce",
        "aten::mm",
        "## process_group:init ##",
        "cudaStreamSynchronize",
    ),
    *(
        "cudaStreamWaitEvent",
        "cudaGraphLaunch",
        "ncclDevKernel_SendRecv()",
        "Stream Wait Event",
        "all_to_allv",
        "broadcast",
        "recv",
    ),
]
LISTS = [
    [],
    [None],
    [[]],
    [[[[[1]]]]],
    [1, 2, 3],
    [1, 1],
    [10**30] * 9,
    ["x", 1, None],
    [{}],
    TENSOR,
    HUGE_TENSOR,
    [TENSOR],
    [HUGE_TENSOR, 1],
]
VALUES: list[Any] = [*NUMBERS, *LITERALS, *TEXTS, *LISTS, None, True, False, {}, {"a": {"b": [None]}}]
SMALL = 2000
SHORT = 9
"""Lists of fewer parts may mean something by their place."""
CHANGES = (1, 1, 2, 3, 5, 10)

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
    """Some value, by its meaning: what is there in a thousand nodes is not chosen more often than what is there once."""
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


# any file

TOKENS = [
    *(b'"', b"{", b"}", b"[", b"]", b",", b"\n", b"\0", b"null", b"-1", b"1e400"),
    *(b"\xff" * 9, b"9" * 400, b"[" * 3000, b"\x80\x80\x80\x80\x08"),
]


def changed_bytes(text: bytes, random: Random) -> bytes:
    """The text with a stretch of it lost, doubled, moved, or overwritten."""
    begin, elsewhere = random.randrange(len(text) + 1), random.randrange(len(text) + 1)
    end, token = begin + random.choice([1, 2, 10, 100, 1000]), random.choice(TOKENS)
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


# graphs

Field = tuple[int, int, Any]
"""Number, wire type, and the value: a number, the fields of a message, or bytes."""
WIRE_NUMBERS = [number % (1 << 64) for number in NUMBERS if isinstance(number, int)]


def changed_graph(content: bytes, random: Random) -> bytes:
    """The graph with some changed messages."""
    messages = []
    at = 0
    while at < len(content):
        size, at = _varint_at(content, at)
        messages.append(content[at : at + size])
        at += size
    for _ in range(random.choice(CHANGES)):
        chosen = random.randrange(len(messages))
        fields = _fields(messages[chosen])
        if fields and random.random() < 0.8:
            _change_field(fields, random)
            messages[chosen] = _message(fields)
        else:
            random.choice([_lose, _double, _move])(messages, chosen, random)
        if not messages:
            break
    changed = b"".join(varint(len(message)) + message for message in messages)
    return changed_bytes(changed, random) if random.random() < 0.2 else changed


def _lose(parts: list[Any], chosen: int, _: Random) -> None:
    del parts[chosen]


def _double(parts: list[Any], chosen: int, random: Random) -> None:
    parts[chosen:chosen] = [copy.deepcopy(parts[chosen])] * random.choice([1, 1, 20])


def _move(parts: list[Any], chosen: int, random: Random) -> None:
    parts.insert(random.randrange(len(parts)), parts.pop(chosen))


def _change_field(fields: list[Field], random: Random) -> None:
    chosen = random.randrange(len(fields))
    number, wire, value = fields[chosen]
    if isinstance(value, list) and value and random.random() < 0.85:
        _change_field(value, random)
        return
    way = random.random()
    if way < 0.3:
        random.choice([_lose, _double, _move])(fields, chosen, random)
    elif way < 0.4:
        fields[chosen] = random.choice([0, 1, 2, 3, 5, 10, 19, 31, 1 << 20, (1 << 29) - 1]), wire, value
    elif wire == 2:
        text = random.choice([text for text in VALUES if isinstance(text, str)]).encode("utf-8", "surrogatepass")
        fields[chosen] = (
            number,
            wire,
            random.choice([text, b"", b"\xff\xfe", b"".join(map(varint, WIRE_NUMBERS)), b"\x80"]),
        )
    elif wire == 0:
        fields[chosen] = number, wire, random.choice(WIRE_NUMBERS)
    else:
        fields[chosen] = (
            number,
            wire,
            random.choice([bytes(len(value)), b"\xff" * len(value), b"\x7f\xf0".ljust(len(value), b"\0")[::-1]]),
        )


def _fields(message: bytes) -> list[Field] | None:
    """The fields of a message, None where it is none."""
    fields: list[Field] = []
    at = 0
    try:
        while at < len(message):
            key, at = _varint_at(message, at)
            number, wire = key >> 3, key & 7
            if number == 0 or wire not in (0, 1, 2, 5):
                return None
            if wire == 0:
                value, at = _varint_at(message, at)
                fields.append((number, wire, value))
                continue
            size, at = _varint_at(message, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
            if at + size > len(message):
                return None
            content = message[at : at + size]
            at += size
            fields.append((number, wire, (_fields(content) or content) if wire == 2 else content))
    except IndexError:
        return None
    return fields


def _varint_at(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _message(fields: list[Field]) -> bytes:
    written = b""
    for number, wire, value in fields:
        written += varint(number << 3 | wire)
        if wire == 0:
            written += varint(value)
        else:
            content = _message(value) if isinstance(value, list) else value
            written += (varint(len(content)) if wire == 2 else b"") + content
    return written


# databases

CELLS = [
    None,
    -1,
    0,
    1 << 31,
    (1 << 63) - 1,
    -(1 << 63),
    0.5,
    1e300,
    float("inf"),
    "",
    "NaN",
    "x" * 70_000,
    "\0",
    b"\xff\xfe",
    "9" * 40,
]


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
