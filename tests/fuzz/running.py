"""Runs a command on hostile files, in this process, and checks that it did its work or refused in one line; what it may cost is limited."""

import io
import json
import logging
import signal
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from execgraph.schema.errors import DataError
from execgraph.tools.commands import trace_build, trace_scale

SECONDS = 10
"""What a command may take of a core."""
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
ENDED = Counter[int]()
"""How many commands ended with each exit status."""


class Failed(Exception):
    """A command did what none may do."""


class _TooLong(BaseException):
    """A command takes too long; not an Exception, so that no command catches it."""


def _in_turn(function: Callable[[Any], Any], tasks: Sequence[Any], *_: Any, **__: Any) -> Iterator[tuple[Any, Any]]:
    """As worker processes would, in this one, so that what goes wrong is seen."""
    for task in tasks:
        try:
            yield task, function(task)
        except DataError as error:
            yield task, error


for command in (trace_build, trace_scale):
    command.in_processes = _in_turn  # type: ignore[attr-defined]


def run(name: str, *arguments: Any) -> tuple[int, str]:
    """Runs a command in this process; its exit status and what it printed. Raises Failed."""
    given = [str(argument) for argument in arguments]
    shown = f"trace-{name} {' '.join(given)}"
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
    main = import_module(f"execgraph.tools.commands.trace_{name}").main
    try:
        with redirect_stdout(out), redirect_stderr(err), _limited(), warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            main(given)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except _TooLong as error:
        raise Failed(f"{shown}: takes more than {SECONDS} s\n{traceback.format_exc()}") from error
    except BaseException as error:
        raise Failed(f"{shown}: {traceback.format_exc()}") from error
    ENDED[status] += 1
    said = err.getvalue().strip()
    if "internal error" in said or "out of memory" in said or "Traceback" in said or "Warning" in said:
        raise Failed(f"{shown}: {said}\n{_again(main, given)}")
    if status not in (0, 1, 2):
        raise Failed(f"{shown}: exit {status}: {said}")
    if status and "error: " not in said:
        raise Failed(f"{shown}: exit {status} without a line that says why: {said[-300:]}")
    return status, said if status else out.buffer.getvalue().decode()  # type: ignore[attr-defined]


@contextmanager
def _limited() -> Iterator[None]:
    before = signal.signal(signal.SIGPROF, _stop), signal.getsignal(signal.SIGTERM)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before[0])
        signal.signal(signal.SIGTERM, before[1])
        logging.getLogger().handlers.clear()


def _stop(*_: object) -> None:
    raise _TooLong


def _again(main: Callable[[Sequence[str]], None], given: list[str]) -> str:
    """Where the internal error came from."""
    said = io.StringIO()
    with (
        redirect_stdout(io.TextIOWrapper(io.BytesIO())),
        redirect_stderr(said),
        warnings.catch_warnings(),
        suppress(SystemExit),
    ):
        warnings.simplefilter("error", RuntimeWarning)
        main([*given, "-v"])
    return said.getvalue()


def must(command: str, *arguments: Any) -> None:
    if run(command, *arguments)[0]:
        raise Failed(f"trace-{command} refuses a sound file")


def check_counted(device: Path, summary: dict[str, Any], options: list[str]) -> None:
    """The rows of device work are activities, or counted as dropped."""
    with suppress(ValueError, RecursionError):
        rows = json.loads(device.read_bytes())
        rows = rows.get("traceEvents") if isinstance(rows, dict) else rows
        if isinstance(rows, list) and not {"--steps", "--window"} & {*options}:
            work = sum(isinstance(row, dict) and row.get("cat") in DEVICE_WORK and row.get("ph") == "X" for row in rows)
            known = summary["activities"] + sum(summary["dropped"].values())
            if work > known:
                raise Failed(f"{work} rows of device work became {known} activities and dropped rows")


def check_kept(linked: Path, summary: dict[str, Any]) -> None:
    """Every activity of a linked file is in the graph, or counted."""
    with suppress(ValueError, RecursionError, KeyError, TypeError, AttributeError):
        nodes = json.loads(linked.read_bytes())["nodes"]
        activities = sum(node.get("cat") is not None for node in nodes)
        known = summary["activities"] + sum(summary.get("dropped", {}).values())
        if activities > known:
            raise Failed(f"{activities} activities became {known} nodes and dropped ones")
