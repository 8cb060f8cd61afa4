"""What stands in changed files in place of what belongs there: odd values, texts and times; and other spellings.

Texts hold brackets, literals, JSON, escapes and control characters; times are equal, reversed, nested, far apart,
hugely scaled. JSON with its keys, rows, blanks and numbers written otherwise reads the same.
"""

import codecs
import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import zstandard

from fuzz.columns import TIMES, Slot, change_column

AS_IT_STANDS = "@as it stands@"
"""Before a text that is to stand in JSON without quotes."""
INT32, INT64 = 1 << 31, 1 << 63
NUMBERS = [
    -1, 0, 1, 7, 0.5, 255, 10**17, 1e18, 1 << 62, (1 << 53) + 1, INT32, -INT32 - 1, 2 * INT32,
    INT64 - 1, INT64, -INT64, -INT64 - 1, 2 * INT64, -2 * INT64, 10**30, -(10**30), 1e300, -1e300,
]  # fmt: skip
LITERALS = [
    f"{AS_IT_STANDS}{text}"
    for text in ("1e400", "NaN", "-Infinity", "-0.0", "9" * 400, '"\\ud800"', "1e-400", "[" * 900 + "]" * 900)
]
TENSOR, HUGE_TENSOR = [3, 4, 0, 5, 4, "cuda:0"], [*[10**30] * 5, "cuda:" + "9" * 30]
TEXTS = [
    "", " ", "\0", "é\u2028", "x" * 70_000, "9" * 5000, str(10**30), "-1", "7", "0x7fffffffffffffff", "NaN", "nan", "inf", "None",
    "[1, 2]", "[[[", "{", "[0, 1, ...]", '["cpu", [1e999]]', "Tensor(float)", "rank 7", "0-99999999", "0-3:0",
    "ProfilerStep#" + "9" * 30, "ProfilerStep#-1", "ProfilerStep#", "kernel", "cpu_op", "gpu_memcpy", "cuda_sync", "cuda_runtime",
    "X", "M", "record_param_comms", "nccl:all_reduce", "aten::mm", "## process_group:init ##", "cudaStreamSynchronize",
    "cudaStreamWaitEvent", "cudaGraphLaunch", "ncclDevKernel_SendRecv()", "Stream Wait Event", "all_to_allv", "broadcast", "recv",
]  # fmt: skip
LISTS = [
    [], [None], [[]], [[[[[1]]]]], [1, 2, 3], [1, 1], [10**30] * 9, ["x", 1, None], [{}], TENSOR, HUGE_TENSOR, [TENSOR],
    [HUGE_TENSOR, 1],
]  # fmt: skip
VALUES: list[Any] = [*NUMBERS, *LITERALS, *TEXTS, *LISTS, None, True, False, {}, {"a": {"b": [None]}}]
CHANGES = (1, 1, 2, 3, 5, 10)
"""How many changes a file may have."""


BRACKETS = (
    ("[", "]"), ("{", "}"), ("(", ")"), ('["', '"]'), ('{"a":', "}"), ("[{[]:", "}]"), ("-", ""), ("\\", ""), ('"', '"'), ("'", "'"),
)  # fmt: skip
UNUSABLE = (
    "{[]}", "[{[]:1}]", "{{}}", "{1: 2, []: 3}", "-[]", "+'a'", "[1]*10**9", "'a'*10**9", "1//0", "[*[1]]", "{**{}}", "(yield)",
    "[x for x in y]", "[1, 2", "1]", '[{"ranks": 5}]', '[{"pg_name": [], "ranks": {}}]', '[[{"ranks": [0, 1]}]]',
    '[{"pg_name": "0", "ranks": [0, 0, -1, 1e9]}]', "[1, 1.5, true, null]",
    '[{"pg_name": "0", "ranks": [], "group_size": 1000000000, "start": 0, "stride": 1}]',
)  # fmt: skip
"""What literal_eval, or who uses what it gives, may stumble over."""
DEPTHS = 1, 3, 100, 900, 5000, 100_000
ATOMS = (
    "1", "-0", "1e999", "9" * 4400, "0x1f", "1_0", "None", "True", "null", "NaN", "...", "'a' 'b'", "b'x'", "f'{x}'", "'\\ud800'", "x",
    "*a", "1+2j", "lambda: 0", "__import__('os')", '"\\u0022"', "", " ", "cuda:0", "Tensor(float)", "1" * 30, "[0, 1, ...]", "#", "\\",
)  # fmt: skip
PIECES = (
    '{"a":1},{"ph":"X"},', '"},{"', '"}]}', '"traceEvents": [', '"nodes": [', "\\u0022", "\\", "</script><script>alert(1)</script>",
    "<!--", "%s%n", "../", "=1+1|", '","', "\n", "\r\n", ";", "a::b(", "Tensor(a!) ", "ProfilerStep#1", "nn.Module: ", "rank 1",
)  # fmt: skip
CONTROLS = (
    "\x1b[31m", "\x1b]0;x\x07", "\0", "\b", "\r", "\x7f", "\x9b2J", "\u2028", "\u202e", "\ud800", "\udc00", "\ufeff", "\U0010ffff",
    "\n", "\t", "\v",
)  # fmt: skip
REPEATED = 1, 2, 50, 3000, 300_000
LONGEST_REPEATED = 30_000_000
SIZE = 1_000_000
ADDED = (
    "Concrete Inputs", "Process Group Ranks", "Process Group Name", "Input type", "Collective name", "dtype", "Module Hierarchy",
    "Call stack",
)  # fmt: skip


def change_texts(document: Any, random: Random) -> str:
    """Puts other texts into the slots of one meaning. Returns what was done, in words."""
    if random.random() < 0.3:
        _add(document, random)
    found: dict[str, list[Slot]] = defaultdict(list)
    _collect(document, "", found)
    if not found:
        return "no texts"
    # what is read as a literal, or quoted as one, is a small part of all texts
    literals = [key for key, slots in found.items() if slots[0][0][slots[0][1]][:1] in ("[", "{", "(")]
    groups = [
        key
        for key in found
        if "process_group:init ##.values" in key or "Concrete Inputs" in key or "Group Ranks" in key
    ]
    key = random.choice(random.choice([[*found], literals, groups]) or [*found])
    slots = found[key] if random.random() < 0.2 else [random.choice(found[key])]
    way = random.choice(TEXT_WAYS)
    room = SIZE // len(slots)
    for container, place in slots:
        container[place] = way(container[place], random)[:room]
    return f"{way.__name__.strip('_')} in {key}, {len(slots)} times"


def _collect(value: Any, meaning: str, found: dict[str, list[Slot]]) -> None:
    for place, inside in value.items() if isinstance(value, dict) else enumerate(value):
        # a name is what it is the name of: nodes of collectives are few
        key = meaning if isinstance(value, list) else f"{meaning.rpartition('.')[2]}.{_key(value, place)}"
        if isinstance(inside, str):
            found[key].append((value, place))
        elif isinstance(inside, dict | list):
            _collect(inside, key, found)


def _key(value: dict[str, Any], key: str) -> str:
    name = value.get("name")
    is_special = isinstance(name, str) and (key == "value" or "process_group" in name or "record_param" in name)
    return f"{key} of {name}" if is_special else key


def _add(document: Any, random: Random) -> None:
    rows = document.get("traceEvents", document.get("nodes")) if isinstance(document, dict) else document
    if not isinstance(rows, list) or not rows:
        return
    for row in random.sample(rows, min(len(rows), random.choice([1, 20]))):
        text = random.choice(TEXT_WAYS)(random.choice(["[1, 2]", "", '["1", "2"]']), random)[: SIZE // 20]
        row.setdefault("args", {})[random.choice(ADDED)] = random.choice([text, [text], [[text]]])


def _brackets(old: str, random: Random) -> str:
    opening, closing = random.choice(random.choice([BRACKETS[:2], BRACKETS]))
    depth = random.choice(DEPTHS)
    return opening * depth + random.choice(["", old, "1"]) + closing * random.choice([depth, depth, 0, depth + 1])


def _unusable(_: str, random: Random) -> str:
    return random.choice(UNUSABLE)


def _literals(old: str, random: Random, depth: int = 0) -> str:
    """What could be a literal of Python or JSON, and mostly is none."""
    if depth > 3 or random.random() < 0.3:
        return random.choice([*ATOMS, old, repr(old)])
    parts = [_literals(old, random, depth + 1) for _ in range(random.choice([0, 1, 2, 5]))]
    if random.random() < 0.4:
        parts = [f"{part}: {_literals(old, random, depth + 1)}" for part in parts]
    opening, closing = random.choice(BRACKETS[:3])
    return f"{opening}{', '.join(parts)}{random.choice(['', '', ','])}{closing}"


def _pieces(old: str, random: Random) -> str:
    piece = random.choice(PIECES) * random.choice(REPEATED)
    return random.choice([piece, old + piece, piece + old])


def _controls(old: str, random: Random) -> str:
    text = "".join(random.choice(CONTROLS) for _ in range(random.choice([1, 5])))
    at = random.randrange(len(old) + 1)
    return old[:at] + text * random.choice([1, 1, 100]) + old[at:]


def _quoted(old: str, random: Random) -> str:
    """JSON in JSON in JSON."""
    for _ in range(random.choice([1, 2, 5, 12])):
        old = json.dumps(random.choice([old, [old], {"name": old}]))
    return old


def _long(old: str, random: Random) -> str:
    old = old[: LONGEST_REPEATED // REPEATED[-1]]
    return random.choice([old or "x", "x", "é", "漢", "\U0001f600", " ", "9", "-", "::"]) * random.choice(REPEATED[2:])


TEXT_WAYS: tuple[Callable[[str, Random], str], ...] = (
    _brackets, _unusable, _literals, _pieces, _controls, _quoted, _long,
)  # fmt: skip


Span = tuple[float, float]
"""Start and duration."""
HOUR_US = 3600 * 10**6
CLASSES = {
    "all": ("",), "ops": ("cpu_op", "user_annotation"), "calls": ("cuda_runtime", "cuda_driver", "cudaLaunch"),
    "activities": ("kernel", "gpu_memcpy", "gpu_memset"), "waits": ("cuda_sync", "cuda_event"),
}  # fmt: skip


def change_times(document: dict[str, Any], random: Random) -> str:
    """Changes the times of a class of rows of a device trace or a linked trace. Returns what was done, in words."""
    if random.random() < 0.2:
        return change_column(document, TIMES, random)
    rows = document.get("traceEvents", document.get("nodes"))
    duration = "dur" if "traceEvents" in document else "inclusive_dur"
    chosen = random.choice([*CLASSES])
    # ops of linked traces have no category
    of_class = [row for row in rows if "" in CLASSES[chosen] or row.get("cat", "cpu_op") in CLASSES[chosen]]
    timed = [row for row in of_class if isinstance(row.get("ts"), int | float)]
    if chosen == "all" and random.random() < 0.3:
        timed = timed[random.randrange(len(timed)) :]
    said, way = random.choice([*TIME_WAYS.items()])
    if timed:
        spans = way([(row["ts"], row.get(duration, 0)) for row in timed], random)
        for row, (start, length) in zip(timed, spans, strict=True):
            row["ts"] = start
            if duration in row:
                row[duration] = length
    return f"{said} times of {chosen}, {len(timed)} rows"


def _equal(spans: list[Span], random: Random) -> list[Span]:
    start, length = random.choice(spans)
    return [(start, random.choice([length, own])) for _, own in spans]


def _mirrored(spans: list[Span]) -> list[Span]:
    """What was last comes first."""
    whole = min(start for start, _ in spans) + max(start + length for start, length in spans)
    return [(whole - start - length, length) for start, length in spans]


def _scaled(spans: list[Span], random: Random) -> list[Span]:
    factor = random.choice([0, 1e-3, 0.5, 1000, 1e6, 1e9, -1])
    first = spans[0][0] if random.random() < 0.7 else 0
    return [(first + (start - first) * factor, length * factor) for start, length in spans]


def _moved(spans: list[Span], by: float) -> list[Span]:
    return [(start + by, length) for start, length in spans]


def _far_apart(spans: list[Span], far: float) -> list[Span]:
    half = len(spans) // 2
    return spans[:half] + _moved(spans[half:], far)


def _coarse(spans: list[Span], step: int) -> list[Span]:
    return [(start // step * step, length // step * step) for start, length in spans]


def _lasting(spans: list[Span], length: float) -> list[Span]:
    return [(start, length) for start, _ in spans]


def _in_each_other(spans: list[Span], shorter: float) -> list[Span]:
    """Each begins in the one before, and is so much shorter."""
    first, count = spans[0][0], len(spans)
    return [(first + place, count + shorter * (count - 2 * place)) for place in range(count)]


TIME_WAYS: dict[str, Callable[[list[Span], Random], list[Span]]] = {
    "equal": _equal, "mirrored": lambda spans, random: _mirrored(spans),
    "reversed": lambda spans, random: spans[::-1], "shuffled": lambda spans, random: random.sample(spans, len(spans)),
    "scaled": _scaled,
    "lasting": lambda spans, random: _lasting(spans, random.choice([0, 0, -1, 1e-3, 0.4, 1e6, 1e12, 9e15, 1e300])),
    "shifted": lambda spans, random: _moved(spans, random.choice([0.3, 5, -5, HOUR_US, -HOUR_US, 1e12, 9e15])),
    "far apart": lambda spans, random: _far_apart(spans, random.choice([1e6, 1e12, 4e15])),
    "coarse": lambda spans, random: _coarse(spans, random.choice([1, 10, 1000])),
    "nested": lambda spans, random: _in_each_other(spans, 1),
    "staggered": lambda spans, random: _in_each_other(spans, 0),
}  # fmt: skip


BLANKS = "", " ", "\n", "\t", "\r\n", "  \n "
ROWS = "traceEvents", "nodes"


def spelled_anew(text: bytes, random: Random) -> tuple[bytes, str]:
    """The same JSON written in another way, and what is other, in words."""
    document = json.loads(text)
    # the nodes of a graph are in the order of its file
    way = random.choice([*SPELLING_WAYS, *PACKINGS, None, *([_order_of_rows] if "metadata" not in document else [])])
    if way is _order_of_rows:
        _order_of_rows(document, random)
    # all at once, too
    ways = [way] if way in SPELLING_WAYS else SPELLING_WAYS if way is None else []
    written = _written(document, _Spelling(random, ways)).encode()
    if way in PACKINGS or (way is None and random.random() < 0.3):
        written = (way or random.choice(PACKINGS))(written, random)
    return written, way.__name__.strip("_").replace("_", " ") if way else "everything"


def spelled_in_every_way(text: bytes, random: Random) -> bytes:
    """The same JSON with everything about it other; its rows stay where they are."""
    return _written(json.loads(text), _Spelling(random, SPELLING_WAYS)).encode()


def with_rows_shuffled(text: bytes, random: Random) -> bytes:
    """The same rows in another order."""
    document = json.loads(text)
    _order_of_rows(document, random)
    return json.dumps(document).encode()


class _Spelling:
    def __init__(self, random: Random, ways: Sequence[Callable[..., Any]]) -> None:
        self.random, self.ways = random, ways

    def blank(self, usual: str = "") -> str:
        return self.random.choice(BLANKS) if _blanks in self.ways else usual


def _written(value: Any, spelling: _Spelling, is_time: bool = False) -> str:
    blank = spelling.blank
    if isinstance(value, dict):
        items = list(value.items())
        if _order_of_keys in spelling.ways:
            spelling.random.shuffle(items)
        inside = (
            f"{json.dumps(key)}{blank()}:{blank(' ')}{_written(item, spelling, key in TIMES)}{blank()}"
            for key, item in items
        )
        return "{" + f",{blank(' ')}".join(inside) + "}"
    if isinstance(value, list):
        return "[" + f",{blank(' ')}".join(f"{_written(item, spelling)}{blank()}" for item in value) + "]"
    if isinstance(value, float) and is_time and _numbers in spelling.ways:
        return _numbers(value, spelling.random)
    return json.dumps(value, ensure_ascii=_not_ascii not in spelling.ways)


def _blanks() -> None:
    """Blanks between all tokens, or none."""


def _order_of_keys() -> None:
    """Keys in another order, in every object."""


def _not_ascii() -> None:
    """Characters as they are, not escaped."""


def _numbers(value: float, random: Random) -> str:
    """The same time with zeros or an exponent, or as an integer; arguments are quoted as they stand."""
    plain = repr(value)
    if "e" in plain or "." not in plain:
        return json.dumps(value)
    whole, _, fraction = plain.partition(".")
    return random.choice(
        [
            plain,
            f"{plain}00",
            f"{int(whole + fraction)}e-{len(fraction)}",
            f"{plain}E+0",
            whole if fraction == "0" else plain,
        ]
    )


SPELLING_WAYS: tuple[Callable[..., Any], ...] = (_blanks, _order_of_keys, _not_ascii, _numbers)


def _order_of_rows(document: Any, random: Random) -> None:
    for key in ROWS:
        if isinstance(document, dict) and key in document:
            document[key] = random.choice([document[key][::-1], random.sample(document[key], len(document[key]))])


def _gzip(text: bytes, random: Random) -> bytes:
    """In one member or several."""
    half = random.choice([0, len(text) // 2])
    return gzip.compress(text[:half], random.choice([0, 1, 9])) + gzip.compress(text[half:], 1)


def _zstd(text: bytes, random: Random) -> bytes:
    """In one frame or several, with or without their sizes."""
    half = random.choice([0, len(text) // 2])
    pack = zstandard.ZstdCompressor(write_content_size=random.random() < 0.5).compress
    return pack(text[:half]) + pack(text[half:]) if half else pack(text)


def _byte_order_mark(text: bytes, _: Random) -> bytes:
    return codecs.BOM_UTF8 + text


def _blanks_around(text: bytes, random: Random) -> bytes:
    return random.choice([b"\n\n", b" " * 10_000, b""]) + text + random.choice([b"\n", b"\n" * 100_000])


PACKINGS: tuple[Callable[[bytes, Random], bytes], ...] = (_gzip, _zstd, _byte_order_mark, _blanks_around)
