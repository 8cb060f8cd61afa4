"""Commands as a shell runs them, but in this process: how they end, and what they print."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import pytest


class Ended(NamedTuple):
    """Exit status, and what stood on stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The only line on stderr."""
        [line] = self.err.splitlines()
        return line


Run = Callable[..., Ended]
"""What the fixture `run` of tests/conftest.py gives: a command is named, such as "trace-link", or its `main` given."""


def status_of(command: str | Callable[[list[str]], object], *arguments: object) -> int:
    """The exit status of a command, which prints where this process does."""
    main: Any = command
    if isinstance(command, str):
        main = import_module(f"execgraph.tools.commands.{command.replace('-', '_')}").main
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return int(end.value.code or 0)
