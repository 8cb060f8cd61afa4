"""What messages say to whoever calls from Python, where they name the options of commands."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from .schema.errors import DataError

P = ParamSpec("P")
T = TypeVar("T")
IN_PYTHON = {
    "trace-link --rank N": "rank=N of link",
    "with --rank N, or build all with trace-build": "with rank=N, or build all with execgraph.build",
    "leave --host-trace out": "give None for the host trace",
    "leave --strict out": "leave strict out",
    "let --allow-mismatch number": "let allow_mismatch=True number",
    "--allow-mismatch links": "allow_mismatch=True links",
    "--around NODE --hops N, --stream S or --time FROM:TO": "around, streams or time_us",
    "convert with --target astra-sim": 'convert with target="astra-sim"',
    "pass it to trace-link": "give it to execgraph.link",
    "pass it to trace-convert": "give it to execgraph.convert",
    "pass it to trace-build": "give it to execgraph.build",
    "pass it to trace-replay": "give it to execgraph.replay",
    "pass it to trace-jsonize": "give it to execgraph.read_graph",
}
"""What a message names by the option or command of the terminal, and what does the same from Python."""


def in_python(text: str) -> str:
    """Returns a message in the words of Python.

    >>> in_python("these two files are not of one run (--allow-mismatch links them all the same)")
    'these two files are not of one run (allow_mismatch=True links them all the same)'
    """
    for option, argument in IN_PYTHON.items():
        text = text.replace(option, argument)
    return text


def for_python(function: Callable[P, T]) -> Callable[P, T]:
    """Returns the function, whose errors name arguments of Python in place of options of commands."""

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> T:
        try:
            return function(*args, **named)
        except DataError as error:
            error.args = (in_python(str(error)),)
            raise

    return call
