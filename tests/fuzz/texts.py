"""Puts text within text: brackets, literals, JSON, escapes and control characters in names and arguments."""

import json
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

from fuzz.columns import Slot

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
TIMES = 1, 2, 50, 3000, 300_000
LONGEST_REPEATED = 30_000_000
SIZE = 1_000_000
ADDED = (
    "Concrete Inputs",
    "Process Group Ranks",
    "Process Group Name",
    "Input type",
    "Collective name",
    "dtype",
    "Module Hierarchy",
    "Call stack",
)


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
    way = random.choice(WAYS)
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
        text = random.choice(WAYS)(random.choice(["[1, 2]", "", '["1", "2"]']), random)[: SIZE // 20]
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
    piece = random.choice(PIECES) * random.choice(TIMES)
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
    old = old[: LONGEST_REPEATED // TIMES[-1]]
    return random.choice([old or "x", "x", "é", "漢", "\U0001f600", " ", "9", "-", "::"]) * random.choice(TIMES[2:])


WAYS: tuple[Callable[[str, Random], str], ...] = (_brackets, _unusable, _literals, _pieces, _controls, _quoted, _long)
