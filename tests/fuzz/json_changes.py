"""Changes JSON where it hurts: values become others of every type and size; parts are removed, doubled, exchanged."""

import copy
import json
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from fuzz.byte_changes import changed_bytes
from fuzz.values import AS_IT_STANDS, CHANGES, LITERALS, NUMBERS, VALUES

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
