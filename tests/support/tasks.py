"""Tasks for workers: each of their processes imports this module, which imports little itself."""

import os
import signal

from execgraph.schema.io import open_input
from execgraph.tools.workers import stage_done


def content(path: str) -> int:
    """Bytes."""
    with open_input(path) as stream:
        return len(stream.read())


def killed_by_3(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def process_of(_: int) -> int:
    return os.getpid()


def staged(number: int) -> int:
    for _ in range(number):
        stage_done()
    return number


def in_turn(function, tasks, *_, **__):
    """As processes do it: what a task raises is its outcome."""
    for task in tasks:
        try:
            yield task, function(task)
        except Exception as error:
            yield task, error
