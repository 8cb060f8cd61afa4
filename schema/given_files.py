"""What a caller from Python gives where a file or an object goes in, and the answer to what is neither."""

import os
from typing import TypeGuard

FilePath = str | os.PathLike[str]
"""The path of a file, as text or as a `pathlib.Path`."""


def is_path(given: object) -> TypeGuard[FilePath]:
    """Returns whether a file is meant.

    >>> is_path("host.json.gz"), is_path(None)
    (True, False)
    """
    return isinstance(given, str | os.PathLike)


def wrong_argument(call: str, expected: str, given: object) -> TypeError:
    """Returns the exception for an argument of the wrong kind, whose text says what the call takes.

    >>> wrong_argument("replay(graph)", "an ExecutionGraph or the path of a .et file", 3)
    TypeError('replay(graph) takes an ExecutionGraph or the path of a .et file, not int')
    """
    return TypeError(f"{call} takes {expected}, not {type(given).__name__}")
