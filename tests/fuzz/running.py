"""Runs a command on hostile files, in this process or in forks, and checks that it did its work or refused in one line.

No case can end the run, hold it up, or take all memory. A fork runs a batch of cases, as forking takes as long as a
small case. A case that dies ends its fork, and the next fork goes on behind it.
"""

import faulthandler
import io
import json
import logging
import os
import re
import resource
import selectors
import signal
import sys
import tempfile
import time
import traceback
import unicodedata
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from execgraph.schema.errors import DataError
from execgraph.tools import workers

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
    workers.in_processes = _in_turn  # type: ignore[assignment]


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
    said = _said(name, given, SECONDS + SECONDS_PER_MB * sum(size for _, size, _ in before.values()) / 1e6)
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


MEMORY = 2 << 30
"""What a fork may map beyond what this process has mapped."""
SECONDS_OF_A_CHILD = 300
"""How long a case may take by the clock: one that waits for what never comes takes no time of a core."""
BATCH = 20
LONGEST = 8000
"""Characters of the detail of a verdict, the last ones."""

Check = Callable[[str, Path], None]


class Verdict(NamedTuple):
    """What became of a case; `symptom` is empty where nothing failed."""

    case: str
    symptom: str = ""
    detail: str = ""
    commands: int = 0
    refused: int = 0
    seconds: float = 0


def run_cases(cases: Iterable[str], check: Check, jobs: int) -> Iterator[Verdict]:
    """Runs `check(case, folder)` for each case, and yields what became of it, in the order in which they end."""
    waiting = iter(cases)
    forks: set[_Fork] = set()
    with selectors.DefaultSelector() as selector:
        try:
            while True:
                while len(forks) < jobs and (batch := deque(islice(waiting, BATCH))):
                    forks.add(_start(batch, check, selector))
                if not forks:
                    return
                for key, _ in selector.select(1):
                    fork: _Fork = key.data
                    if said := os.read(fork.verdicts, 1 << 16):
                        yield from fork.heard(said)
                        continue
                    selector.unregister(fork.verdicts)
                    forks.remove(fork)
                    yield from fork.ended()
                    if fork.batch:
                        forks.add(_start(fork.batch, check, selector))
                for fork in forks:
                    if time.monotonic() - fork.since > SECONDS_OF_A_CHILD:
                        os.kill(fork.process, signal.SIGPROF)
        finally:
            for fork in forks:
                os.kill(fork.process, signal.SIGKILL)
                os.waitpid(fork.process, 0)


class _Fork:
    """A process that runs a batch of cases; `batch` are those whose verdict it has not given yet."""

    def __init__(self, process: int, verdicts: int, transcript: IO[str], batch: deque[str]) -> None:
        self.process, self.verdicts, self.transcript, self.batch = process, verdicts, transcript, batch
        self.since, self.unread = time.monotonic(), b""

    def heard(self, said: bytes) -> Iterator[Verdict]:
        """Yields the verdicts that are whole by now."""
        *lines, self.unread = (self.unread + said).split(b"\n")
        for line in lines:
            self.since = time.monotonic()
            self.batch.popleft()
            yield Verdict(*json.loads(line))

    def ended(self) -> Iterator[Verdict]:
        """Yields the verdict of the case that ended the process, if one did."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        os.close(self.verdicts)
        self.transcript.seek(0)
        transcript = self.transcript.read()
        self.transcript.close()
        if self.batch:
            seconds = time.monotonic() - self.since
            yield Verdict(self.batch.popleft(), _death(status, transcript), transcript[-LONGEST:], seconds=seconds)


def _death(status: int, transcript: str) -> str:
    """The command that ended the process, and where it was."""
    commands = re.findall(r"^\$ (\S+)", transcript, re.MULTILINE)
    where = place_in(transcript.rpartition("Current thread")[2], innermost=0)
    # to write down where it is may itself fail, at a bad moment
    late = status == -signal.SIGPROF or ("most recent call first" in transcript and "Fatal" not in transcript)
    what = "takes too long" if late else f"ends the process ({status})"
    return f"{commands[-1] if commands else 'a case'} {what}{where}"


def _start(batch: deque[str], check: Check, selector: selectors.BaseSelector) -> _Fork:
    hearing, saying = os.pipe()
    transcript = tempfile.TemporaryFile("w+")  # noqa: SIM115
    sys.stdout.flush()
    process = os.fork()
    if not process:
        os.close(hearing)
        _run_batch(batch, check, saying, transcript)
    os.close(saying)
    fork = _Fork(process, hearing, transcript, batch)
    selector.register(fork.verdicts, selectors.EVENT_READ, fork)
    return fork


def _run_batch(batch: Iterable[str], check: Check, saying: int, transcript: IO[str]) -> NoReturn:
    """Does the work of a fork, and ends it: what this process does at its end is not for the fork to do."""
    try:
        os.dup2(transcript.fileno(), 2)
        faulthandler.enable(transcript)
        faulthandler.register(signal.SIGPROF, transcript, chain=True)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, resource.RLIM_INFINITY))
        Transcript.stream = transcript
        without_workers()
        for case in batch:
            transcript.seek(0)
            transcript.truncate()
            verdict = run_case(case, check)
            transcript.seek(0)
            _write_all(saying, json.dumps(verdict._replace(detail=f"{transcript.read()}{verdict.detail}"[-LONGEST:])))
    finally:
        os._exit(0)


def _write_all(descriptor: int, line: str) -> None:
    with open(descriptor, "wb", closefd=False) as stream:
        stream.write(line.encode() + b"\n")


def run_case(case: str, check: Check, folder: Path | None = None) -> Verdict:
    """Runs a case in this process, in a folder of its own if none is given."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="case.") as name:
            return run_case(case, check, Path(name))
    before, begun = ENDED.copy(), time.process_time()
    symptom = detail = ""
    try:
        check(case, folder)
    except Failed as error:
        symptom, detail = error.symptom, error.detail
    except Exception as error:
        symptom, detail = f"the fuzzer: {error!r}", traceback.format_exc()
    commands, refused = ENDED.total() - before.total(), sum((ENDED - before).values()) - (ENDED - before)[0]
    return Verdict(case, symptom, detail, commands, refused, time.process_time() - begun)
