"""What users install: all of the code and nothing else, the same bytes whenever it is built; and of what versions."""

import re
import tarfile
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest
from support.lower_bounds import PROJECT, lower_bounds

ROOT = PROJECT.parent
LAYERS = ("schema", "linker", "converter", "tools")


class Built(NamedTuple):
    """The source packages and the wheels, by whom files of the tree that they were built in let read them."""

    sdists: Mapping[str, Path]
    wheels: Mapping[str, Path]


@pytest.fixture(scope="module")
def built(packages: Callable[[int], Path]) -> Built:
    """In two copies of the tree, whose files are all new and which others may read, or not."""
    folders = {"open": packages(0o022), "private": packages(0o077)}
    sdists, wheels = (
        {name: next(folder.glob(pattern)) for name, folder in folders.items()} for pattern in ("*.tar.gz", "*.whl")
    )
    return Built(sdists, wheels)


# What is in them


def test_the_wheel_holds_the_code_and_nothing_else(built: Built) -> None:
    files = {path.relative_to(ROOT) for layer in LAYERS for path in (ROOT / layer).rglob("*")}
    code = {path.as_posix() for path in files if (ROOT / path).is_file() and "__pycache__" not in path.parts}
    expected = {f"execgraph/{name.removeprefix('tools/package/')}" for name in code}
    names = set(ZipFile(built.wheels["open"]).namelist())
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert {f"execgraph/{layer}/py.typed" for layer in LAYERS} < names
    assert "execgraph/schema/graph/execution_graph.proto" in names
    assert [name for name in names if name.endswith("/LICENSE")] != []


def test_the_source_package_holds_neither_tests_documentation_nor_benchmarks(built: Built) -> None:
    with tarfile.open(built.sdists["open"]) as archive:
        folders = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {*LAYERS, "pyproject.toml", "README.md", "LICENSE"} <= folders
    assert folders.isdisjoint({"tests", "docs", "benchmarks"})


@pytest.mark.parametrize("what", Built._fields)
def test_packages_are_the_same_bytes_whenever_and_wherever_they_are_built(built: Built, what: str) -> None:
    one, other = getattr(built, what).values()
    assert one.read_bytes() == other.read_bytes()


def test_packages_say_nothing_of_who_built_them(built: Built) -> None:
    with tarfile.open(built.sdists["private"]) as archive:
        members = archive.getmembers()
    assert [one.name for one in members] == sorted(one.name for one in members)
    assert {(one.mtime, one.uid, one.gid, one.uname, one.gname) for one in members} == {(1700000000, 0, 0, "", "")}


# Of what versions


def test_every_requirement_has_a_lower_bound_or_is_types_alone() -> None:
    text = PROJECT.read_text("utf-8")
    project = pytest.importorskip("tomllib").loads(text)["project"]
    required = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    names = {re.split(r"[\[>]", one)[0] for one in required}
    assert {name for name in names - lower_bounds(text).keys() if not name.startswith("types-")} == set()


def test_of_two_lower_bounds_the_higher_counts() -> None:
    assert lower_bounds('["a>=1.9", "b[c]>=2"]\n["a>=1.10"]\nrequires-python = ">=3.10"') == {"a": "1.10", "b": "2"}
