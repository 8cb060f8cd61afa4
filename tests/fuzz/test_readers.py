"""Real files, damaged anyhow: whatever reads them reads on or refuses, and never loses anything without a word."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from support.folders import TESTS

from fuzz.readers import CHECKS, KEYS, sample

Change = Callable[[bytes], bytes]

TELLING = [
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"}]", b"},", b'{"ph":', b'"name": "', b'"traceEvents": [', b'"nodes": [',
    b"NaN", b"-1", b"1e400", b"null", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\n", b'\\ud800', b"9" * 400, b"[" * 3000, b'"ts": ',
]  # fmt: skip
PLACES = st.floats(0, 1, exclude_max=True)
SIZES = st.sampled_from([1, 2, 3, 10, 100, 1000, 10_000])


def at(text: bytes, place: float) -> int:
    return int(place * len(text))


def change(kind: str, place: float, other: float, size: int, token: bytes) -> Change:
    def changed(text: bytes) -> bytes:
        begin = at(text, place)
        end = begin + size
        elsewhere = text[at(text, other) :][:size]
        return {
            "cut": text[:begin],
            "leave out": text[:begin] + text[end:],
            "insert": text[:begin] + token + text[begin:],
            "overwrite": text[:begin] + token + text[begin + len(token) :],
            "repeat": text[:end] + text[begin:end] + text[end:],
            "copy": text[:begin] + elsewhere + text[end:],
            "flip": text[:begin] + bytes(byte ^ 1 << size % 8 for byte in text[begin : begin + 1]) + text[begin + 1 :],
            "zero": text[:begin] + bytes(len(text[begin:end])) + text[end:],
        }[kind]

    return changed


KINDS = st.sampled_from(["cut", "leave out", "insert", "overwrite", "repeat", "copy", "flip", "zero"])
CHANGES = st.lists(st.builds(change, KINDS, PLACES, PLACES, SIZES, st.sampled_from(TELLING)), min_size=1, max_size=4)
EXAMPLES = int(os.environ.get("EXECGRAPH_FUZZ_EXAMPLES", "15"))
often = settings(max_examples=EXAMPLES, deadline=20_000, suppress_health_check=list(HealthCheck))


def damaged(kind: str, changes: list[Change]) -> bytes:
    text = sample(kind)
    for one in changes:
        text = one(text)
    return text


@often
@given(CHANGES)
def test_device_traces(changes: list[Change]) -> None:
    CHECKS["device"](damaged("device", changes))


@often
@given(CHANGES)
def test_host_traces(changes: list[Change]) -> None:
    CHECKS["host"](damaged("host", changes))


# What fuzzing found

FOUND = [
    ("device", b'{"x": "\xf5", "traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1}]}'),
    ("device", b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1, "args": {"External id": [[7]]}}]}'),
    ("device", b'{"traceEvents": [null, {"ph": "X", "cat": "cpu_op", "ts": 1}, ]}'),
    ("host", b'{"nodes": [{"id": 1, "name": "a", "inputs": {}, "attrs": [{"name": "rf_id", "value": [2]}]}]}'),
    ("linked", b'{"nodes": [{"id": 1, "name": "a", "ts": 1, "attrs": [{"name": "rf_id", "value": null}]}]}'),
    ("linked", b'{"nodes": [{"id": 1, "name": "a", "ts": 1, "attrs": [{"name": "op_schema", "value": [1]}]}]}'),
]
FILES = sorted((TESTS / "fuzz" / "found").iterdir())


@pytest.mark.parametrize(("kind", "content"), FOUND)
def test_found_cases(kind: str, content: bytes) -> None:
    CHECKS[kind](content)


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in FILES])
def test_found_files(path: Path) -> None:
    CHECKS[path.name.split("-")[0]](path.read_bytes())


# Valid JSON that says odd things

ODD = st.sampled_from(
    [None, True, False, 0, -1, 7, 2**31, 2**63, -(2**63), 2**64, 1e300, -1.5, 1e-9, 4294967295, "", "x", "12", "-1", "0x1f",
     "nan", "stream 7", [], [1, 2], ["a"], [[]], {}, {"a": 1}, "process_group:init", "record_param_comms", "ProfilerStep#1",
     "kernel", "cuda_runtime", "X", "é漢", "a" * 5000],
)  # fmt: skip


class Oddity(NamedTuple):
    """The element and key that these places point to hold another value, that of another element, or nothing."""

    element: float
    key: float
    value: Any
    other: float
    kind: str


ODDITIES = st.lists(
    st.builds(Oddity, PLACES, PLACES, ODD, PLACES, st.sampled_from(["value", "value", "other", "remove", "repeat", "swap"])),
    min_size=1,
    max_size=12,
)  # fmt: skip


def odd(kind: str, oddities: list[Oddity]) -> bytes:
    document = json.loads(sample(kind))
    rows = document[KEYS[kind]]
    for oddity in oddities:
        number, other = int(oddity.element * len(rows)), int(oddity.other * len(rows))
        if oddity.kind == "repeat":
            rows.insert(other, rows[number])
        elif oddity.kind == "swap":
            rows[number], rows[other] = rows[other], rows[number]
        else:
            make_odd(rows[number], rows[other], oddity)
    return json.dumps(document).encode()


def make_odd(row: Any, other: Any, oddity: Oddity) -> None:
    """Changes one of the keys of an element, or of its arguments or attributes."""
    holders = [row, *(held for held in row.values() if isinstance(held, dict))]
    attributes = row.get("attrs")
    holders += [attr for attr in attributes if isinstance(attr, dict)] if isinstance(attributes, list) else []
    places = [(holder, key) for holder in holders for key in holder]
    if not places:
        return
    holder, key = places[int(oddity.key * len(places))]
    if oddity.kind == "remove":
        del holder[key]
    else:
        holder[key] = other.get(key, oddity.value) if oddity.kind == "other" else oddity.value


@often
@given(ODDITIES)
def test_device_traces_that_say_odd_things(oddities: list[Oddity]) -> None:
    CHECKS["device"](odd("device", oddities))


@often
@given(ODDITIES)
def test_host_traces_that_say_odd_things(oddities: list[Oddity]) -> None:
    CHECKS["host"](odd("host", oddities))


@pytest.mark.parametrize("kind", ["linked", "graph", "json", "groups", "database"])
def test_other_files(kind: str) -> None:
    @often
    @given(CHANGES)
    def check(changes: list[Change]) -> None:
        CHECKS[kind](damaged(kind, changes))

    check()


@often
@given(CHANGES)
def test_compressed_device_traces(changes: list[Change]) -> None:
    text = gzip.compress(sample("device"), 1)
    for one in changes:
        text = one(text)
    CHECKS["device"](text)
