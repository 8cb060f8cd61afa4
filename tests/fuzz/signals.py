"""Stops commands that write folders at drawn moments; the next run must write what an undisturbed one writes.

A moment is a call of a function or an access to the file system, counted in a copy of this process, so that it is the
same in each repetition.
"""

import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

from fuzz import samples
from fuzz.running import Failed, Transcript, must
from fuzz.samples import Files

STOPPED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
# groups that a rank by itself numbers in another way than the job
SAMPLE, TRACES, GRAPHS, OUT = "generated moe_dp", "traces", "graphs", "out"
ACCESSES = (
    *("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate"),
    *("shutil.rmtree", "tempfile.mkdtemp"),
)
PAGE = f"{OUT}/page.html"
HIDDEN = re.compile(r"(^|/)\.")


class Command(NamedTuple):
    """A command, what it reads, and what it is given; `earlier` makes it write something else to the same place."""

    name: str
    source: str
    options: tuple[str, ...]
    earlier: tuple[str, ...] = ()


COMMANDS = (
    Command("build", TRACES, ("-o", OUT), ("--io", "none")),
    Command("build", TRACES, ("-o", OUT, "--target", "astra-sim")),
    Command("build", TRACES, ("-o", OUT, "--target", "goal"), ("--target", "generic")),
    Command("scale", GRAPHS, ("-o", OUT, "--data-parallel", "2")),
    Command("report", TRACES, ("--csv", f"{OUT}/tables"), ("--top", "3")),
    Command("report", TRACES, ("-o", PAGE, "--perfetto", f"{OUT}/trace.json"), ("--top", "3")),
)


def stop_and_repeat(folder: Path, random: Random) -> None:
    """Stops a command at a moment, then runs it again. Raises Failed."""
    command, number = random.choice(COMMANDS), random.choice(SIGNALS)
    _prepare(folder, command)
    is_earlier = bool(command.earlier) and random.random() < 0.6
    if is_earlier:
        must(command.name, *_arguments(folder, command), *command.earlier)
    before = _files(folder)
    what, status, said = _at_a_moment(folder, command, number, random)
    symptom = f"trace-{command.name}, {number.name}"
    detail = f"{what}: exit {status}, {said.strip()[-1000:]}"
    Transcript.add(f"# {symptom} {detail}")
    if status and status != (-number if number == signal.SIGKILL else STOPPED):
        raise Failed(f"{symptom}: exit {status}", detail)
    if status == STOPPED and said != f"trace-{command.name}: interrupted\n":
        raise Failed(f"{symptom}: says more, or less, than that it was interrupted", detail)
    wanted = undisturbed(command)
    after = _files(folder)
    if number != signal.SIGKILL and (left := after.keys() - before.keys() - wanted.keys()):
        raise Failed(f"{symptom}: leaves files behind", f"{detail}: {sorted(left)}")
    # report.json of a stopped build says how far it came
    final = {name for name in after if not HIDDEN.search(name)} - {f"{OUT}/report.json"}
    if half := sorted(name for name in final if after[name] not in (before.get(name), wanted.get(name))):
        raise Failed(f"{symptom}: leaves something half-written", f"{detail}: {half}")
    # a job that was scaled to its end is not scaled again, whether its command was stopped after that or not
    if command.name == "scale" and wanted.items() <= after.items():
        return
    must(command.name, *_arguments(folder, command))
    again = _files(folder)
    if again != wanted:
        names = sorted(name for name in {*again, *wanted} if again.get(name) != wanted.get(name))
        raise Failed(f"{symptom}: the next run writes something else", f"{detail}: {names}")


@cache
def undisturbed(command: Command) -> Files:
    """What is in the folder after a run that nothing disturbs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _prepare(folder, command)
        must(command.name, *_arguments(folder, command))
        return _files(folder)


def _prepare(folder: Path, command: Command) -> None:
    samples.write(folder / TRACES, samples.traces(SAMPLE))
    if command.source == GRAPHS:
        samples.write(folder / GRAPHS, samples.graphs(SAMPLE))
    if command.name == "report":
        (folder / OUT).mkdir()


def _arguments(folder: Path, command: Command) -> list[Path | str]:
    return [folder / command.source, *(folder / one if one.startswith(OUT) else one for one in command.options), "-q"]


def _files(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _at_a_moment(folder: Path, command: Command, number: signal.Signals, random: Random) -> tuple[str, int, str]:
    # drawing a page makes too many calls to count
    watch = _on_accesses if PAGE in command.options else random.choice([_on_calls, _on_accesses])
    moments = _moments(command, watch)
    # the end of a run is where files get their names
    moment = (
        random.randint(1, moments) if random.random() < 0.5 else random.randint(max(1, moments - moments // 8), moments)
    )

    def act() -> None:
        os.kill(os.getpid(), number)

    status, said = _in_a_copy(lambda: _run(folder, command, watch, moment, act))
    return f"at {moment} of {moments} {watch.__name__.rpartition('_')[2]}", status, said


Watch = Callable[[Callable[[], None]], None]


def _on_calls(seen: Callable[[], None]) -> None:
    def called(*_: object) -> None:
        seen()

    sys.setprofile(called)


def _on_accesses(seen: Callable[[], None]) -> None:
    def accessed(event: str, _: object) -> None:
        if event in ACCESSES:
            seen()

    sys.addaudithook(accessed)


@cache
def _moments(command: Command, watch: Watch) -> int:
    """How many moments a run has."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _prepare(folder, command)
        total = folder / "moments"
        _in_a_copy(lambda: _run(folder, command, watch, 0, lambda: None, total))
        return int(total.read_text())


def _run(
    folder: Path, command: Command, watch: Watch, moment: int, act: Callable[[], None], total: Path | None = None
) -> None:
    """Runs the command, acts at the moment, and writes down how many moments there were."""
    counter = count(1)

    def seen() -> None:
        if next(counter) == moment:
            act()

    main = import_module(f"execgraph.tools.commands.trace_{command.name}").main
    watch(seen)
    try:
        main([str(argument) for argument in _arguments(folder, command)])
    finally:
        sys.setprofile(None)
        if total is not None:
            total.write_text(str(next(counter) - 1))


def _in_a_copy(work: Callable[[], None]) -> tuple[int, str]:
    """The exit status of a copy of this process that does the work, and what it printed on stderr."""
    with tempfile.TemporaryFile("w+") as said:
        process = os.fork()
        if not process:
            status = 99
            try:
                os.setpgid(0, 0)
                os.dup2(said.fileno(), 2)
                sys.stderr = sys.stdout = said
                signal.setitimer(signal.ITIMER_PROF, 0)
                work()
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
            finally:
                said.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        said.seek(0)
        return status, said.read()
