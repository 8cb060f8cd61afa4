"""Kinds of damage, each made on a real pair of traces, and what trace-link says of it."""

import contextlib
import gzip
import io
import json
import os
import random
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import zstandard
from execgraph.schema.io.files import ZSTD_MAGIC
from execgraph.tools.commands import trace_link

from support.folders import DATA

SAMPLE = DATA / "compiled"
HOST, DEVICE, LINKED = "host.json", "device.json", "linked.json"
EVENT = b'  {\n    "ph": "X",\n    "cat": "cpu_op",\n    "name": "aten::randn",'
NODE = b'"id": 5, "name": "aten::empty", "ctrl_deps"'
TIME = b'"ts": 4383683828312.992'

Change = Callable[[bytes], bytes]


class Damage(NamedTuple):
    """Which file is changed and how. `used` says how many of a sound pair's matched ops remain: all, some or none."""

    file: str
    what: str
    change: Change
    used: str = "all"


class Said(NamedTuple):
    """How trace-link ended, what it said, and the report in the file that it wrote, if it wrote one."""

    exit: int
    lines: list[str]
    report: dict[str, Any]

    @property
    def matched(self) -> int:
        """Ops."""
        return int(self.report.get("matched", 0))


def put(old: bytes, new: bytes) -> Change:
    """The first `old` becomes `new`; that there is one is part of the sample."""

    def change(text: bytes) -> bytes:
        assert old in text
        return text.replace(old, new, 1)

    return change


def after(mark: bytes, new: bytes) -> Change:
    return put(mark, mark + new)


def before(mark: bytes, new: bytes) -> Change:
    return put(mark, new + mark)


def to(mark: bytes, more: int = 0) -> Change:
    """The text up to a mark and some bytes of it."""
    return lambda text: text[: text.index(mark) + more]


def last_end(ending: bytes) -> Change:
    """The text up to the last `ending`, included."""
    return lambda text: text[: text.rindex(ending) + len(ending)]


def middle(size: int, new: Callable[[int], bytes]) -> Change:
    """A stretch in the middle of the file becomes something else of that size."""
    return lambda text: text[: len(text) // 2] + new(size) + text[len(text) // 2 + size :]


def packed(change: Change = bytes) -> Change:
    """A change of the gzip file that holds the device trace."""
    return lambda _: change(packed_sample(DEVICE))


def in_frames(change: Change) -> Change:
    """A change of the device trace as several zstd frames, one after the other."""

    def changed(text: bytes) -> bytes:
        return change(b"".join(zstandard.compress(text[at : at + 20_000]) for at in range(0, len(text), 20_000)))

    return changed


def eighth_frame(text: bytes) -> bytes:
    """Zeros where the eighth zstd frame begins: what stands elsewhere in a frame is up to the version of zstd."""
    begin = [found.start() for found in re.finditer(re.escape(ZSTD_MAGIC), text)][7]
    return text[:begin] + bytes(64) + text[begin + 64 :]


def noise(size: int) -> bytes:
    return random.Random(1).randbytes(size)


def everything_twice(text: bytes) -> bytes:
    document = json.loads(text)
    document["traceEvents"] *= 2
    return json.dumps(document).encode()


NUMBER = rb'("(?:pid|tid|ts|dur|External id|Record function id|Ev Idx)": )([\d.]+)'
NESTED = b"[" * 100_000 + b"]" * 100_000
GZIP_AGAIN = packed(lambda text: gzip.compress(text, mtime=0))

DAMAGES = (
    # the file ends early
    Damage(DEVICE, "cut inside an event", to(b'"name": "aten::mm"', 12), "some"),
    Damage(DEVICE, "cut between two events", to(b",\n" + EVENT), "none"),
    Damage(DEVICE, "cut after the last event", last_end(b'4383683833434.197\n    \n  }')),
    Damage(DEVICE, "cut after the list of events", last_end(b"],")),
    Damage(DEVICE, "cut before the list of events", to(b'"baseTimeNanoseconds"'), "none"),
    Damage(DEVICE, "cut right after the list begins", to(b'"traceEvents": [', 16), "none"),
    Damage(HOST, "cut inside a node", to(b'"aten::transpose"', 4), "some"),
    Damage(HOST, "cut after a node: the process was killed", to(b',\n      {\n        "id": 32,'), "some"),
    Damage(HOST, "cut before its last brace", last_end(b"2689015")),
    Damage(HOST, "empty", lambda _: b"", "none"),
    Damage(DEVICE, "followed by zeros: the machine lost power", lambda text: last_end(b"197\n    \n  }")(text) + bytes(5000)),
    # something else stands in the file
    Damage(DEVICE, "4096 zeros in the middle", middle(4096, bytes), "none"),
    Damage(HOST, "4096 zeros in the middle", middle(4096, bytes), "none"),
    Damage(DEVICE, "4096 random bytes in the middle", middle(4096, noise), "none"),
    Damage(HOST, "one bit flipped in a quote", put(b'"id": 32,', b'2id": 32,'), "none"),
    Damage(DEVICE, "one bit flipped in a quote", put(b'aten::randn",', b"aten::randn2,"), "none"),
    Damage(DEVICE, "one bit flipped in a bracket", put(b'  {\n    "ph": "X",', b'  k\n    "ph": "X",'), "none"),
    Damage(DEVICE, "a line of a log between two events", before(EVENT, b"INFO: step 2 of 3 {loss: 0.1}\n"), "none"),
    Damage(DEVICE, "a line of a log before the file", lambda text: b"WARNING: profiler was slow\n" + text),
    Damage(DEVICE, "followed by a second trace", lambda text: text + text),
    Damage(DEVICE, "a byte-order mark first", lambda text: b"\xef\xbb\xbf" + text),
    Damage(DEVICE, "Windows line ends", lambda text: text.replace(b"\n", b"\r\n")),
    # texts
    Damage(DEVICE, "quotes in a name", put(b'"ProfilerStep#2"', b'"say "hi" / "bye""'), "some"),
    Damage(HOST, "quotes in a name", put(b'"name": "ProfilerStep#2"', b'"name": "say "hi""'), "some"),
    Damage(DEVICE, "line break and tab in a name", put(b'"ProfilerStep#2"', b'"line\nbreak\t"'), "some"),
    Damage(HOST, "line break and tab in a name", put(b'"name": "ProfilerStep#2"', b'"name": "line\nbreak\t"'), "some"),
    Damage(HOST, "a backslash in a name", put(b'"name": "ProfilerStep#2"', rb'"name": "C:\data"'), "some"),
    Damage(HOST, "a name that ends in a backslash", put(b'"name": "ProfilerStep#2"', b'"name": "D:\\"'), "some"),
    Damage(DEVICE, "a name that is not UTF-8", put(b'"ProfilerStep#2"', b'"caf\xe9"'), "some"),
    Damage(HOST, "an argument that is not UTF-8", put(b'"cpu",false', b'"\xff\xfe",false')),
    Damage(DEVICE, "half of a surrogate pair", put(b'"ProfilerStep#2"', rb'"\ud83d"'), "some"),
    Damage(DEVICE, "quotes in the metadata", put(b'"record_shapes": 1', b'"k"k": "v "q" "')),
    Damage(DEVICE, "a Windows path in the metadata", put(b'"host_name": "vm"', b'"path": "C:\\temp\\x"')),
    Damage(DEVICE, "an empty entry in the metadata", put(b'"record_shapes": 1,', b",")),
    # numbers
    Damage(DEVICE, "NaN among the arguments", put(b'"Ev Idx": 1\n', b'"Ev Idx": 1, "GB/s": NaN\n')),
    Damage(DEVICE, "-nan(ind) and inf among the arguments", put(b'"Ev Idx": 1\n', b'"Ev Idx": 1, "a": -nan(ind), "b": inf')),
    Damage(DEVICE, "Infinity as a time", put(TIME, b'"ts": Infinity'), "some"),
    Damage(DEVICE, "a time of 1e400", put(TIME, b'"ts": 1e400'), "some"),
    Damage(DEVICE, "a time of 5000 digits", put(TIME, b'"ts": ' + b"9" * 5000), "some"),
    Damage(DEVICE, "a duration of 1e17 µs", put(b'"dur": 94.961', b'"dur": 1e17'), "some"),
    Damage(DEVICE, "Python's True and None", put(b'"Ev Idx": 1\n', b'"Ev Idx": 1, "a": True, "b": None\n'), "none"),
    Damage(DEVICE, "numbers as texts", lambda text: re.sub(NUMBER, rb'\1"\2"', text)),
    # commas and missing things
    Damage(DEVICE, "a comma after the last event", put(b"  }\n  ],", b"  },\n  ],")),
    Damage(DEVICE, "two commas between events", before(EVENT, b",\n")),
    Damage(DEVICE, "no comma between events", put(b",\n" + EVENT, b"\n" + EVENT)),
    Damage(DEVICE, "an event without a time", put(TIME + b",", b""), "some"),
    Damage(DEVICE, "an event without a duration", put(b'"dur": 94.961', b'"x": 0')),
    Damage(DEVICE, "a duration without a value", put(b'"dur": 94.961', b'"dur": '), "none"),
    Damage(DEVICE, "null, a number and a text among the events", before(EVENT, b'null, 7, "x",\n')),
    Damage(DEVICE, "an event whose args are a list", put(b'"args": {\n      "name": "python"\n    }', b'"args": [1]')),
    Damage(DEVICE, "an event that is nested too deep", before(EVENT, b'{"ph": "X", "args": {"x": ' + NESTED + b"}},"), "none"),
    Damage(DEVICE, "metadata that are nested too deep", put(b'"record_shapes": 1', b'"x": ' + NESTED)),
    Damage(DEVICE, "an argument of 20 MB", put(b'"Ev Idx": 1\n', b'"Ev Idx": 1, "x": "' + b"x" * 20_000_000 + b'"')),
    # what the rows say
    Damage(DEVICE, "every event twice", everything_twice),
    Damage(DEVICE, "a category nobody knows", put(b'"cat": "cpu_op"', b'"cat": "sorcery"'), "some"),
    Damage(DEVICE, "an event in two rows, begin and end", put(b'"ph": "X",\n    "cat": "cpu_op"', b'"ph": "B", "cat": "cpu_op"'), "some"),
    Damage(DEVICE, "a bare list of events", lambda text: json.dumps(json.loads(text)["traceEvents"]).encode()),
    Damage(HOST, "a node without an id", put(b'"id": 5, ', b""), "some"),
    Damage(HOST, "two nodes of one id", put(b'"id": 8,', b'"id": 5,')),
    Damage(HOST, "negative ids", lambda text: re.sub(rb'("(?:id|ctrl_deps)": )(\d+)', rb"\1-\2", text)),
    Damage(HOST, "parents in a circle", put(b'"ctrl_deps": 1,', b'"ctrl_deps": 5,')),
    Damage(HOST, "inputs that are no lists", put(b'"inputs": {"values": [[4,16,32]', b'"inputs": 7, "x": {"values": [[4,16,32]')),
    Damage(HOST, "a schema of the future", put(b"1.1.1-chakra.0.0.4", b"2.0.0-chakra.9")),
    Damage(HOST, "no schema", put(b'"schema": "1.1.1-chakra.0.0.4", ', b"")),
    # compression and other formats
    Damage(DEVICE, "gzip under a name without .gz", packed()),
    Damage(DEVICE, "gzip, cut", packed(lambda text: text[: len(text) // 2]), "some"),
    Damage(DEVICE, "gzip without its last 8 bytes", packed(lambda text: text[:-8])),
    Damage(DEVICE, "gzip with a wrong checksum", packed(lambda text: text[:-8] + b"1234" + text[-4:])),
    Damage(DEVICE, "gzip, 64 zeros in the middle", packed(middle(64, bytes)), "none"),
    Damage(DEVICE, "gzip in two members", lambda text: gzip.compress(text[:50_000]) + gzip.compress(text[50_000:])),
    Damage(DEVICE, "gzip with something after it", packed(lambda text: text + b"something")),
    Damage(DEVICE, "gzip twice", GZIP_AGAIN, "none"),
    Damage(DEVICE, "zstd under a name without .zst", zstandard.compress),
    Damage(DEVICE, "zstd, cut", in_frames(lambda text: text[: len(text) // 2]), "some"),
    Damage(DEVICE, "zstd, 64 zeros where a frame begins", in_frames(eighth_frame), "some"),
    Damage(DEVICE, "zstd of which only the first bytes are zstd", lambda _: b"\x28\xb5\x2f\xfd" + bytes(20), "none"),
    Damage(DEVICE, "UTF-16", lambda text: text.decode().encode("utf-16"), "none"),
    Damage(DEVICE, "a zip archive", lambda _: b"PK\x03\x04" + bytes(100), "none"),
    Damage(DEVICE, "an error page", lambda _: b"<!DOCTYPE html><html>404</html>", "none"),
    Damage(DEVICE, "a host trace in its place", lambda _: sample(HOST), "none"),
    Damage(HOST, "a device trace in its place", lambda _: sample(DEVICE), "none"),
    Damage(HOST, "other JSON", lambda _: b'{"ranks": [0, 1]}', "none"),
    Damage(DEVICE, "no events in it", lambda _: b'{"traceEvents": []}', "none"),
)  # fmt: skip


def packed_sample(file: str) -> bytes:
    return (SAMPLE / f"{Path(file).stem}_rank0.json.gz").read_bytes()


@cache
def sample(file: str) -> bytes:
    """The text of one of the pair's files."""
    return gzip.decompress(packed_sample(file))


@cache
def link_damaged(damage: Damage, *options: str) -> Said:
    """Runs trace-link on the pair with that damage, once; what it found is shared, and must not be changed."""
    return _link(
        {HOST: sample(HOST), DEVICE: sample(DEVICE), damage.file: damage.change(sample(damage.file))}, *options
    )


@cache
def link_undamaged() -> Said:
    return _link({HOST: sample(HOST), DEVICE: sample(DEVICE)})


def _link(files: dict[str, bytes], *options: str) -> Said:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        told, code = io.StringIO(), 0
        with inside(folder), contextlib.redirect_stderr(told):
            try:
                trace_link.main(["--host-trace", HOST, "--device-trace", DEVICE, "--output", LINKED, *options])
            except SystemExit as end:
                code = int(end.code or 0)
        linked = Path(folder) / LINKED
        report = json.loads(linked.read_bytes())["link_report"] if linked.exists() else {}
    return Said(code, [" ".join(line.split()) for line in told.getvalue().splitlines()], report)


@contextlib.contextmanager
def inside(folder: str) -> Iterator[None]:
    """Works in the folder for a while."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
