"""Recognises a file by its content: a trace with its process and rank, something made from traces, or neither.

Looks at the first and, where these do not tell, the last few hundred KB; the rest is never parsed. Of a database it
looks at the tables and at who launched. USES names each kind of file, and which command takes it.
"""

import codecs
import io
import json
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from ..schema.comm_groups import INT32_MAX
from ..schema.errors import DataError, Remedy, Words
from ..schema.io import GZIP_MAGIC, open_input
from ..schema.json_repair import with_plain_letters
from ..schema.json_stream import LONGEST_HEAD
from ..schema.linked import integer

DECODER = json.JSONDecoder(strict=False)
MOST_UNREADABLE = 100
"""Places at which no object begins that can be read: to find that out may cost as much as all that follows."""
PIECE = 1 << 16
END = 1 << 18
"""Bytes that are looked at from the start, and from the end."""
JSON_START = ("{", "[")
BLANK = b"\xef\xbb\xbf \t\r\n"
ROWS = re.compile(rb'"(?:traceEvents|nodes)"\s*:\s*\[')
EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
ONLY_EVENTS = re.compile(r"\s*\[")
NODES = re.compile(r'"nodes"\s*:\s*\[')
HOST_PROCESS = re.compile(r'"pid"\s*:\s*(\d+)')
MERGED_RANKS = re.compile(r'"mergedRanks"\s*:\s*\[')
DISTRIBUTED = re.compile(r'"distributedInfo"\s*:\s*(?=\{)')
PROFILER_KEYS = re.compile(r'"(?:deviceProperties|distributedInfo|baseTimeNanoseconds)"\s*:')
PROCESS_IN_NAME = re.compile(r"[_.-](\d+)\.(?:db|rpd)$", re.IGNORECASE)
RANK_LABEL = re.compile(r"\brank[ _:=#-]*(\d+)", re.IGNORECASE)
REPLAYED = re.compile(r'"process_name".{,60}"name":"rank \d+ (measured|replay)"')
GRAPH = re.compile(rb"[\x80-\xff]{0,4}[\x00-\x7f][\x0a\x12]|\x00")
"""A graph begins with the length of its metadata, and these with their first field."""


def objects_in(text: str, at: int = 0) -> Iterator[dict[str, Any]]:
    """Yields the outermost complete objects from a position on; gives up after a hundred that cannot be read.

    >>> list(objects_in('"b": 1}, {"c": {}}, {"d": {"e": 2}, "f":'))
    [{'c': {}}, {'e': 2}]
    """
    at, left = text.find("{", at), MOST_UNREADABLE
    while at >= 0 and left:
        value, end = _decoded(text, at)
        if value is not None:
            yield value
        else:
            left -= 1
        at = text.find("{", end)


def objects_after(key: re.Pattern[str], text: str) -> Iterator[dict[str, Any]]:
    """Yields the complete objects that begin where the key ends, but for those inside another one of them."""
    end, left = 0, MOST_UNREADABLE
    for match in key.finditer(text):
        if match.end() < end:
            continue
        value, end = _decoded(text, match.end())
        if value is not None:
            yield value
        else:
            left -= 1
        if not left:
            return


def _decoded(text: str, at: int) -> tuple[dict[str, Any] | None, int]:
    """Returns the object that begins at a brace, and where it ends; None for none, and where the next one may begin."""
    try:
        value, end = DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, at + 1
    return (value if isinstance(value, dict) else None), end


class InputKind(Enum):
    """What a file is; the value counts files of that kind in a sentence."""

    HOST = "host traces"
    DEVICE = "device traces"
    MERGED = "device traces of several ranks in one"
    LINKED = "linked traces"
    GRAPH = "execution graphs"
    GRAPH_JSON = "execution graphs as JSON"
    GROUPS = "communicator-group files"
    REPORT = "reports of execgraph"
    TRUTH = "truth.json of trace-generate"
    TIMELINE = "timelines of replays"
    MERGED_DATABASE = "databases of several ranks"
    GOAL = "GOAL files"
    PAGE = "HTML pages"
    OTHER_EVENTS = "Chrome traces that no profiler wrote"
    OTHER_DATABASE = "databases that are no traces"
    JSON = "JSON files that are no traces"
    TEXT = "text files"
    OTHER = "files that are no traces"


class Use(NamedTuple):
    """What a file of a kind is called, the command that takes it, and which file to give where it is wanted."""

    name: str | Words
    taken_by: Remedy | None = None
    to_give: str | Words = ""


TRACE = Use("a host or device trace", to_give="device traces, with their host traces")
TRACE_OR_GRAPH = Use("a trace or a graph", to_give="device traces, with their host traces, linked traces or graphs")

USES = {
    InputKind.HOST: Use("a host trace", Remedy.LINK, "the one that PyTorch's ExecutionTraceObserver wrote"),
    InputKind.DEVICE: Use(
        "a device trace", Remedy.LINK, "the one that the PyTorch profiler wrote, or a rocpd database"
    ),
    InputKind.MERGED: Use("a device trace of several ranks", Remedy.LINK_RANK),
    InputKind.LINKED: Use("a linked trace", Remedy.CONVERT, Words("one that ", Remedy.WRITE_LINKED, " wrote")),
    InputKind.GRAPH: Use("a graph", Remedy.REPLAY, Words("one that ", Remedy.WRITE_GRAPH, " wrote")),
    InputKind.GRAPH_JSON: Use(
        "the JSON form of a graph", Remedy.JSONIZE, Words("one that ", Remedy.WRITE_GRAPH_JSON, " wrote")
    ),
    InputKind.GROUPS: Use(
        "a communicator-group file",
        Remedy.CONVERT_GROUPS,
        Words("the comm_groups.json that ", Remedy.BUILD, " wrote"),
    ),
    InputKind.REPORT: Use("a report that execgraph wrote"),
    InputKind.TRUTH: Use("the truth of a generated job"),
    InputKind.TIMELINE: Use(Words("a timeline that ", Remedy.REPLAY, " wrote")),
    InputKind.MERGED_DATABASE: Use(Words("a database that ", Remedy.MERGE, " wrote")),
    InputKind.GOAL: Use("a GOAL file"),
    InputKind.PAGE: Use("an HTML page"),
    InputKind.OTHER_EVENTS: Use("a Chrome trace that no profiler wrote"),
    InputKind.OTHER_DATABASE: Use("a database, but not a profiler's"),
    InputKind.JSON: Use("JSON that execgraph does not know"),
    InputKind.TEXT: Use("a text file"),
    InputKind.OTHER: Use("binary data that execgraph does not know"),
}


# nodes make a host trace, unless they carry what only later stages write
LATER_STAGES = (
    (InputKind.LINKED, re.compile(r'"inclusive_dur"\s*:')),
    (InputKind.GRAPH_JSON, re.compile(r'"type"\s*:\s*"[A-Z_]+_NODE"')),
)
OTHER_JSON = (
    (InputKind.GRAPH_JSON, re.compile(r'\{\s*"metadata"\s*:\s*\{\s*("version"|\})')),
    (InputKind.GROUPS, re.compile(r'\{\s*"\d+"\s*:\s*\[\s*\d')),
    (InputKind.REPORT, re.compile(r'\{\s*("tool"\s*:\s*"execgraph|"ranks"\s*:\s*\d+,\s*"scaled_ranks")')),
    (InputKind.TRUTH, re.compile(r'\{\s*"job"\s*:\s*"\w+",\s*"seed"\s*:\s*\d+,\s*"makespan_ns"')),
)
OTHER_TEXT = (
    (InputKind.PAGE, re.compile(r"<(!doctype )?html", re.IGNORECASE)),
    (InputKind.GOAL, re.compile(r"num_ranks\s+\d")),
)


class Recognised(NamedTuple):
    """`pid` is that of the host rows, `rank` the recorded one; None where the file does not tell."""

    kind: InputKind
    pid: int | None = None
    rank: int | None = None


def recognise(path: Path) -> Recognised:
    """Tells what a file is, by content. Raises DataError if it is empty, damaged at the start or cannot be read."""
    # here and below: commands that are given graphs start without the readers of traces
    from ..linker.readers import is_database

    if is_database(str(path)):
        return _recognise_database(path)
    with open_input(str(path)) as stream:
        head = _beginning(stream, path)
        kind = _kind_of(head, path)
        if kind is InputKind.DEVICE:
            return _recognise_events(_text(head), stream)
        return _recognise_nodes(_text(head), stream) if kind is InputKind.HOST else Recognised(kind)


def kind_at_start(path: Path) -> InputKind:
    """Returns what the file begins like, which takes less time to see. Raises DataError as `recognise` does."""
    with open_input(str(path)) as stream:
        return _kind_of(_beginning(stream, path), path)


def _beginning(stream: BinaryIO, path: Path) -> bytes:
    """Returns the first bytes; of JSON up to where its rows begin and as many more."""
    head = b"".join(_pieces(stream, END))
    if not head:
        raise DataError(f"{path}: nothing in it decompresses: it is empty or damaged; copy it again")
    start = head.lstrip(BLANK)[:1]
    if start in (b"{", b"["):
        head = with_plain_letters(head)
    if start != b"{":
        return head
    while not ROWS.search(head) and len(head) < LONGEST_HEAD and (more := b"".join(_pieces(stream, len(head)))):
        head = with_plain_letters(head + more)
    return head + b"".join(_pieces(stream, END)) if len(head) > END else head


def _kind_of(head: bytes, path: Path) -> InputKind:
    """Returns what a file begins like: of traces the kind that they may be."""
    text = _text(head).lstrip("\ufeff \t\r\n")
    if not text.startswith(JSON_START):
        return _kind_of_other(head, text, path)
    if _first_event(text) is not None:
        return InputKind.TIMELINE if REPLAYED.search(text) else InputKind.DEVICE
    later = LATER_STAGES if NODES.search(text) else ()
    kind = next((kind for kind, sign in later if sign.search(text)), None)
    kind = kind or next((kind for kind, start in OTHER_JSON if start.match(text)), None)
    return kind or (InputKind.HOST if later else InputKind.JSON)


def _kind_of_other(head: bytes, text: str, path: Path) -> InputKind:
    if head.startswith(GZIP_MAGIC):
        raise DataError(f"{path}: is compressed twice; decompress it once")
    if _is_text(head):
        return next((kind for kind, start in OTHER_TEXT if start.match(text)), InputKind.TEXT)
    return InputKind.GRAPH if GRAPH.match(head) or ".et" in path.suffixes else InputKind.OTHER


def _is_text(head: bytes) -> bool:
    """Returns whether this is the beginning of a text that people write, which may end amid a character."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character.isspace() for character in text)


def _recognise_database(path: Path) -> Recognised:
    """Returns the process is the one that the file tells, else that of its name."""
    from ..linker.readers import dialect, is_merged, is_rocpd, opened, processes

    with opened(str(path)) as database:
        if is_merged(database) or not is_rocpd(database):
            return Recognised(InputKind.MERGED_DATABASE if is_merged(database) else InputKind.OTHER_DATABASE)
        dialect(database)
        traced = processes(database)
    if len(traced) > 1:
        return Recognised(InputKind.MERGED)
    named = PROCESS_IN_NAME.search(path.name)
    return Recognised(InputKind.DEVICE, traced[0] if traced else int(named.group(1)) if named else None)


def _recognise_events(head: str, stream: BinaryIO) -> Recognised:
    signs = _signs(head)
    return (signs if signs.complete else _signs(head + _text(_last(stream)))).judgement()


def _recognise_nodes(head: str, stream: BinaryIO) -> Recognised:
    process = HOST_PROCESS.search(head) or HOST_PROCESS.search(_text(_last(stream)))
    if process:
        return Recognised(InputKind.HOST, int(process.group(1)))
    return Recognised(InputKind.HOST if '"schema"' in head else InputKind.JSON)


class _Signs(NamedTuple):
    """What the rows and keys of a Chrome trace say about who wrote it and of what process it is."""

    by_profiler: bool
    merged: bool
    processes: Counter[int]
    ranks: set[int]
    rank_labels: set[int]

    @property
    def complete(self) -> bool:
        return bool(self.processes and self.ranks)

    def judgement(self) -> Recognised:
        if not self.by_profiler:
            return Recognised(InputKind.OTHER_EVENTS)
        if self.merged or len(self.ranks) > 1 or len(self.rank_labels) > 1:
            return Recognised(InputKind.MERGED)
        pid = max(self.processes, key=self.processes.__getitem__, default=None)
        return Recognised(InputKind.DEVICE, pid, next(iter(self.ranks or self.rank_labels), None))


def _signs(text: str) -> _Signs:
    from ..linker.readers import Role, role_of

    merged = bool(MERGED_RANKS.search(text))
    signs = _Signs(bool(PROFILER_KEYS.search(text)), merged, Counter(), _recorded_ranks(text), set())
    by_profiler = signs.by_profiler
    for row in objects_in(text, _first_event(text) or 0):
        category, arguments = row.get("cat"), row.get("args")
        role = role_of(category if isinstance(category, str) else None)
        by_profiler |= bool(category) and role is not Role.UNKNOWN
        pid = integer(row.get("pid"), -1) if isinstance(row.get("pid"), int) else -1
        labels = str(arguments) if row.get("ph") == "M" and isinstance(arguments, dict) else ""
        if pid >= 0 and (role in (Role.OP, Role.CALL) or labels == "{'labels': 'CPU'}"):
            signs.processes[pid] += 1
        signs.rank_labels.update(int(rank) for rank in RANK_LABEL.findall(labels))
    return signs._replace(by_profiler=by_profiler)


def _recorded_ranks(text: str) -> set[int]:
    """Returns the ranks of every `distributedInfo` in the text; what linking takes for none is none here."""
    ranks = {integer(described.get("rank"), -1) for described in objects_after(DISTRIBUTED, text)}
    return {rank for rank in ranks if 0 <= rank <= INT32_MAX}


def _first_event(text: str) -> int | None:
    """Returns where the list of events begins; None where there is none."""
    events = ONLY_EVENTS.match(text) or EVENTS.search(text)
    return events.end() if events else None


def _last(stream: BinaryIO) -> bytes:
    """Returns the end of the stream, from where it stands; a compressed one has to be run through."""
    if stream.seekable():
        stream.seek(max(stream.tell(), os.fstat(stream.fileno()).st_size - END))
    last = bytearray()
    for piece in _pieces(stream):
        last += piece
        if len(last) > 8 * END:
            del last[:-END]
    return with_plain_letters(bytes(last[-END:]))


def _pieces(stream: BinaryIO, limit: int = sys.maxsize) -> Iterator[bytes]:
    """Yields what the stream holds, up to `limit` bytes; of a damaged file what comes before the damage."""
    read = cast(io.BufferedIOBase, stream).read1
    while limit > 0:
        try:
            piece = read(min(limit, PIECE))
        except (OSError, EOFError, zlib.error):
            return
        if not piece:
            return
        yield piece
        limit -= len(piece)


def _text(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")
