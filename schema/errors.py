"""What is wrong with an input, a request or this installation, in one line each; and the damage of one file."""

import difflib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from importlib.util import find_spec
from typing import NamedTuple

from .reasons import MENDED, WORDS, Counts, Reason, in_words

BEGINNING, END = 1000, 300
LISTED = 12


class Audience(IntEnum):
    """Who reads what this process says: whoever types commands, or calls from Python."""

    TERMINAL = 0
    PYTHON = 1


_audience = Audience.PYTHON


def audience() -> Audience:
    """Returns who reads what this process says."""
    return _audience


def speak_to(readers: Audience) -> None:
    """From now on options and commands are spelled for these readers."""
    global _audience
    _audience = readers


@contextmanager
def said_to(readers: Audience) -> Iterator[None]:
    """In the block options and commands are spelled for these readers."""
    before = _audience
    speak_to(readers)
    try:
        yield
    finally:
        speak_to(before)


class Spelled(NamedTuple):
    """What the terminal and Python call differently; as text, what its readers call it."""

    in_terminal: str
    in_python: str

    def __str__(self) -> str:
        return self[_audience]


class Remedy(Enum):
    """The options and commands that mend something, by which errors and notes name them."""

    ALLOW_MISMATCH = Spelled("--allow-mismatch", "allow_mismatch=True")
    ASTRA_SIM = Spelled("convert with --target astra-sim", 'build the job with execgraph.build(…, target="astra-sim")')
    BANDWIDTH = Spelled("--bandwidth", "bandwidth_gib_s")
    CAPTURES = Spelled("--capture-trace", "captures=…")
    CHUNK = Spelled("--chunk", "GoalOptions(chunk_bytes=…)")
    CSV = Spelled("--csv DIR", "write_csv(folder)")
    DATA_PARALLEL = Spelled("--data-parallel", "data_parallel")
    DATA_PARALLEL_GROUP = Spelled("--data-parallel-group", "groups")
    DIFF = Spelled("--diff", "execgraph.compare")
    HOST_TRACE = Spelled("leave --host-trace out", "give None for the host trace")
    JOBS = Spelled("--jobs", "jobs")
    LATENCY = Spelled("--latency", "latency_ns")
    MAX_MESSAGES = Spelled("--max-messages", "max_messages=…")
    MAX_SIZE = Spelled("--max-size", "set the environment variable EXECGRAPH_MAX_SIZE to")
    MEASURED_COMMUNICATION = Spelled("--measured-communication", "GoalOptions(measured_communication=True)")
    MODULES = Spelled("--modules", "modules=True")
    NO_EXCESS_TIME = Spelled("--no-excess-time", "excess_time=False")
    NO_HOST = Spelled("--no-host", "host=False")
    PEAK = Spelled("--peak", "peaks=…")
    RANK = Spelled("--rank N", "rank=N")
    RANKS = Spelled("--ranks", "ranks")
    REMOVE_RANKS = Spelled("--remove-ranks", "remove_ranks")
    ROOFLINE = Spelled("--roofline", "AstraSimOptions(roofline=…)")
    SCHEDULER = Spelled("--scheduler", "scheduler")
    STRICT = Spelled("--strict", "strict")

    BUILD = Spelled("trace-build", "execgraph.build")
    BUILD_GOAL = Spelled("trace-build --target goal", 'execgraph.build(…, target="goal")')
    CONVERT = Spelled("trace-convert", "execgraph.convert")
    CONVERT_GROUPS = Spelled("trace-convert --comm-groups", "execgraph.read_groups")
    DIAGNOSE = Spelled("trace-diagnose", "execgraph.diagnose")
    JSONIZE = Spelled("trace-jsonize", "execgraph.read_graph")
    LINK = Spelled("trace-link", "execgraph.link")
    LINK_RANK = Spelled("trace-link --rank N", "rank=N of execgraph.link")
    MERGE = Spelled("trace-merge", "execgraph.merge")
    REPLAY = Spelled("trace-replay", "execgraph.replay")
    REPORT = Spelled("trace-report", "execgraph.report")
    REPORT_MODULES = Spelled("trace-report --modules", "execgraph.report with modules=True")
    WRITE_GRAPH = Spelled("trace-convert or trace-build", "ExecutionGraph.write or execgraph.build")
    WRITE_GRAPH_JSON = Spelled("trace-jsonize", "ExecutionGraph.write")
    WRITE_LINKED = Spelled("trace-link", "LinkedTrace.write")

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)


class Words(tuple[object, ...]):
    """A text with remedies in it, which is spelled for its readers when it is printed.

    >>> print(Words("build it with ", Remedy.MODULES))
    build it with modules=True
    """

    __slots__ = ()

    def __new__(cls, *parts: object) -> "Words":
        """Takes the parts of the text, texts and remedies, in their order."""
        return super().__new__(cls, parts)

    def __getnewargs__(self) -> tuple[object, ...]:
        return tuple(self)

    def __str__(self) -> str:
        return "".join(map(str, self))


class DataError(Exception):
    """Input that cannot be used; its text is one line: which file, what is wrong, where, and what to do.

    The `args` are the parts of the text: what is wrong, and each `Remedy` by itself, which the terminal and Python
    spell differently. What a file brings into the text may be of any length; the middle of a very long one is left out.

    >>> import execgraph as eg
    >>> eg.read_graph("nowhere.et")
    Traceback (most recent call last):
    execgraph.schema.errors.DataError: nowhere.et: cannot be read (No such file or directory); check the path
    """

    def __str__(self) -> str:
        text = str(Words(*self.args))
        return text if len(text) <= BEGINNING + END else f"{text[:BEGINNING]} … {text[-END:]}"


class RequestError(DataError):
    """A request that the data cannot meet, such as for a rank that no file holds: wrong usage.

    >>> import execgraph as eg
    >>> eg.link("tests/data/training", rank=7)
    Traceback (most recent call last):
    execgraph.schema.errors.RequestError: tests/data/training: holds the traces of ranks 0, 1, not of rank 7: choose …
    """


class WrongUsage(ValueError):
    """Options of a command, or arguments of a call, that contradict each other or what they are for."""


def nearest(word: str, choices: Iterable[str], listed: bool = True) -> str:
    """Returns the end of a message on an unknown word: the most similar known word, or else all of them.

    >>> print(f"unknown target 'astrasim'{nearest('astrasim', ['generic', 'astra-sim'])}")
    unknown target 'astrasim': did you mean 'astra-sim'?
    """
    spelled = {choice.lower(): choice for choice in choices}
    # such as --dp for --data-parallel
    initials = {"".join(part[:1] for part in choice.strip("-").split("-")): choice for choice in spelled}
    like = [initials[short]] if len(short := word.lower().strip("-")) > 1 and short in initials else None
    if like := like or difflib.get_close_matches(word.lower(), spelled, 1):
        return f": did you mean {spelled[like[0]]!r}?"
    if not listed or not spelled:
        return ""
    more = len(spelled) - LISTED
    return f": choose from {', '.join([*spelled.values()][:LISTED])}" + (f" and {more} more" if more > 0 else "")


class MissingLibrary(RequestError, ImportError):
    """A library that is not installed here; its text says what needs it and the command that installs it.

    >>> import execgraph as eg
    >>> issubclass(eg.MissingLibrary, ImportError), issubclass(eg.MissingLibrary, eg.DataError)
    (True, True)
    """


OPTIONAL = {
    "arrow": ("an Arrow stream", ("nanoarrow",), "nanoarrow"),
    "chart": ("a chart", ("altair",), "altair"),
    "completion": ("tab completion", ("argcomplete",), "argcomplete"),
    "dask": ("a Dask cluster", ("distributed",), "distributed"),
    "report": (
        "the HTML page",
        ("altair", "jinja2", "platformdirs", "vl_convert"),
        "altair jinja2 vl-convert-python platformdirs",
    ),
    "picture": ("a .png or .pdf", ("vl_convert",), "vl-convert-python"),
    "zstd": ("reading zstd", ("zstandard",), "zstandard"),
    "pandas": ("a pandas.DataFrame", ("pandas",), "pandas"),
    "polars": ("a polars.DataFrame", ("polars",), "polars"),
    "torch": ("recording traces", ("torch",), "torch"),
}
"""What needs libraries, these, and what pip is to install, by names that work wherever execgraph came from; by the
extra of pyproject.toml, or the library that it is; not `isal`, without which gzip is only read slower.
"""


def require(name: str, where: str = "") -> None:
    """Raises MissingLibrary where a library is not installed, and loads none. The sentence begins with `where`."""
    use, libraries, packages = OPTIONAL[name]
    for library in libraries:
        if sys.modules.get(library) is None and find_spec(library) is None:
            what = f"{use} needs {library}, which is not installed; run: pip install {packages}"
            raise MissingLibrary(f"{where}: {what}" if where else what)


@dataclass(slots=True)
class DamageCount:
    """One kind of damage: rows, bytes, and the position (byte of the decompressed file) and error of the first one."""

    rows: int
    bytes: int
    at: int
    error: str


@dataclass(slots=True)
class Damage:
    """The damage of one file, whose elements are called `rows` ("device events"); any raises DataError if `strict`."""

    path: str
    rows: str
    strict: bool = False
    counts: dict[Reason, DamageCount] = field(default_factory=dict)
    ends_early: bool = False
    of_file: list[str] = field(default_factory=list)

    def count(self, reason: Reason, at: int, size: int, error: str = "") -> None:
        """One row was read after a repair; or it, or a stretch in which no rows can be distinguished, was left out."""
        kind = WORDS[reason].replace("{}", self.rows)
        self._refuse(f"{kind} at byte {at}" + (f" ({error})" if error else ""))
        count = self.counts.setdefault(reason, DamageCount(0, 0, at, error))
        count.rows += 1
        count.bytes += size

    def note(self, finding: str) -> None:
        """Something about the file as a whole; how many rows it cost cannot be known."""
        self._refuse(finding)
        self.of_file.append(finding)

    def _refuse(self, finding: str) -> None:
        if self.strict:
            raise DataError(f"{self.path}: {finding}; leave ", Remedy.STRICT, " out to use what can be read")

    def end_early(self, at: int) -> None:
        """The end of the file is missing, after that byte."""
        self.ends_early = True
        self.counts.setdefault(Reason.CUT_OFF_ROWS, DamageCount(1, 0, at, ""))
        if not self.of_file:  # nor was it told of the compressed file
            self.note(f"is cut off after byte {at}")

    @property
    def dropped(self) -> Counts:
        """How many rows were left out, by what was wrong with them."""
        return Counts({reason.of(self.rows): at.rows for reason, at in self.counts.items() if reason not in MENDED})

    @property
    def oddities(self) -> Counts:
        """How many rows were read after a repair, by what was repaired."""
        return Counts({reason.of(self.rows): at.rows for reason, at in self.counts.items() if reason in MENDED})

    @property
    def findings(self) -> list[str]:
        """A line for each kind of damage: what, and where it was met first; of what was lost first, with its size."""
        by_kind = sorted(self.counts.items(), key=lambda item: item[0] in MENDED)
        return [
            f"{count.rows} {in_words(reason.of(self.rows))}"
            + ("" if reason in MENDED else f" ({count.bytes} bytes)")
            + f", the first at byte {count.at}"
            + (f": {count.error}" if count.error else "")
            for reason, count in by_kind
            if not (self.ends_early and reason is Reason.CUT_OFF_ROWS)
        ] + self.of_file

    @property
    def notes(self) -> list[str]:
        """The findings, with the file in front."""
        return [f"{self.path}: {finding}" for finding in self.findings]
