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
    """The source package, and the wheel by what it was built from."""

    sdist: Path
    wheels: Mapping[str, Path]


def build(what: str, tree: Path, out: Path) -> subprocess.Popen[bytes]:
    """Starts what `pip wheel` and `python -m build` run, without a network."""
    program = f"from setuptools import build_meta; build_meta.build_{what}({str(out)!r})"
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    return subprocess.Popen([sys.executable, "-c", program], cwd=tree, env=environment, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """From a copy of the tree, whose files are all new, and from what the source package of it holds."""
    folder = tmp_path_factory.mktemp("built")
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=LEFT_OUT, copy_function=shutil.copyfile)
    assert build("sdist", tree, folder).wait() == 0
    [sdist] = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder)
    trees = {"tree": tree, "source package": folder / sdist.name.removesuffix(".tar.gz")}
    for name in trees:
        (folder / f"of the {name}").mkdir()
    running = [build("wheel", trees[name], folder / f"of the {name}") for name in trees]
    assert [process.wait() for process in running] == [0, 0]
    return Built(sdist, {name: next((folder / f"of the {name}").glob("*.whl")) for name in trees})


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the wheel was installed in."""
    pytest.importorskip("pip")
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*command, "--target", str(folder), str(built.wheels["tree"])], check=True)
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
    files = {path.relative_to(ROOT) for floor in (*FLOORS, "execgraph") for path in (ROOT / floor).rglob("*")}
    code = {path.as_posix() for path in files if (ROOT / path).is_file() and "__pycache__" not in path.parts}
    expected = {name if name.startswith("execgraph/") else f"execgraph/{name}" for name in code}
    names = set(ZipFile(built.wheels["tree"]).namelist())
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert {f"execgraph/{floor}/py.typed" for floor in FLOORS} < names
    assert "execgraph/schema/graph/execution_graph.proto" in names
    assert [name for name in names if name.endswith("/LICENSE")] != []


def test_the_source_package_holds_neither_tests_nor_documentation(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        folders = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {*FLOORS, "execgraph", "pyproject.toml", "README.md", "LICENSE"} <= folders
    assert folders.isdisjoint({"tests", "docs"})


def test_wheels_are_the_same_bytes_whenever_and_from_whatever_they_are_built(built: Built) -> None:
    one, other = built.wheels.values()
    assert one.read_bytes() == other.read_bytes()


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
    commands = re.findall(r"^([a-z-]+) = \"execgraph\.tools\.commands", PROJECT.read_text("utf-8"), re.MULTILINE)
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
