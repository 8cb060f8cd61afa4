"""Recognises a file by its content: a trace with its process and rank, something made from traces, or neither.

Looks at a few hundred KB at the start and the end. A rank that no content tells is that of the name. Of a file that
a command cannot use it says what it is, and which command takes it.
"""

import codecs
import io
import json
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from itertools import islice, pairwise
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any, BinaryIO, NamedTuple, cast

from ..schema.comm_groups import INT32_MAX
from ..schema.errors import DataError, Remedy, Words
from ..schema.io import GZIP_MAGIC, path_is
from ..schema.json_stream import LONGEST_HEAD
from ..schema.linked import FOREVER, WINDOW, integer, kineto

DECODER = json.JSONDecoder(strict=False)
MOST_UNREADABLE = 100
"""Places at which no object begins that can be read: to find that out may cost as much as all that follows."""
PIECE = 1 << 16
END = 1 << 18
"""Bytes that are looked at from the start, and from the end."""
JSON_START = ("{", "[")
OBJECT = re.compile(r"(?=\{)")
BLANK = b"\xef\xbb\xbf \t\r\n"
ROWS = re.compile(rb'"(?:traceEvents|nodes)"\s*:\s*\[')
EVENTS = re.compile(r'"traceEvents"\s*:\s*\[|\[(?<=\A\[)')
"""Where the list of events begins, which may be all that there is."""
NODES = re.compile(r'"nodes"\s*:\s*\[')
HOST_PROCESS = re.compile(r'"pid"\s*:\s*(\d+)')
DETAILS = re.compile(rf'"{WINDOW}"\s*:\s*"detail"')
MERGED_RANKS = re.compile(r'"mergedRanks"\s*:\s*\[')
DISTRIBUTED = re.compile(r'"distributedInfo"\s*:\s*(?=\{)')
BASE_TIME = re.compile(r'"baseTimeNanoseconds"\s*:\s*(\d*)')
PROFILER_KEYS = re.compile(r'"(?:deviceProperties|distributedInfo|baseTimeNanoseconds)"\s*:')
DATE = re.compile(
    r"(?<!\d)(?:19|20)\d\d([-_.]?)[01]\d\1[0-3]\d(?:[-_. T]*[0-2]\d([-_.:]?)[0-5]\d(?:\2[0-5]\d)?)?(?!\d)"
)
BARE_NUMBER = re.compile(r"_(0|[1-9]\d{0,4})(?:\.pt\.trace)?\.json(?:\.gz|\.zst)?$", re.IGNORECASE)
RANK_IN_NAME = (
    re.compile(r"(?<![a-z])rank[ _.=-]*0*(\d{1,6})(?!\d)", re.IGNORECASE),
    re.compile(r"(?<![a-z])worker[ _.=-]*0*(\d{1,6})(?!\d)", re.IGNORECASE),
    re.compile(r"-TP-(\d{1,5})(?:-EP-\d+)?(?:-[A-Z]+)?\.trace\.json"), BARE_NUMBER,
)  # fmt: skip
"""Strongest first; longer numbers are times. SGLang names no other group where there is none."""
DATED_NS = 10**18
"""Times from 2001 on; smaller ones count from when a machine was started, so that those of two machines differ."""
NS_PER_HOUR, MOST_APART_NS = 3600 * 10**9, 300 * 10**9
"""Ranks begin to record in one step; clocks drift seconds a day without NTP, and Kerberos fails at 5 minutes."""
PROCESS_IN_NAME = re.compile(r"[_.-](\d+)\.(?:db|rpd|sqlite)(?:\.gz|\.zst)?$", re.IGNORECASE)
RANK_LABEL = re.compile(r"\brank[ _:=#-]*(\d+)", re.IGNORECASE)
GRAPH = re.compile(rb"[\x80-\xff]{0,4}[\x00-\x7f][\x0a\x12]|\x00")
"""A graph begins with the length of its metadata, and these with their first field."""


def objects_in(text: str, at: int = 0, key: re.Pattern[str] = OBJECT) -> Iterator[dict[str, Any]]:
    """Yields the outermost complete objects from a position on, where the `key` ends; stops after MOST_UNREADABLE."""
    left = MOST_UNREADABLE
    while left and (match := key.search(text, at)):
        try:
            value, at = DECODER.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            value, at = None, match.end() + 1
        if isinstance(value, dict):
            yield value
        else:
            left -= 1


class FileKind(NamedTuple):
    """What such a file is called, what several are, which command takes it, and what to give where one is wanted."""

    singular: str | Words
    plural: str = ""
    taken_by: Remedy | None = None
    to_give: str | Words = ""


class InputKind(FileKind, Enum):
    """The kinds of files that are recognised."""

    HOST = "a host trace", "host traces", Remedy.LINK, "the one that PyTorch's ExecutionTraceObserver wrote"
    DEVICE = (
        "a device trace", "device traces", Remedy.LINK,
        "the one that the PyTorch profiler wrote, or a rocpd database",
    )  # fmt: skip
    DETAIL = "a detail trace", "detail traces", None, "the one that execgraph.capture wrote for modules or memory"
    MERGED = "a device trace of several ranks", "device traces of several ranks each", Remedy.LINK_RANK
    LINKED = "a linked trace", "linked traces", Remedy.CONVERT, Words("one that ", Remedy.WRITE_LINKED, " wrote")
    GRAPH = "a graph", "execution graphs", Remedy.REPLAY, Words("one that ", Remedy.WRITE_GRAPH, " wrote")
    GRAPH_JSON = (
        "the JSON form of a graph", "execution graphs as JSON", Remedy.JSONIZE,
        Words("one that ", Remedy.WRITE_GRAPH_JSON, " wrote"),
    )  # fmt: skip
    GROUPS = (
        "a communicator-group file", "communicator-group files", Remedy.CONVERT_GROUPS,
        Words("the comm_groups.json that ", Remedy.BUILD, " wrote"),
    )  # fmt: skip
    REPORT = "a report that execgraph wrote", "reports of execgraph"
    TRUTH = "the truth of a generated job", "truth.json of trace-generate"
    TIMELINE = Words("a timeline that ", Remedy.REPLAY, " wrote"), "timelines of replays"
    MERGED_DATABASE = Words("a database that ", Remedy.MERGE, " wrote"), "databases of several ranks"
    GOAL = "a GOAL file", "GOAL files"
    PAGE = "an HTML page", "HTML pages"
    OTHER_EVENTS = "a Chrome trace that no profiler wrote", "Chrome traces that no profiler wrote"
    OTHER_DATABASE = "a database, but not a profiler's", "databases that are no traces"
    JSON = "JSON that execgraph does not know", "JSON files that are no traces"
    TEXT = "a text file", "text files"
    OTHER = "binary data that execgraph does not know", "files that are no traces"


Kinds = Sequence[tuple[InputKind, tuple[re.Pattern[str], ...]]]
JSON_KINDS: Kinds = (
    (InputKind.TIMELINE, (re.compile(r'"process_name".{,60}"name":"rank \d+ (measured|replay)"'), EVENTS)),
    (InputKind.DEVICE, (re.compile(r"\A\["),)),
    (InputKind.DEVICE, (re.compile(r'"traceEvents"\s*:\s*\['),)),
    (InputKind.LINKED, (NODES, re.compile(r'"inclusive_dur"\s*:'))),
    (InputKind.GRAPH_JSON, (NODES, re.compile(r'"type"\s*:\s*"[A-Z_]+_NODE"'))),
    (InputKind.GRAPH_JSON, (re.compile(r'\A\{\s*"metadata"\s*:\s*\{\s*("version"|\})'),)),
    (InputKind.GROUPS, (re.compile(r'\A\{\s*"\d+"\s*:\s*\[\s*\d'),)),
    (InputKind.REPORT, (re.compile(r'\A\{\s*("tool"\s*:\s*"execgraph|"ranks"\s*:\s*\d+,\s*"scaled_ranks")'),)),
    (InputKind.TRUTH, (re.compile(r'\A\{\s*"job"\s*:\s*"\w+",\s*"seed"\s*:\s*\d+,\s*"makespan_ns"'),)),
    (InputKind.HOST, (NODES,)),
    (InputKind.JSON, ()),
)
TEXT_KINDS: Kinds = (
    (InputKind.PAGE, (re.compile(r"\A<(!doctype )?html", re.IGNORECASE),)),
    (InputKind.GOAL, (re.compile(r"\Anum_ranks\s+\d"),)),
    (InputKind.TEXT, ()),
)
"""What a file may be, and all the signs that tell it; the first kind whose signs are in the text is right."""


class Trace(NamedTuple):
    """A file: what it is, its host rows' process, its rank by content or name, and about when in ns."""

    name: str
    kind: InputKind
    pid: int | None
    rank: int | None
    records_rank: bool
    detail: str = ""
    recorded_ns: int | None = None

    @property
    def folder(self) -> str:
        """The folder that holds it."""
        return PurePosixPath(self.name).parent.as_posix()

    @property
    def identity(self) -> tuple[int, int] | None:
        """The process and time of its rows, which only copies share; None if one is unknown."""
        time = self.recorded_ns or 0
        return (self.pid, time) if self.pid and time >= DATED_NS else None


def recognise(path: Path, name: str = "") -> Trace:
    """Tells what a file is, and its rank also from its `name`. Raises DataError if it cannot be read or is damaged."""
    # here and below: commands that are given graphs start without the readers of traces
    from ..linker.readers import NoTraceError, is_transcoded, open_trace

    pid, rank, recorded_ns = None, None, None
    with open_trace(str(path)) as stream:
        try:
            head = _beginning(stream, path)
        except NoTraceError as error:
            is_merged = Remedy.LINK_RANK in error.args
            kind = InputKind.MERGED_DATABASE if is_merged else InputKind.OTHER_DATABASE
            return Trace(str(path), kind, None, rank_in_name(name or path.name), False)
        kind, text = _kind_of(head, path), _text(head)
        if kind is InputKind.DEVICE:
            kind, pid, rank, recorded_ns, is_certain = _recognise_events(text)
            if is_transcoded(stream):
                while kind is InputKind.DEVICE and pid is None and (more := b"".join(pieces(stream, END))):
                    pid = _recognise_events(_text(more))[1]
                if pid is None and (named := PROCESS_IN_NAME.search(path.name)):
                    pid = int(named[1])
            elif not is_certain:
                kind, pid, rank, recorded_ns, _ = _recognise_events(text + _text(_last(stream)))
        elif kind is InputKind.HOST:
            if process := HOST_PROCESS.search(text) or HOST_PROCESS.search(_text(_last(stream))):
                pid = int(process.group(1))
            elif '"schema"' not in text:
                kind = InputKind.JSON
    known_rank = rank_in_name(name or path.name, pid) if rank is None else rank
    return Trace(str(path), kind, pid, known_rank, rank is not None, recorded_ns=recorded_ns)


def rank_in_name(name: str, process: int | None = None) -> int | None:
    """Returns the rank that a path tells, by the file's own name before those of the folders around it.

    A bare number that is the process is none, no date or time, and none that begins with 0.

    >>> [rank_in_name(f"{name}.json") for name in ("run_2/device_rank3", "et_20240131_7", "et_20240131", "gemm_01")]
    [3, 7, None, None]
    """
    parts = [DATE.sub("-", part) for part in reversed(PurePosixPath(name).parts)]
    matches = ((pattern, pattern.search(part)) for part in parts for pattern in RANK_IN_NAME)
    ranks = ((pattern, int(rank.group(1))) for pattern, rank in matches if rank)
    return next((rank for pattern, rank in ranks if pattern is not BARE_NUMBER or rank != process), None)


def why_two_jobs(sizes: Iterable[tuple[int, int]]) -> str:
    """Returns which two of the ranks are of jobs of other sizes, by the size that each recorded; "" if none are."""
    first, *others = sorted({size: rank for rank, size in sizes if size > 0}.items()) or [(0, 0)]
    return f"rank {first[1]} is of {first[0]} ranks, rank {others[0][1]} of {others[0][0]}" if others else ""


def why_two_runs(recorded_ns: Mapping[str, int | None]) -> str:
    """Returns why what was recorded at these times, some of them unknown, is of two runs; "" if it may be of one.

    >>> why_two_runs({"rank 0": 1_700_000_000 * 10**9, "rank 1": 1_700_086_400 * 10**9, "rank 2": None})
    'rank 1 was recorded 24.0 hours after rank 0'
    """
    known = sorted((time, name) for name, time in recorded_ns.items() if time is not None)
    apart_ns, before, after = max(((b[0] - a[0], a[1], b[1]) for a, b in pairwise(known)), default=(0, "", ""))
    if apart_ns <= MOST_APART_NS or known[-1][0] < DATED_NS:
        return ""
    return f"{after} was recorded {apart_ns / NS_PER_HOUR:,.1f} hours after {before}"


def _beginning(stream: BinaryIO, path: Path) -> bytes:
    """Returns the first bytes; of JSON up to where its rows begin and as many more."""
    head = b"".join(pieces(stream, END))
    if not head:
        raise DataError(f"{path}: nothing in it decompresses: it is empty or damaged; copy it again")
    if head.lstrip(BLANK)[:1] != b"{":
        return head
    while not ROWS.search(head) and len(head) < LONGEST_HEAD and (more := b"".join(pieces(stream, len(head)))):
        head += more
    return head + b"".join(pieces(stream, END)) if len(head) > END else head


def _kind_of(head: bytes, path: Path) -> InputKind:
    """Returns what a file begins like: of traces the kind that they may be."""
    text = _text(head).lstrip("\ufeff \t\r\n")
    kinds: Kinds = JSON_KINDS if text.startswith(JSON_START) else ()
    if not kinds:
        if head.startswith(GZIP_MAGIC):
            raise DataError(f"{path}: is compressed twice; decompress it once")
        with suppress(UnicodeDecodeError):  # what people write; it may end amid a character
            letters = codecs.getincrementaldecoder("utf-8")().decode(head)
            kinds = TEXT_KINDS if all(letter.isprintable() or letter.isspace() for letter in letters) else ()
    known = (kind for kind, signs in kinds if all(sign.search(text) for sign in signs))
    return next(known, InputKind.GRAPH if GRAPH.match(head) or ".et" in path.suffixes else InputKind.OTHER)


def _recognise_events(text: str) -> tuple[InputKind, int | None, int | None, int | None, bool]:
    """Returns kind, process, recorded rank and time of a Chrome trace, and whether rows and keys tell them all."""
    from ..linker.readers import Role, role_of

    # what linking takes for no rank is none here
    recorded = {integer(described.get("rank"), -1) for described in objects_in(text, key=DISTRIBUTED)}
    ranks = {rank for rank in recorded if 0 <= rank <= INT32_MAX}
    by_profiler, processes, rank_labels = bool(PROFILER_KEYS.search(text)), Counter[int](), set[int]()
    rank_names = set[str]()
    base, times_us = BASE_TIME.search(text), list[float]()
    base_ns = int(base[1] or FOREVER) if base else 0
    events = EVENTS.search(text)
    for row in objects_in(text, events.end() if events else 0):
        category, arguments = row.get("cat"), row.get("args")
        role = role_of(category if isinstance(category, str) else None)
        by_profiler |= bool(category) and role is not Role.UNKNOWN
        process = row.get("pid")
        if isinstance(process, str) and (named := kineto.PROCESS_OF_RANK.fullmatch(process)):
            rank_names.add(named[1])
            process = integer(named[2], -1)
        pid = integer(process, -1) if isinstance(process, int) else -1
        labels = str(arguments) if row.get("ph") == "M" and isinstance(arguments, dict) else ""
        if role is not Role.UNKNOWN and isinstance(time := row.get("ts"), int | float) and 0 <= time < FOREVER / 1000:
            times_us.append(time)
        if pid >= 0 and (role in (Role.OP, Role.CALL) or labels == "{'labels': 'CPU'}"):
            processes[pid] += 1
        rank_labels.update(int(rank) for rank in RANK_LABEL.findall(labels))
    # the median, as damaged rows have times of 0
    recorded_ns = int(median(times_us) * 1000) + base_ns if times_us and base_ns < FOREVER else None
    is_certain = bool(not rank_names and processes and ranks and (base or (recorded_ns or 0) >= DATED_NS))
    if not by_profiler:
        return InputKind.OTHER_EVENTS, None, None, None, is_certain
    if MERGED_RANKS.search(text) or max(len(ranks), len(rank_labels), len(rank_names)) > 1:
        return InputKind.MERGED, None, None, None, is_certain
    named_rank = kineto.ranks_by_coordinates(rank_names).values()
    pid_of_most = max(processes, key=processes.__getitem__, default=None)
    kind = InputKind.DETAIL if DETAILS.search(text) else InputKind.DEVICE
    return kind, pid_of_most, next(iter(ranks or rank_labels or named_rank), None), recorded_ns, is_certain


def _last(stream: BinaryIO) -> bytes:
    """Returns the end of the stream, from where it stands; a compressed one has to be run through."""
    if stream.seekable():
        stream.seek(max(stream.tell(), os.fstat(stream.fileno()).st_size - END))
    last = bytearray()
    for piece in pieces(stream):
        last += piece
        if len(last) > 8 * END:
            del last[:-END]
    return bytes(last[-END:])


def pieces(stream: BinaryIO, limit: int = sys.maxsize) -> Iterator[bytes]:
    """Yields what the stream holds, up to `limit` bytes; of a damaged file what comes before the damage."""
    read = cast(io.BufferedIOBase, stream).read1
    with suppress(OSError, EOFError, zlib.error):
        while limit > 0 and (piece := read(min(limit, PIECE))):
            yield piece
            limit -= len(piece)


def _text(piece: bytes) -> str:
    return piece.decode("utf-8", "replace")


TRACE = FileKind("a host or device trace", to_give="device traces, with their host traces")
TRACE_OR_GRAPH = FileKind(
    "a trace or a graph", to_give="device traces, with their host traces, linked traces or graphs"
)
"""What is wanted where files of several kinds would do."""
READ_IN_PLACE = {InputKind.HOST: (InputKind.LINKED, InputKind.GRAPH_JSON), InputKind.DEVICE: (InputKind.DETAIL,)}
"""Kinds of files that are read like another kind, as they are written like it, and make no sense there."""
SAYS_MORE = (InputKind.MERGED, InputKind.MERGED_DATABASE, InputKind.OTHER_DATABASE, InputKind.OTHER_EVENTS)
"""Kinds of files of which the reader of device traces says more than what they are."""
TAKES_FOLDER = {InputKind.DEVICE: Remedy.BUILD, InputKind.HOST: Remedy.BUILD, InputKind.GRAPH: Remedy.REPLAY}
FOLDERS = {InputKind.DEVICE: "a device trace or a folder of traces", InputKind.GRAPH: "a folder of graphs"}
LOOKED_AT = 32
"""Files in a folder that was given for a file."""


@contextmanager
def reading(path: str | None, expected: InputKind, here: Mapping[InputKind, str] | None = None) -> Iterator[None]:
    """Explains in the DataError of the block that `path` is of another kind than expected, if it is a file.

    `here` is how this command wants files of other kinds that it takes, as "as --host-trace".
    """
    file = Path(path or "")
    kind = kind_of(file) if expected in READ_IN_PLACE else None
    if kind and kind in READ_IN_PLACE[expected]:
        raise DataError(instead(file, kind, expected, here))
    try:
        yield
    except DataError as error:
        problem = wrong_kind(file, expected, here) if path else ""
        if not problem:
            raise
        raise DataError(problem) from error


def wrong_kind(path: Path, expected: InputKind, here: Mapping[InputKind, str] | None = None) -> str:
    """Returns a sentence on what the file or folder is; "" if it is of the expected kind or cannot be read."""
    if path_is(path, Path.is_dir):
        remedy = instead_of_folder(path, expected) or f"give {expected.to_give}"
        return f"{path} is a folder, not {expected.singular}: {remedy}"
    kind = kind_of(path)
    is_any_json = kind is InputKind.JSON and expected is not InputKind.GRAPH
    says_reader = is_any_json or (expected is InputKind.DEVICE and kind in SAYS_MORE)
    return "" if not kind or kind is expected or says_reader else instead(path, kind, expected, here)


def instead(path: str | Path, kind: InputKind, wanted: FileKind, here: Mapping[InputKind, str] | None = None) -> str:
    """Returns the sentence: "x.json is a linked trace, not a graph: pass it to trace-convert"."""
    taken_by = (here or {}).get(kind) or (kind.taken_by and f"to {kind.taken_by}")
    remedy = f"pass it {taken_by}" if taken_by else f"give {wanted.to_give}"
    return f"{path} is {kind.singular}, not {wanted.singular}: {remedy}"


def file_for_folder(path: Path, holding: InputKind) -> str:
    """Returns what to say of a path that was given for a folder of traces or graphs."""
    if not path_is(path, Path.exists):
        return f"{path}: no such folder; check the path"
    kind, expected = kind_of(path), FOLDERS[holding]
    if not kind or kind is holding or TAKES_FOLDER.get(kind) == TAKES_FOLDER[holding]:
        name = kind.singular if kind else "a file"
        return f"{path} is {name}, not {expected}: give the folder that holds it, {path.parent}"
    return instead(path, kind, FileKind(expected, to_give="the folder that holds them"))


def instead_of_folder(folder: Path, expected: InputKind) -> str:
    """Returns what to do with a folder where a file was wanted, by what is in it; nothing where that does not tell."""
    file_of: dict[InputKind, Path] = {}
    with suppress(OSError):  # files may go meanwhile
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        for path in islice(files, LOOKED_AT):
            if kind := kind_of(path):
                file_of.setdefault(kind, path)
    ways = [f"give a file in it, such as {file_of[expected]}"] if expected in file_of else []
    takers = {kind: command for kind, command in TAKES_FOLDER.items() if kind in file_of}
    if expected is InputKind.GRAPH:
        takers.pop(expected, None)
    ways += dict.fromkeys(f"pass it to {command}" for command in takers.values())
    return " or ".join(ways)


def kind_of(path: Path) -> InputKind | None:
    """Returns the kind of a file; None for what is none, or cannot be read."""
    with suppress(DataError, FileNotFoundError):
        if path_is(path, Path.is_file):
            return recognise(path).kind
    return None
