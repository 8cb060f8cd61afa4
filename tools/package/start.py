"""How the installed commands start: `start.trace_link()` loads and runs trace-link, and so on for all.

Loading takes most of a second, in which a signal is to end the command in one line: nothing that takes long is here.
"""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

STOPPED = 130
"""As in `tools.ending`, which takes over when the command works."""

NO_MEMORY = "out of memory; use a machine with more, or a shorter trace"
UNMAPPED = "failed to map segment from shared object"
"""What the system says of a library for which it has no memory."""


def __getattr__(name: str) -> Callable[..., NoReturn]:
    """Returns the command `trace-link` for trace_link."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    command = name.replace("_", "-")

    def stop(*_: Any) -> None:
        os.write(2, f"{command}: interrupted\n".encode())
        os._exit(STOPPED)

    def start(arguments: Sequence[str] | None = None) -> NoReturn:
        # no sums here are worth more threads, each of which takes memory and may be one too many
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        _open_closed_streams()
        for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            # who starts a command in the background may have made it deaf to Ctrl-C
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, stop)
        # or Python looks for garbage among all objects of the libraries before the process ends
        atexit.register(gc.freeze)
        import importlib

        try:
            importlib.import_module(f".tools.commands.{name}", __package__).main(arguments)
        except (MemoryError, ImportError) as error:
            # before the command works; `tools.command` says the same later
            if not isinstance(error, MemoryError) and UNMAPPED not in str(error):
                raise
            os.write(2, f"{command}: error: {NO_MEMORY}\n".encode())
            sys.exit(1)
        raise AssertionError(f"{command} returned")

    return start


def _open_closed_streams() -> None:
    """Opens closed standard streams on the null device, so that no file gets their descriptors and their output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # the lowest one that is free, which is this
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
