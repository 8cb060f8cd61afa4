"""The package as pip installs it: commands work without any extra; what needs an extra names it, and it is enough.

And libraries are loaded by what uses them: docs/performance.md says which.
"""

import gzip
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from execgraph.tools.commands.execgraph import COMMANDS
from support.environments import Environment, Environments
from support.folders import DATA
from support.lower_bounds import PROJECT
from support.pages import PAGES

ROOT = PROJECT.parent
TRAINING = DATA / "training"
HOST, DEVICE = TRAINING / "host_rank0.json.gz", TRAINING / "device_rank0.json.gz"
USES: dict[str, tuple[object, ...]] = {
    "link": (HOST, DEVICE, "-o", "OUT/linked.json"),
    "convert": ("OUT/linked.json", "-o", "OUT/graph.et"),
    "jsonize": ("OUT/graph.et", "-o", "OUT/graph.json"),
    "view": ("OUT/graph.et", "-o", "OUT/graph.svg"),
    "build": (TRAINING, "-o", "OUT/graphs"),
    "replay": ("OUT/graphs",),
    "scale": ("OUT/graphs", "-o", "OUT/scaled", "--data-parallel", "2", "--jobs", "1"),
    "report": (TRAINING, "--csv", "OUT/tables"),
    "diagnose": (TRAINING,),
    "merge": (TRAINING, "-o", "OUT/merged.json"),
    "generate": ("ddp", "--steps", "1", "--layers", "1", "-o", "OUT/generated"),
}
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


IN_CLONE = """
import json, runpy, sys
for words in json.loads(sys.argv.pop()):
    sys.argv[1:] = words
    try:
        runpy.run_module("execgraph", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        assert not end.code, words
"""
"""All commands in one process, as most of the time would be to start one for each."""


def test_the_module_works_in_the_clone(plain: Environment, tmp_path: Path) -> None:
    """Where Python imports from first."""
    lines = json.dumps([[name, *arguments_of(name, tmp_path)] for name in USES])
    done = plain.run(plain.python, "-c", IN_CLONE, lines, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "scaled" / "graph.3.et").exists() and (tmp_path / "generated").exists()


FROM_PYTHON = """
import execgraph, sys
host, device = execgraph.read_host_trace(sys.argv[1]), execgraph.read_device_trace(sys.argv[2])
graph = execgraph.convert(execgraph.link(host, device))
assert abs(execgraph.replay(graph).error_pct) < 1
ways = (graph.to_pandas, graph.nodes.to_polars, graph.nodes.__arrow_c_stream__, graph.plot)
for ask in (*ways, lambda: execgraph.capture("traces")):
    try:
        ask()
    except ImportError as error:
        print(error)
"""


@pytest.mark.parametrize("in_clone", [False, True], ids=["in an empty folder", "in the clone"])
def test_python_has_all_of_it(plain: Environment, in_clone: bool, tmp_path: Path) -> None:
    done = plain.run(plain.python, "-c", FROM_PYTHON, HOST, DEVICE, cwd=ROOT if in_clone else tmp_path)
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
    """The extra as a requirement, of which a process names the packages in its one line."""
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    [packages] = re.findall(r"; run: pip install ([^(\n]+)(?: \(see .*)?\n", done.stderr)
    [listed] = re.findall(rf"^{extra} = \[(.*)\]$", PROJECT.read_text("utf-8"), re.MULTILINE)
    assert packages.split() == re.findall(r'"([\w-]+)', listed)
    return f"execgraph[{extra}]"


def test_the_page_takes_the_extra_report(environments: Environments, tmp_path: Path) -> None:
    def report(one: Environment, *more: str) -> Done:
        return one.run(one.python, "-X", "importtime", "-m", "execgraph", "report", *more, cwd=tmp_path)

    plain = environments.plain
    missing = plain.run(plain.command("trace-report"), tmp_path / "nothing", "--output", "page.html", cwd=tmp_path)
    one = environments.with_extra("report", wants("report", missing))
    done = report(one, str(TRAINING), "--only", "temporal_breakdown", "--output", "page.html")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").stat().st_size > 500_000
    assert "jinja2" in imported(done) and "jinja2" not in imported(report(one, "--help"))


def test_zstd_takes_the_extra_zstd(environments: Environments, tmp_path: Path) -> None:
    def link(one: Environment) -> Done:
        return one.run(one.python, "-m", "execgraph", "link", "--device-trace", trace, "--output", "-", cwd=tmp_path)

    trace = tmp_path / "device.json.zst"
    trace.write_bytes(pytest.importorskip("zstandard").compress(gzip.decompress(DEVICE.read_bytes())))
    one = environments.with_extra("zstd", wants("zstd", link(environments.plain)))
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
    one = environments.with_extra("dask", wants("dask", missing))
    done = one.run(one.python, "-c", ON_CLUSTER, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len([*(tmp_path / "graphs").glob("graph.*.et")]) == 2


def test_tab_completion_takes_the_extra_completion(environments: Environments, tmp_path: Path) -> None:
    plain = environments.plain
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": "execgraph li", "COMP_POINT": "12", "COMP_TYPE": "9"}
    missing = plain.run(plain.command("execgraph"), cwd=tmp_path, **asked)
    one = environments.with_extra("completion", wants("completion", missing))
    # the answer goes to file descriptor 8
    answered = one.run("sh", "-c", 'exec "$0" -m execgraph 8>&1 9>&2', one.python, cwd=tmp_path, **asked)
    assert answered.stdout.split() == ["link"], answered.stderr


def test_the_extra_isal_reads_gzip(environments: Environments, tmp_path: Path) -> None:
    one = environments.with_extra("isal", "execgraph[isal]")
    command = (one.python, "-X", "importtime", "-m", "execgraph", "link", "--device-trace", DEVICE, "--output", "-")
    assert "isal" in imported(one.run(*command, cwd=tmp_path))


# What is loaded


def imported(done: Done) -> set[str]:
    """Of which modules a process of `-X importtime` says that they were imported, by the first part of their names."""
    return {*re.findall(r"^import time: .*\| +(\w+)", done.stderr, re.MULTILINE)}


def libraries(done: Done) -> set[str]:
    """Of what the package requires."""
    return {LIBRARIES[name] for name in imported(done) & LIBRARIES.keys()}


SAID = {
    name: [{*re.findall(r"\w+", cell)} for cell in (help_loads, use_loads)]
    for name, help_loads, use_loads in re.findall(
        r"^\| `(?:trace-)?(\w+)` \| ([\w, –]+) \| [\d.]+ \| ([\w, –]+) \|",
        PAGES["performance.md"].read_text("utf-8"),
        re.MULTILINE,
    )
}
"""What the page about performance says of each command: the libraries that --help loads, and its main use."""


@pytest.mark.parametrize("name", ["execgraph", *USES])
def test_a_command_loads_what_the_page_says(name: str, plain: Environment, uses: Uses, tmp_path: Path) -> None:
    python = (plain.python, "-X", "importtime", "-m", "execgraph")
    helped = plain.run(*python, *([] if name == "execgraph" else [name]), "--help", cwd=tmp_path)
    use = uses.done.get(name, helped)
    assert [libraries(helped), libraries(use)] == SAID[name]
