"""What a caller from Python gives where a file or an object goes in."""

import io
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TypeGuard

from .arguments import wrong_argument

FilePath = str | os.PathLike[str]
"""The path of a file, as text or as a `pathlib.Path`."""
Paths = FilePath | Sequence[FilePath]
"""A file or folder, or several."""
InputFile = FilePath | IO[bytes]
"""The path of a file, or a file that is open to read bytes."""


def is_path(argument: object) -> TypeGuard[FilePath]:
    """Returns whether a path is meant.

    >>> is_path("host.json.gz"), is_path(None)
    (True, False)
    """
    return isinstance(argument, str | os.PathLike)


def is_file(argument: object) -> TypeGuard[InputFile]:
    """Returns whether a path or an open file is meant.

    >>> is_file("host.json.gz"), is_file(io.BytesIO()), is_file(None)
    (True, True, False)
    """
    return is_path(argument) or _is_open(argument)


def _is_open(argument: object) -> TypeGuard[IO[bytes]]:
    # graphs and linked traces have a method `read`, too
    return hasattr(argument, "read") and hasattr(argument, "close")


@contextmanager
def path_of(file: InputFile) -> Iterator[str]:
    """Yields the path of a file; of an open file that of a copy of what is left to read, which is then removed.

    Raises TypeError for a file that is open as text, and for what is no file.
    """
    if isinstance(file, str | os.PathLike):
        yield os.fspath(file)
        return
    if isinstance(file, io.TextIOBase):
        raise TypeError("the file is open as text; open it with mode 'rb'")
    if not _is_open(file):
        raise TypeError(f"a path, or a file that is open to read bytes, is wanted, not {type(file).__name__}")
    with TemporaryDirectory(prefix="execgraph-") as folder:
        # the copy has the name of the file: messages name it, and it may tell the rank
        path = Path(folder, Path(str(getattr(file, "name", ""))).name or "file")
        with path.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        yield str(path)


def given_paths(argument: object, call: str) -> list[Path]:
    """Returns the paths that a caller gives, one or several; `call` is what the caller wrote.

    Raises TypeError for anything else.
    """
    items = argument if isinstance(argument, list | tuple) else [argument]
    return [given_path(item, call, "a path, or a list of paths") for item in items]


def given_path(argument: object, call: str, expected: str = "a path") -> Path:
    """Returns the path that a caller gives; `call` is what the caller wrote, and takes what is `expected`.

    Raises TypeError for anything else.
    """
    if not is_path(argument):
        raise wrong_argument(call, expected, argument)
    return Path(argument)
