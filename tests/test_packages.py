"""What users install: all of the code and nothing else, the same bytes whenever it is built, commands that run; and of what versions."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest
from lower_bounds import PROJECT, lower_bounds

ROOT = PROJECT.parent
FLOORS = ("schema", "linker", "converter", "tools")
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "out", "data")
SAMPLE = ROOT / "tests" / "data" / "training"

pytest.importorskip("setuptools", minversion=lower_bounds(PROJECT.read_text("utf-8"))["setuptools"])


class Built(NamedTuple):
    """The source packages and the wheels, by the tree that they were built in."""

    sdists: Mapping[str, Path]
    wheels: Mapping[str, Path]


def build(tree: Path, out: Path, umask: int) -> subprocess.Popen[bytes]:
    """Starts what `make dist` runs, without a network."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    command = [sys.executable, str(ROOT / "tests" / "packages.py"), str(out)]
    return subprocess.Popen(command, cwd=tree, env=environment, umask=umask, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """In two copies of the tree, whose files are all new and which others may read, or not."""
    folder = tmp_path_factory.mktemp("built")
    umasks = {"open": 0o022, "private": 0o077}
    for name, umask in umasks.items():
        before = os.umask(umask)
        try:
            shutil.copytree(ROOT, folder / name / "tree", ignore=LEFT_OUT, copy_function=shutil.copyfile)
        finally:
            os.umask(before)
    running = [build(folder / name / "tree", folder / name, umask) for name, umask in umasks.items()]
    assert [process.wait() for process in running] == [0, 0]
    sdists, wheels = (
        {name: next((folder / name).glob(pattern)) for name in umasks} for pattern in ("*.tar.gz", "*.whl")
    )
    return Built(sdists, wheels)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the wheel was installed in."""
    pytest.importorskip("pip")
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*command, "--target", str(folder), str(built.wheels["open"])], check=True)
    return folder


def run(installed: Path, *command: object) -> str:
    """What a command prints that finds the installed package first."""
    environment = os.environ | {"PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    given = [str(word) for word in command]
    return subprocess.run(
        given, cwd=installed.parent, env=environment, capture_output=True, text=True, check=True
    ).stdout


# What is in them


def test_the_wheel_holds_the_code_and_nothing_else(built: Built) -> None:
    files = {path.relative_to(ROOT) for floor in FLOORS for path in (ROOT / floor).rglob("*")}
    code = {path.as_posix() for path in files if (ROOT / path).is_file() and "__pycache__" not in path.parts}
    expected = {f"execgraph/{name.removeprefix('tools/package/')}" for name in code}
    names = set(ZipFile(built.wheels["open"]).namelist())
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert {f"execgraph/{floor}/py.typed" for floor in FLOORS} < names
    assert "execgraph/schema/graph/execution_graph.proto" in names
    assert [name for name in names if name.endswith("/LICENSE")] != []


def test_the_source_package_holds_neither_tests_nor_documentation(built: Built) -> None:
    with tarfile.open(built.sdists["open"]) as archive:
        folders = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {*FLOORS, "pyproject.toml", "README.md", "LICENSE"} <= folders
    assert folders.isdisjoint({"tests", "docs"})


@pytest.mark.parametrize("what", Built._fields)
def test_packages_are_the_same_bytes_whenever_and_wherever_they_are_built(built: Built, what: str) -> None:
    one, other = getattr(built, what).values()
    assert one.read_bytes() == other.read_bytes()


def test_packages_say_nothing_of_who_built_them(built: Built) -> None:
    with tarfile.open(built.sdists["private"]) as archive:
        members = archive.getmembers()
    assert [one.name for one in members] == sorted(one.name for one in members)
    assert {(one.mtime, one.uid, one.gid, one.uname, one.gname) for one in members} == {(1700000000, 0, 0, "", "")}


# That it works

HELP_OF_ALL = """
import importlib.metadata, sys
for command in importlib.metadata.distribution("execgraph").entry_points:
    main = command.load()
    print(command.name, sys.modules[main.__module__].__file__)
    sys.stdout.flush()
    try:
        main(["--help"])
    except SystemExit as end:
        assert not end.code
"""


def test_every_command_runs_from_the_wheel(installed: Path) -> None:
    commands = re.findall(r"^([a-z-]+) = \"execgraph\.start:", PROJECT.read_text("utf-8"), re.MULTILINE)
    printed = run(installed, sys.executable, "-c", HELP_OF_ALL)
    places = dict(re.findall(r"^([a-z-]+) (/.*)$", printed, re.MULTILINE))
    assert places.keys() == set(commands) and len(commands) > 10
    assert all(place.startswith(str(installed)) for place in places.values())
    assert {path.name for path in (installed / "bin").iterdir()} == set(commands)


def test_traces_are_linked_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    pair = "--host-trace", SAMPLE / "host_rank0.json.gz", "--device-trace", SAMPLE / "device_rank0.json.gz"
    run(installed, installed / "bin" / "execgraph", "link", *pair, "--output", tmp_path / "linked.json")
    assert (tmp_path / "linked.json").exists()


# Of what versions


def test_every_requirement_has_a_lower_bound_or_is_types_alone() -> None:
    text = PROJECT.read_text("utf-8")
    project = pytest.importorskip("tomllib").loads(text)["project"]
    required = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    names = {re.split(r"[\[>]", one)[0] for one in required}
    assert {name for name in names - lower_bounds(text).keys() if not name.startswith("types-")} == set()


def test_of_two_lower_bounds_the_higher_counts() -> None:
    assert lower_bounds('["a>=1.9", "b[c]>=2"]\n["a>=1.10"]\nrequires-python = ">=3.10"') == {"a": "1.10", "b": "2"}
