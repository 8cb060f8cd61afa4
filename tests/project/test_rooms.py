"""The tree of the code holds what it promises: rooms are entered by their doors, floors stand on those below, nothing goes in circles."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest
from support.folders import ROOT

SHIPPED = ("schema", "linker", "converter", "tools")
BENCHMARKS = "benchmarks"
"""What only developers run: from outside it is like a user's code."""
FLOORS = (*SHIPPED, BENCHMARKS)
"""From below to above."""
ROOT_PACKAGE = ROOT / "tools" / "package"
"""The folder that is installed as `execgraph` itself: its imports go down to the floors."""
LONGEST = 300


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = [path for floor in FLOORS for path in sorted((ROOT / floor).rglob("*.py")) if ROOT_PACKAGE not in path.parents]
MODULES = {module_name(path): path for path in PATHS}
PACKAGES = {name for name, path in MODULES.items() if path.name == "__init__.py"}
WRITTEN = {name: path for name, path in MODULES.items() if not name.endswith("_pb2")}


@cache
def tree_of(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text())


@cache
def imports(name: str) -> list[str]:
    """The modules that a module imports from, as absolute names."""
    return [*_imports(name)]


def _imports(name: str) -> Iterator[str]:
    for node in ast.walk(tree_of(name)):
        source = _source(name, node) if isinstance(node, ast.ImportFrom) else ""
        if isinstance(node, ast.ImportFrom) and source.split(".")[0] in FLOORS:
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                is_module = (
                    inner in MODULES and source in PACKAGES and (source == name or not _binds(source, alias.name))
                )
                yield inner if is_module else source


def _source(name: str, node: ast.ImportFrom) -> str:
    """Where a module imports from, as installed packages and folders of the root are named alike."""
    if not node.level:
        return (node.module or "").removeprefix("execgraph.")
    base = name.split(".") if name in PACKAGES else name.split(".")[:-1]
    return ".".join([*base[: len(base) - node.level + 1], *([node.module] if node.module else [])])


def _binds(package: str, name: str) -> bool:
    """Whether a package itself offers something of that name."""
    body = tree_of(package).body
    return any(isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names) for node in body)


def rooms_around(name: str) -> list[str]:
    """The rooms that a module is in, the largest first; a floor is none."""
    parts = name.split(".")
    inner = [".".join(parts[:length]) for length in range(2, len(parts) + 1)]
    return [one for one in inner if one in PACKAGES]


def doors(name: str, source: str) -> list[str]:
    """The rooms that a module enters to import from another one."""
    entered = [room for room in rooms_around(source) if room not in rooms_around(name)]
    return entered[-1:] if name.startswith(BENCHMARKS) else entered


@pytest.mark.parametrize("floor", FLOORS)
def test_a_room_is_entered_by_its_door(floor: str) -> None:
    """From outside only what a room's `__init__` offers is imported; benchmarks, as users, also enter the rooms inside by theirs."""
    passed_by = [
        (name, source)
        for name in WRITTEN
        for source in imports(name)
        if source.split(".")[0] == floor and any(room != source for room in doors(name, source))
    ]
    assert passed_by == []


def test_a_floor_stands_on_those_below_alone() -> None:
    upward = [
        (name, source)
        for name in WRITTEN
        for source in imports(name)
        if FLOORS.index(source.split(".")[0]) > FLOORS.index(name.split(".")[0])
    ]
    assert upward == []


def test_no_modules_and_no_rooms_import_each_other_in_circles() -> None:
    modules, rooms = nx.DiGraph(), nx.DiGraph()
    for name in WRITTEN:
        for source in imports(name):
            modules.add_edge(name, source)
            own, other = ([*rooms_around(one), one][0] for one in (name, source))
            if own != other:
                rooms.add_edge(own, other)
    assert list(nx.simple_cycles(modules)) == []
    assert list(nx.simple_cycles(rooms)) == []


def test_every_room_says_what_it_is_for_and_what_is_public() -> None:
    silent = []
    for name in PACKAGES - set(FLOORS):
        tree = tree_of(name)
        offers = any(isinstance(node, ast.ImportFrom) and node.names[0].asname for node in tree.body)
        if not ast.get_docstring(tree) or (not offers and any(room_is_used(name))):
            silent.append(name)
    assert silent == []


def room_is_used(room: str) -> Iterator[bool]:
    yield from (source == room for name in WRITTEN for source in imports(name))


def test_no_module_is_long() -> None:
    lengths = {name: len(path.read_text().splitlines()) for name, path in WRITTEN.items()}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_a_room_holds_about_a_dozen_modules() -> None:
    sizes = {
        room: sum(name.rpartition(".")[0] == room and name not in PACKAGES for name in MODULES) for room in PACKAGES
    }
    assert {room: size for room, size in sizes.items() if size > 17} == {}


def test_libraries_of_commands_stay_out_of_the_lower_floors() -> None:
    """Library calls draw no bars and know no options."""
    found = [
        name
        for name in WRITTEN
        if not name.startswith(("tools", BENCHMARKS))
        for node in ast.walk(tree_of(name))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        and {"argparse", "tqdm"}
        & {*(getattr(node, "module", None) or "").split("."), *(alias.name for alias in node.names)}
    ]
    assert found == []


def test_the_page_about_the_architecture_names_what_there_is() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(rf"`((?:{'|'.join(FLOORS)})/[\w/.]*)`", page))
    assert len(named) > 30
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_every_room_is_shipped_but_those_of_the_benchmarks() -> None:
    """A folder that pyproject.toml does not list is in the checkout and missing where the project is installed."""
    listed = re.findall(r'^    "execgraph\.(\S+)",$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert {room for room in PACKAGES - set(FLOORS) if not room.startswith(BENCHMARKS)} == set(listed) - set(SHIPPED)
