"""The package as pip installs it: without extras, with all of the code and nothing else, the same bytes always."""

import gzip
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest
from execgraph.tools.commands.execgraph import COMMANDS
from support.environments import Environment, Environments
from support.folders import DATA, ROOT
from support.lower_bounds import PROJECT, lower_bounds

CLONE = PROJECT.parent
TRAINING = DATA / "training"
HOST, DEVICE = TRAINING / "host_rank0.json.gz", TRAINING / "device_rank0.json.gz"
USES: dict[str, tuple[object, ...]] = {
    "link": (HOST, DEVICE, "-o", "OUT/linked.json"), "convert": ("OUT/linked.json", "-o", "OUT/graph.et"),
    "jsonize": ("OUT/graph.et", "-o", "OUT/graph.json"), "view": ("OUT/graph.et", "-o", "OUT/graph.svg"),
    "build": (TRAINING, "-o", "OUT/graphs", "--jobs", "1"), "replay": ("OUT/graphs",),
    "scale": ("OUT/graphs", "-o", "OUT/scaled", "--data-parallel", "2", "--jobs", "1"),
    "report": (TRAINING, "--csv", "OUT/tables"), "diagnose": (TRAINING,),
    "merge": (TRAINING, "-o", "OUT/merged.json"),
    "generate": ("ddp", "--steps", "1", "--layers", "1", "-o", "OUT/generated"),
}  # fmt: skip
"""What each command is mainly for, in an order in which its input files are there; OUT is the folder for all."""
LIBRARIES = {"google": "protobuf", **{name: name for name in ("msgspec", "networkx", "numpy", "orjson", "tqdm")}}
"""What the package requires, by the module that it gives."""
FOR_DEVELOPERS = {"docs", "test", "check"}

Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def environments(packages: Callable[[int], Path], tmp_path_factory: pytest.TempPathFactory) -> Environments:
    [wheel] = packages(0o022).glob("*.whl")
    return Environments(tmp_path_factory.mktemp("environments"), wheel)


@pytest.fixture(scope="module")
def plain(environments: Environments) -> Environment:
    return environments.plain


def arguments_of(name: str, out: Path) -> list[str]:
    return [str(one).replace("OUT", str(out)) for one in USES[name]]


# Without extras


class Uses(NamedTuple):
    """What became of each command, in which folder; on stderr also what was imported."""

    done: dict[str, Done]
    folder: Path


@pytest.fixture(scope="module")
def uses(plain: Environment, tmp_path_factory: pytest.TempPathFactory) -> Uses:
    """The installed commands in an empty folder."""
    here, out = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("out")
    started = {name: (plain.command(f"trace-{name}"), *arguments_of(name, out)) for name in USES}
    return Uses({name: plain.run(*one, cwd=here, PYTHONPROFILEIMPORTTIME="1") for name, one in started.items()}, here)


def test_installed_commands_work_in_an_empty_folder(uses: Uses) -> None:
    assert {name: one.stderr for name, one in uses.done.items() if one.returncode} == {}
    assert [*uses.folder.iterdir()] == []
    assert USES.keys() == COMMANDS.keys()


FROM_PYTHON = """
import execgraph, sys
host, device = execgraph.read_host_trace(sys.argv[1]), execgraph.read_device_trace(sys.argv[2])
graph = execgraph.convert(execgraph.link(host, device))
assert abs(execgraph.replay(graph).error_pct) < 1 and len(graph.to_networkx()) == len(graph)
ways = (graph.to_pandas, graph.nodes.to_polars, graph.nodes.__arrow_c_stream__, graph.plot)
for ask in (*ways, lambda: execgraph.capture("traces")):
    try:
        ask()
    except ImportError as error:
        print(error)
"""


def test_python_has_all_of_it(plain: Environment) -> None:
    done = plain.run(plain.python, "-c", FROM_PYTHON, HOST, DEVICE, cwd=CLONE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "a pandas.DataFrame needs pandas, which is not installed; run: pip install pandas",
        "a polars.DataFrame needs polars, which is not installed; run: pip install polars",
        "an Arrow stream needs nanoarrow, which is not installed; run: pip install nanoarrow",
        "a chart needs altair, which is not installed; run: pip install altair",
        "recording traces needs torch, which is not installed; run: pip install torch",
    ]


# With an extra


def test_every_extra_is_tried_here() -> None:
    [listed] = re.findall(r"^\[project.optional-dependencies\]\n(.*?)\n\n", PROJECT.read_text("utf-8"), re.M | re.S)
    extras = {*re.findall(r"^([a-z]+) = \[", listed, re.MULTILINE)} - FOR_DEVELOPERS
    assert extras == {"completion", "dask", "isal", "report", "zstd"}


def wants(extra: str, done: Done) -> str:
    """The extra, of which a process names the packages in its one line."""
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    [packages] = re.findall(r"; run: pip install ([^(\n]+)(?: \(see .*)?\n", done.stderr)
    [listed] = re.findall(rf"^{extra} = \[(.*)\]$", PROJECT.read_text("utf-8"), re.MULTILINE)
    assert packages.split() == re.findall(r'"([\w-]+)', listed)
    return extra


def test_the_page_takes_the_extra_report(environments: Environments, tmp_path: Path) -> None:
    def report(one: Environment, *more: str) -> Done:
        return one.run(one.python, "-X", "importtime", "-m", "execgraph", "report", *more, cwd=tmp_path)

    plain = environments.plain
    missing = plain.run(plain.command("trace-report"), tmp_path / "nothing", "--output", "page.html", cwd=tmp_path)
    one = environments.with_extra(wants("report", missing))
    done = report(one, str(TRAINING), "--only", "temporal_breakdown", "--output", "page.html")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").stat().st_size > 500_000
    assert "jinja2" in imported(done) and "jinja2" not in imported(report(one, "--help"))


def test_zstd_takes_the_extra_zstd(environments: Environments, tmp_path: Path) -> None:
    def link(one: Environment) -> Done:
        return one.run(one.python, "-m", "execgraph", "link", "--device-trace", trace, "--output", "-", cwd=tmp_path)

    trace = tmp_path / "device.json.zst"
    trace.write_bytes(pytest.importorskip("zstandard").compress(gzip.decompress(DEVICE.read_bytes())))
    one = environments.with_extra(wants("zstd", link(environments.plain)))
    assert link(one).returncode == 0
    # a folder of them, too
    plain = environments.plain
    wants("zstd", plain.run(plain.command("trace-diagnose"), tmp_path, cwd=tmp_path))


ON_CLUSTER = """
import sys
from distributed import LocalCluster
from execgraph.start import trace_build
with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
    trace_build([*sys.argv[1:], "--scheduler", cluster.scheduler_address])
"""


def test_a_cluster_takes_the_extra_dask(environments: Environments, tmp_path: Path) -> None:
    plain, arguments = environments.plain, ("--input-dir", TRAINING, "--output-dir", tmp_path / "graphs")
    missing = plain.run(plain.command("trace-build"), *arguments, "--scheduler", "tcp://127.0.0.1:1", cwd=tmp_path)
    one = environments.with_extra(wants("dask", missing))
    done = one.run(one.python, "-c", ON_CLUSTER, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len([*(tmp_path / "graphs").glob("graph.*.et")]) == 2


def test_tab_completion_takes_the_extra_completion(environments: Environments, tmp_path: Path) -> None:
    plain = environments.plain
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": "execgraph li", "COMP_POINT": "12", "COMP_TYPE": "9"}
    missing = plain.run(plain.command("execgraph"), cwd=tmp_path, **asked)
    one = environments.with_extra(wants("completion", missing))
    # the answer goes to file descriptor 8
    answered = one.run("sh", "-c", 'exec "$0" -m execgraph 8>&1 9>&2', one.python, cwd=tmp_path, **asked)
    assert answered.stdout.split() == ["link"], answered.stderr


def test_the_extra_isal_reads_gzip(environments: Environments, tmp_path: Path) -> None:
    one = environments.with_extra("isal")
    command = (one.python, "-X", "importtime", "-m", "execgraph", "link", "--device-trace", DEVICE, "--output", "-")
    assert "isal" in imported(one.run(*command, cwd=tmp_path))


# What is loaded


def imported(done: Done) -> set[str]:
    """Of which modules a process of `-X importtime` says that they were imported, by the first part of their names."""
    return {*re.findall(r"^import time: .*\| +(\w+)", done.stderr, re.MULTILINE)}


def libraries(done: Done) -> set[str]:
    """Of what the package requires."""
    return {LIBRARIES[name] for name in imported(done) & LIBRARIES.keys()}


CORE = {"msgspec", "numpy", "orjson", "protobuf"}
BY_HELP = dict.fromkeys(("replay", "report", "merge", "generate"), CORE)
"""The libraries that --help of a command loads; of the others none."""
BY_USE: dict[str, set[str]] = {"execgraph": set(), "link": CORE - {"protobuf"}}
"""The libraries that the main use of a command loads; of the others the whole core."""


@pytest.mark.parametrize("name", ["execgraph", *USES])
def test_a_command_loads_only_these_libraries(name: str, plain: Environment, uses: Uses, tmp_path: Path) -> None:
    python = (plain.python, "-X", "importtime", "-m", "execgraph")
    helped = plain.run(*python, *([] if name == "execgraph" else [name]), "--help", cwd=tmp_path)
    use = uses.done.get(name, helped)
    assert [libraries(helped), libraries(use)] == [BY_HELP.get(name, set()), BY_USE.get(name, CORE)]


LAYERS = ("schema", "linker", "converter", "tools")


@pytest.fixture(scope="module")
def built(packages: Callable[[int], Path]) -> dict[str, list[Path]]:
    """Wheels and source packages of two copies of the tree, all of whose files are new; others may read one of them."""
    folders = packages(0o022), packages(0o077)
    return {ending: [next(folder.glob(f"*.{ending}")) for folder in folders] for ending in ("whl", "tar.gz")}


# What is in them


def test_the_wheel_holds_the_code_and_nothing_else(built: dict[str, list[Path]]) -> None:
    files = {path.relative_to(CLONE) for layer in LAYERS for path in (CLONE / layer).rglob("*")}
    code = {path.as_posix() for path in files if path.suffix not in ("", ".md") and "__pycache__" not in path.parts}
    expected = {f"execgraph/{name.removeprefix('tools/package/')}" for name in code}
    names = set(ZipFile(built["whl"][0]).namelist())
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert {f"execgraph/{layer}/py.typed" for layer in LAYERS} < names
    assert "execgraph/schema/graph/execution_graph.proto" in names
    assert [name for name in names if name.endswith("/LICENSE")] != []


def test_the_source_package_holds_neither_tests_documentation_nor_benchmarks(built: dict[str, list[Path]]) -> None:
    with tarfile.open(built["tar.gz"][0]) as archive:
        folders = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {*LAYERS, "pyproject.toml", "README.md", "LICENSE"} <= folders
    assert folders.isdisjoint({"tests", "docs", "benchmarks"})


@pytest.mark.parametrize("ending", ["whl", "tar.gz"])
def test_packages_are_the_same_bytes_whenever_and_wherever_they_are_built(built, ending):
    one, other = built[ending]
    assert one.read_bytes() == other.read_bytes()


def test_packages_say_nothing_of_who_built_them(built: dict[str, list[Path]]) -> None:
    with tarfile.open(built["tar.gz"][1]) as archive:
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


MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")

if not shutil.which("make"):
    pytest.skip("make is not installed", allow_module_level=True)


def make(*arguments: str) -> str:
    """What a target prints; as of the shell, not of a make that runs these tests."""
    environment = {name: value for name, value in os.environ.items() if not re.match("MAKE|MFLAGS$", name)}
    command = ["make", "--no-print-directory", *arguments]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "check": False}
    ran = subprocess.run(command, cwd=ROOT, env=environment, **how)
    assert not ran.returncode, ran.stdout
    return ran.stdout


def test_make_alone_lists_every_target_in_a_line() -> None:
    [targets] = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    listed = [line.split(maxsplit=1) for line in make().splitlines()]
    assert sorted(target for target, _ in listed) == sorted(targets.split())
    assert {len(what) > 5 for _, what in listed} == {True}


def test_the_demo_ends_with_an_answer_a_picture_a_page_and_what_to_do_next(tmp_path: Path) -> None:
    """With what is installed here in place of a new environment."""
    pytest.importorskip("altair")
    binaries = Path(sys.executable).parent
    printed = make("demo", "-o", ".venv/.report", f"BIN={binaries}", f"OUT={tmp_path}")
    lines = printed.splitlines()
    assert len(lines) < 40
    commands = re.findall(rf"^{re.escape(str(binaries))}/trace-(\w+)", printed, re.MULTILINE)
    assert commands == ["build", "replay", "replay", "view", "report"]
    answer = "If all computation were twice as fast, the run would take 2.73 ms instead of 4.50 ms, −39 %.\n"
    assert f"\n{answer}" in printed
    for name in ("graph.svg", "report.html"):
        assert (tmp_path / name).stat().st_size > 10_000
        assert str(tmp_path / name) in lines[-3]
    assert (ROOT / lines[-2].split()[-1]).is_file()  # the page about recording
    assert {path.name for path in (tmp_path / "graphs").glob("*.et")} == {"graph.0.et", "graph.1.et"}
