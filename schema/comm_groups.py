"""Numbers for communicator groups, the same on every rank, and the file that describes them to simulators."""

import os
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import orjson

from .arguments import FilePath
from .errors import DataError, RequestError
from .io import open_input, open_output
from .reasons import LARGEST_JOB as LARGEST_JOB, MEMBERS_EACH as MEMBERS_EACH

RankList = tuple[int, ...]
INT32_MAX = (1 << 31) - 1
DIGITS = len(str(INT32_MAX))
ADDRESS = re.compile(r"[0-9]{11,}")
"""PyTorch up to 2.1 names a group by where it lies in memory, which is another address in every process."""
GRAPHS, GROUPS, ASTRA_SIM_FILES = "graph", "comm_groups.json", "astra-sim"
"""The names in a job's folder: how those of the graphs begin, the file of its groups, the simulator's configuration."""
IGNORED = "empty"
"""Simulators take a path with this word in it for no file at all."""


def number_groups(rank_lists: Iterable[Sequence[int]]) -> dict[RankList, int]:
    """Numbers every distinct rank list from 1 on: larger groups first, then by their ranks.

    Every rank that knows all lists numbers them alike. A list in another order is another group (another ring). Groups
    of one talk to nobody and get no number, nor do groups with a member that is not there (-1).
    """
    unique_lists = {tuple(ranks) for ranks in rank_lists if len(ranks) > 1 and min(ranks) >= 0}
    return {ranks: number for number, ranks in enumerate(sorted(unique_lists, key=lambda r: (-len(r), r)), start=1)}


def natural(name: str) -> tuple[int, str]:
    """Returns the key by which names of groups are sorted: numbers by size."""
    return len(name), name


def read_groups(path: FilePath) -> dict[RankList, int]:
    """Reads a communicator-group file.

    >>> import execgraph as eg
    >>> job = eg.build("tests/data/training")
    >>> eg.read_groups(job.folder / "comm_groups.json")
    {(0, 1): 1}

    Args:
        path: The file to read.

    Returns:
        The number of each rank list; the smallest, where the file has several for one list.

    Raises:
        DataError: Simulators could not use the file; the text names the key.
    """
    path = os.fspath(path)
    with open_input(path) as stream:
        try:
            recorded = msgspec.json.decode(stream.read().removeprefix(BOM_UTF8), type=dict[str, list[int]])
        except (msgspec.DecodeError, UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
            raise DataError(f'{path}: is no communicator-group file such as {{"1": [0, 1]}}: {error}') from error
    groups: dict[RankList, int] = {}
    for key, ranks in recorded.items():
        number = _number(key, path)
        _check_ranks(ranks, f"{path}: group {key!r}")
        groups[tuple(ranks)] = min(number, groups.get(tuple(ranks), number))
    return groups


def write_groups(path: FilePath, groups: Mapping[RankList, int]) -> None:
    """Writes a communicator-group file, in the order of the numbers.

    >>> import execgraph as eg
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     eg.write_groups(f"{folder}/groups.json", {(0, 1, 2, 3): 1, (0, 2): 2})
    ...     eg.read_groups(f"{folder}/groups.json")
    {(0, 1, 2, 3): 1, (0, 2): 2}

    Args:
        path: The file to write.
        groups: The number of each rank list, from 1 on.

    Raises:
        DataError: Simulators could not use the file.
    """
    path = os.fspath(path)
    for ranks, number in groups.items():
        _number(str(number), path)
        _check_ranks(ranks, f"{path}: group {number}")
    by_number = {str(number): list(ranks) for ranks, number in sorted(groups.items(), key=lambda item: item[1])}
    if len(by_number) < len(groups):
        raise DataError(f"{path}: two rank lists have the same number; number them again")
    with open_output(path) as out:
        out.write(orjson.dumps(by_number) + b"\n")


def check_simulators_read(folder: Path) -> None:
    """Raises RequestError for a folder in which simulators take every communicator-group file for none."""
    if IGNORED in str(folder.resolve()):
        raise RequestError(
            f"{folder.resolve()}: simulators ignore a communicator-group file with {IGNORED!r} in its path; choose a folder "
            "without that word"
        )


def _number(key: str, path: str) -> int:
    """Returns a key as its number: canonical text, as simulators read 01 and 1 as one group and stop at 0 or a name."""
    if not (key.isascii() and key.isdecimal() and key[0] != "0" and len(key) <= DIGITS and int(key) <= INT32_MAX):
        raise DataError(f"{path}: the key {key!r} is no whole number from 1 to {INT32_MAX}; number the groups")
    return int(key)


def _check_ranks(ranks: Sequence[int], where: str) -> None:
    if not ranks or min(ranks) < 0 or max(ranks) > INT32_MAX:
        raise DataError(f"{where} is not a list of ranks from 0 on; give it its global ranks")
    if len(set(ranks)) < len(ranks):
        raise DataError(f"{where} has a rank twice; list each once")
