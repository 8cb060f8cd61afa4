"""How a command ends early: SIGTERM and SIGHUP act as Ctrl-C, and what cannot stop by itself is stopped."""

import atexit
import os
import signal
import socket
import sys
import threading
from _thread import start_new_thread
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

STOPPED = 130
"""The exit status of what was stopped, as shells have it for Ctrl-C."""
SECONDS_TO_CLEAN_UP = 10
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def ended_by_signals(name: str) -> Iterator[None]:
    """In the block the first SIGINT, SIGTERM or SIGHUP is a KeyboardInterrupt, later ones are nothing.

    Where Python drops exceptions, as while it closes files that nobody has any more, it is one at the end of the block.
    Python hears of a signal only between two of its own steps: a block that has not ended SECONDS_TO_CLEAN_UP after
    one, as it is in a long call, ends with the process, as by SIGKILL, which leaves nothing half-written under a final
    name either.
    """
    # who starts a command in the background may have made it deaf to Ctrl-C
    before = {number: signal.getsignal(number) for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN}
    # while Python goes down there is nobody to raise to
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)
    asked: list[int] = []
    ended = threading.Event()

    def stop(number: int, _: object) -> NoReturn:
        asked.append(number)
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    receiver, sender = socket.socketpair()
    with sender:
        sender.setblocking(False)
        woken = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        with suppress(RuntimeError):  # there may be no more threads
            start_new_thread(_end_late, (receiver, ended, name))
        for number in before:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(woken)
            ended.set()
            if asked:
                raise KeyboardInterrupt


def _end_late(receiver: socket.socket, ended: threading.Event, name: str) -> None:
    with receiver:
        if receiver.recv(1) and not ended.wait(SECONDS_TO_CLEAN_UP):
            say_stopped(name)
            sys.stderr.flush()
            os._exit(STOPPED)


def end_without_reader() -> NoReturn:
    """Ends a command whose output nobody reads any more, before Python complains about it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(1)


def say_stopped(name: str) -> None:
    """Prints the line of a command that was stopped."""
    print(f"{name}: interrupted", file=sys.stderr)
