"""Meddles with what trace-build wrote: files lost, cut, exchanged, of other jobs, with other content."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

from google.protobuf.message import DecodeError

from fuzz import samples
from fuzz.graph_fields import change_fields
from fuzz.json_changes import changed_json

REPORT, GROUPS = "report.json", "comm_groups.json"


def meddle(folder: Path, random: Random) -> str:
    """Changes files of a build. Returns what was done, in words."""
    return ", ".join(random.choice(WAYS)(folder, random) for _ in range(random.choice([1, 1, 2])))


def _file(folder: Path, random: Random) -> Path:
    """A file of the folder: each kind as often as the others."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return random.choice([*[path for path in files if path.name in (REPORT, GROUPS)] * 3, *files])


def _lose(folder: Path, random: Random) -> str:
    path = _file(folder, random)
    path.unlink()
    return f"{path.name} lost"


def _cut(folder: Path, random: Random) -> str:
    path = _file(folder, random)
    path.write_bytes(path.read_bytes()[: random.choice([0, 1, 100, -1])])
    return f"{path.name} cut"


def _exchange(folder: Path, random: Random) -> str:
    one, other = _file(folder, random), _file(folder, random)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    return f"{one.name} and {other.name} exchanged"


def _of_another_job(folder: Path, random: Random) -> str:
    name = samples.draw(random)
    path = _file(folder, random)
    others = samples.graphs(name)
    path.write_bytes(others.get(path.name, others[samples.GRAPH]))
    return f"{path.name} of {name}"


def _change(folder: Path, random: Random) -> str:
    path = _file(folder, random)
    content = path.read_bytes()
    try:
        path.write_bytes(changed_json(content, random) if path.suffix == ".json" else change_fields(content, random)[0])
    except (ValueError, IndexError, DecodeError):
        path.write_bytes(b"")
    return f"{path.name} changed"


def _renumber(folder: Path, random: Random) -> str:
    """Gives the groups other numbers."""
    path = folder / GROUPS
    if not path.exists():
        return "no groups"
    groups = {"1": [0, 1], "2": [1, 0], "7": [0]}
    path.write_text(
        json.dumps(
            random.choice([groups, {}, {"2": [0, 1]}, {"1": [1, 0]}, {"1": [0, 1, 2, 3]}, {"-1": [0, 1]}, {"1": []}])
        )
    )
    return "groups renumbered"


def _rename(folder: Path, random: Random) -> str:
    path = _file(folder, random)
    name = random.choice(
        ["graph.7.et", "graph.-1.et", "graph.00.et", "graph.x.et", "graph.1.et.gz", f"graph.{'9' * 30}.et", "job.goal"]
    )
    path.rename(folder / name)
    return f"{path.name} renamed to {name}"


WAYS: tuple[Callable[[Path, Random], str], ...] = (
    _lose,
    _cut,
    _exchange,
    _of_another_job,
    _change,
    _change,
    _renumber,
    _rename,
)
