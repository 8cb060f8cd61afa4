"""Runs a command on hostile files, in this process, and checks that it did its work or refused in one line."""

import io
import json
import logging
import re
import signal
import traceback
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple

from execgraph.schema.errors import DataError
from execgraph.tools import workers
from execgraph.tools.commands import trace_build, trace_scale

SECONDS, SECONDS_PER_MB = 2.5, 4.0
"""What a command may take of a core: several times what the slowest one, trace-report, takes for sound files."""
LONGEST_LINE = 2000
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
ENDED = Counter[int]()
"""How many commands ended with each exit status."""


class Failed(Exception):
    """A command did what none may do: the symptom, which cases of one cause share, and all that helps to find it."""

    def __init__(self, symptom: str, detail: str = "") -> None:
        super().__init__(f"{symptom}\n{detail}" if detail else symptom)
        self.symptom, self.detail = symptom, detail


class Transcript:
    """What a case did so far, in a file that outlives the process."""

    stream: IO[str] | None = None

    @classmethod
    def add(cls, line: str) -> None:
        if cls.stream is not None:
            # what texts were drawn may be no Unicode
            cls.stream.write(line.encode(errors="backslashreplace").decode() + "\n")
            cls.stream.flush()


def _in_turn(function: Callable[[Any], Any], tasks: Sequence[Any], *_: Any, **__: Any) -> Iterator[tuple[Any, Any]]:
    """Does the tasks as worker processes would, in this one, so that what goes wrong is seen."""
    for task in tasks:
        try:
            yield task, function(task)
        except DataError as error:
            yield task, error


def without_workers() -> None:
    """From now on this process does all tasks itself."""
    for module in (workers, trace_build, trace_scale):
        if hasattr(module, "in_processes"):
            module.in_processes = _in_turn


class Said(NamedTuple):
    """How a command ended and what it printed."""

    status: int
    out: str
    err: str


def run(name: str, *arguments: Any) -> tuple[int, str]:
    """Runs a command in this process.

    Returns: Its exit status, and what it printed on stdout, or on stderr if it failed.
    Raises: Failed, when it did what no command may do. A command that takes too long ends the process by SIGPROF.
    """
    given = [str(argument) for argument in arguments]
    shown = f"trace-{name} {' '.join(given)}"
    Transcript.add(f"$ {shown}")
    folders = {path if path.is_dir() else path.parent for path in arguments if isinstance(path, Path)}
    before = _files(folders)
    said = _said(name, given, _seconds_for(before))
    ENDED[said.status] += 1
    after = _files(folders)
    for symptom in _faults(name, said, given):
        if "internal error" in symptom:
            detail = _again(name, given)
            raise Failed(symptom + place_in(detail), f"{shown}\n{detail}")
        raise Failed(symptom, f"{shown}\n{said.err[-LONGEST_LINE:]}")
    if hidden := [path for path in after if path.name.startswith(".")]:
        raise Failed(f"trace-{name} leaves hidden files behind", f"{shown}: {hidden}")
    if said.status and before != after and name != "build":
        changed = sorted(str(path) for path in {*before, *after} if before.get(path) != after.get(path))
        raise Failed(f"trace-{name} fails and leaves files behind", f"{shown}: {changed}\n{said.err}")
    return said.status, said.err.strip() if said.status else said.out


State = dict[Path, tuple[int, int, int]]


def _files(folders: set[Path]) -> State:
    """What there is in the folders, and what tells whether it was written."""
    states = {path: path.lstat() for folder in folders for path in folder.rglob("*") if not path.is_dir()}
    return {path: (state.st_ino, state.st_size, state.st_mtime_ns) for path, state in states.items()}


def _seconds_for(files: State) -> float:
    return SECONDS + SECONDS_PER_MB * sum(size for _, size, _ in files.values()) / 1e6


def _said(name: str, given: list[str], seconds: float) -> Said:
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
    main = import_module(f"execgraph.tools.commands.trace_{name}").main
    status = -1
    try:
        with redirect_stdout(out), redirect_stderr(err), _limited(seconds), warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            main(given)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException as error:
        raise Failed(f"trace-{name}: {type(error).__name__} escapes", traceback.format_exc()) from error
    return Said(status, out.buffer.getvalue().decode(), err.getvalue())  # type: ignore[attr-defined]


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Ends this process by SIGPROF, which Python can answer with a traceback, after so much time of a core."""
    before = signal.getsignal(signal.SIGTERM)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGTERM, before)
        logging.getLogger().handlers.clear()


def _faults(name: str, said: Said, given: list[str]) -> Iterator[str]:
    """What is wrong with how a command ended, the worst first."""
    for word in ("internal error", "out of memory", "Traceback", "Warning"):
        if word in said.err:
            line = next(line for line in said.err.splitlines() if word in line)
            yield f"trace-{name}: {'warning' if word == 'Warning' else word}: {_without_figures(line)}"
    if said.status not in (0, 1, 2):
        yield f"trace-{name}: exit status {said.status}"
    errors = sum(line.startswith(f"trace-{name}: error: ") for line in said.err.splitlines())
    if said.status and not errors:
        yield f"trace-{name}: exit status {said.status} without a line that says why"
    if not said.status and errors:
        yield f"trace-{name}: an error, and exit status 0"
    if errors > 1 and name != "build":
        yield f"trace-{name}: {errors} errors for one refusal"
    if any(len(line) > LONGEST_LINE for line in said.err.splitlines()):
        yield f"trace-{name}: a message of more than {LONGEST_LINE} characters"
    if odd := {character for character in said.out + said.err if _is_control(character)}:
        yield f"trace-{name}: control characters on the terminal: {sorted(odd)}"
    if "--json" in given and not said.status and not _is_json(said.out):
        yield f"trace-{name}: --json prints what is no JSON"


def _without_figures(line: str) -> str:
    what = line.partition("internal error: ")[2].partition("; run again")[0]
    return re.sub(r"'[^']*'|\d+|/\S+", "…", what or line)[:120]


def place_in(traceback: str, innermost: int = -1) -> str:
    """Where the project's code was, as the end of a symptom."""
    places = re.findall(r'File "\S*?/((?:schema|linker|converter|tools)/\S+)", line \d+,? in (\S+)', traceback)
    return f" in {places[innermost][1]} of {places[innermost][0]}" if places else ""


def _is_control(character: str) -> bool:
    return character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cs")


def _is_json(text: str) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


def _again(name: str, given: list[str]) -> str:
    """Where the internal error came from."""
    with suppress(Failed):
        return _said(name, [*given, "-v"], SECONDS).err[-8000:]
    return ""


def must(command: str, *arguments: Any) -> str:
    """Runs a command that has no reason to refuse. Returns what it printed on stdout. Raises Failed."""
    status, said = run(command, *arguments)
    if status:
        raise Failed(f"trace-{command} refuses a sound file: {_without_figures(said.splitlines()[-1])}", said)
    return said


def check_counted(device: Path, summary: dict[str, Any], options: list[str]) -> None:
    """Checks that the rows of device work are activities, or counted as dropped."""
    with suppress(ValueError, RecursionError):
        rows = json.loads(device.read_bytes())
        rows = rows.get("traceEvents") if isinstance(rows, dict) else rows
        if isinstance(rows, list) and not {"--steps", "--window"} & {*options}:
            work = sum(isinstance(row, dict) and row.get("cat") in DEVICE_WORK and row.get("ph") == "X" for row in rows)
            known = summary["activities"] + sum(summary["dropped"].values())
            if work > known:
                raise Failed(
                    "rows of device work are lost uncounted", f"{work} became {known} activities and dropped rows"
                )


def check_kept(linked: Path, summary: dict[str, Any]) -> None:
    """Checks that every activity of a linked file is in the graph, or counted."""
    with suppress(ValueError, RecursionError, KeyError, TypeError, AttributeError):
        nodes = json.loads(linked.read_bytes())["nodes"]
        activities = sum(node.get("cat") is not None for node in nodes)
        known = summary["activities"] + sum(summary.get("dropped", {}).values())
        if activities > known:
            raise Failed("activities are lost uncounted", f"{activities} became {known} nodes and dropped ones")
