"""Writes the same JSON in other ways: order of keys and rows, blanks, escapes, numbers, packing. It reads the same."""

import codecs
import gzip
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import zstandard

from fuzz.columns import TIMES

BLANKS = "", " ", "\n", "\t", "\r\n", "  \n "
ROWS = "traceEvents", "nodes"


def spelled_anew(text: bytes, random: Random) -> tuple[bytes, str]:
    """The same JSON written in another way, and what is other, in words."""
    document = json.loads(text)
    # the nodes of a graph are in the order of its file
    way = random.choice([*WAYS, *PACKINGS, None, *([_order_of_rows] if "metadata" not in document else [])])
    if way is _order_of_rows:
        _order_of_rows(document, random)
    # all at once, too
    ways = [way] if way in WAYS else WAYS if way is None else []
    written = _written(document, _Spelling(random, ways)).encode()
    if way in PACKINGS or (way is None and random.random() < 0.3):
        written = (way or random.choice(PACKINGS))(written, random)
    return written, way.__name__.strip("_").replace("_", " ") if way else "everything"


def spelled_in_every_way(text: bytes, random: Random) -> bytes:
    """The same JSON with everything about it other; its rows stay where they are."""
    return _written(json.loads(text), _Spelling(random, WAYS)).encode()


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
            f"{_written(key, spelling)}{blank()}:{blank(' ')}{_written(item, spelling, key in TIMES)}{blank()}"
            for key, item in items
        )
        return "{" + f",{blank(' ')}".join(inside) + "}"
    if isinstance(value, list):
        return "[" + f",{blank(' ')}".join(f"{_written(item, spelling)}{blank()}" for item in value) + "]"
    if isinstance(value, str) and _escapes in spelling.ways:
        return _escapes(value, spelling.random)
    if isinstance(value, float) and is_time and _numbers in spelling.ways:
        return _numbers(value, spelling.random)
    return json.dumps(value, ensure_ascii=_not_ascii not in spelling.ways)


def _blanks() -> None:
    """Blanks between all tokens, or none."""


def _order_of_keys() -> None:
    """Keys in another order, in every object."""


def _not_ascii() -> None:
    """Characters as they are, not escaped."""


def _escapes(text: str, random: Random) -> str:
    """Some characters escaped that need not be."""
    plain = json.dumps(text)[1:-1]
    if "\\" in plain or random.random() < 0.5:
        return f'"{plain}"'
    return (
        '"'
        + "".join(f"\\u{ord(one):04x}" if random.random() < 0.2 else "\\/" if one == "/" else one for one in plain)
        + '"'
    )


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


WAYS: tuple[Callable[..., Any], ...] = (_blanks, _order_of_keys, _escapes, _not_ascii, _numbers)


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
