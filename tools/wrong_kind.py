"""Says of a file that a command cannot use what it is, and which command takes it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from ..schema.errors import DataError, Remedy
from .recognise import USES, InputKind, Use, kind_at_start, recognise

READS_AS_WELL = {InputKind.HOST: (InputKind.LINKED, InputKind.GRAPH_JSON)}
"""Kinds of files that are read like the wanted one, as these have its nodes, and make no sense there."""
SAYS_MORE = {
    InputKind.DEVICE: (InputKind.MERGED, InputKind.MERGED_DATABASE, InputKind.OTHER_DATABASE, InputKind.OTHER_EVENTS)
}
"""Kinds of files of which the reader of the wanted one says more than what they are."""
TAKES_FOLDER = {InputKind.DEVICE: Remedy.BUILD, InputKind.HOST: Remedy.BUILD, InputKind.GRAPH: Remedy.REPLAY}
FOLDERS = {InputKind.DEVICE: "a device trace or a folder of traces", InputKind.GRAPH: "a folder of graphs"}
LOOKED_AT = 32
"""Files in a folder that was given for a file."""


@contextmanager
def reading(path: str | None, expected: InputKind, here: Mapping[InputKind, str] | None = None) -> Iterator[None]:
    """Explains in the DataError of the block that `path` is of another kind than expected, if it is.

    `here` is how this command wants files of other kinds that it takes, as "as --host-trace". What is no file, as
    standard input, can be read once only, and is left alone.
    """
    file = Path(path or "")
    kind = kind_of(file, kind_at_start) if expected in READS_AS_WELL else None
    if kind and kind in READS_AS_WELL[expected]:
        raise DataError(instead(file, kind, USES[expected], here))
    try:
        yield
    except DataError as error:
        problem = wrong_kind(file, expected, here) if path else ""
        if not problem:
            raise
        raise DataError(problem) from error


def wrong_kind(path: Path, expected: InputKind, here: Mapping[InputKind, str] | None = None) -> str:
    """Returns a sentence on what the file or folder is; "" if it is of the expected kind or cannot be read."""
    if path.is_dir():
        remedy = instead_of_folder(path, expected) or f"give {USES[expected].to_give}"
        return f"{path} is a folder, not {USES[expected].name}: {remedy}"
    kind = kind_of(path)
    if (
        not kind
        or kind in (expected, *SAYS_MORE.get(expected, ()))
        or (kind is InputKind.JSON and expected is not InputKind.GRAPH)
    ):
        return ""
    return instead(path, kind, USES[expected], here)


def instead(path: str | Path, kind: InputKind, expected: Use, here: Mapping[InputKind, str] | None = None) -> str:
    """Returns the sentence: "x.json is a linked trace, not a graph: pass it to trace-convert"."""
    use = USES[kind]
    remedy = f"pass it to {use.taken_by}" if use.taken_by else f"give {expected.to_give}"
    if here and kind in here:
        remedy = f"pass it {here[kind]}"
    return f"{path} is {use.name}, not {expected.name}: {remedy}"


def file_for_folder(path: Path, holding: InputKind) -> str:
    """Returns what to say of a path that was given for a folder of traces or graphs."""
    if not path.exists():
        return f"{path}: no such folder; check the path"
    kind, expected = kind_of(path), FOLDERS[holding]
    if not kind or kind is holding or TAKES_FOLDER.get(kind) == TAKES_FOLDER[holding]:
        name = USES[kind].name if kind else "a file"
        return f"{path} is {name}, not {expected}: give the folder that holds it, {path.parent}"
    return instead(path, kind, Use(expected, to_give="the folder that holds them"))


def instead_of_folder(folder: Path, expected: InputKind) -> str:
    """Returns what to do with a folder where a file was wanted, by what is in it; nothing where that does not tell."""
    file_of: dict[InputKind, Path] = {}
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    for path in islice(files, LOOKED_AT):
        if kind := kind_of(path):
            file_of.setdefault(kind, path)
    ways = [f"give a file in it, such as {file_of[expected]}"] if expected in file_of else []
    takers = {kind: command for kind, command in TAKES_FOLDER.items() if kind in file_of}
    if expected is InputKind.GRAPH:
        takers.pop(expected, None)
    ways += dict.fromkeys(f"pass it to {command}" for command in takers.values())
    return " or ".join(ways)


def kind_of(path: Path, look: Callable[[Path], InputKind] = lambda path: recognise(path).kind) -> InputKind | None:
    """Returns the kind of a file; None for what is none, or cannot be read."""
    try:
        return look(path) if path.is_file() else None
    except DataError:
        return None
