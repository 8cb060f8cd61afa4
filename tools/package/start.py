"""How the installed commands start: `start.trace_link()` loads and runs trace-link, and so on for all.

To load a command and its libraries takes most of a second, in which a signal is to end it as it does later: in one line. So nothing
that takes long is loaded here.
"""

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

STOPPED = 130
"""As in `tools.ending`, which takes over when the command works."""


def __getattr__(name: str) -> Callable[..., NoReturn]:
    """The command `trace-link` for trace_link."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def start(arguments: Sequence[str] | None = None) -> NoReturn:
        _end_in_a_line(name.replace("_", "-"))
        import importlib

        importlib.import_module(f".tools.commands.{name}", __package__).main(arguments)
        raise AssertionError(f"{name} returned")

    return start


def _end_in_a_line(command: str) -> None:
    def stop(*_: Any) -> None:
        os.write(2, f"{command}: interrupted\n".encode())
        os._exit(STOPPED)

    for number in (signal.SIGINT, signal.SIGTERM):
        # who starts a command in the background may have made it deaf to Ctrl-C
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)
