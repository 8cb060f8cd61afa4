"""Commands in pages and examples in docstrings run and print what is shown; links are valid, tables explained."""

import ast
import csv
import doctest
import importlib
import json
import re
import runpy
from pathlib import Path
from typing import Any

import execgraph
import pytest
from execgraph.converter.convert import convert
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.tools.job.build_report import HEADINGS as BUILT
from execgraph.tools.job.diagnosis_text import FILES, WORK
from execgraph.tools.replay import describe, replay_ranks, summarise
from support.folders import DATA, ROOT, TESTS
from support.reports import PAGES, PROMPT, agrees, blocks, examples, run as run_report, run_example

SAMPLES = TESTS
RUN = ("console", "sh", "python")
LANGUAGES = {*RUN, "text", "pycon"}
ELSEWHERE = dict.fromkeys(("capture.md", "capture-more.md"), "needs PyTorch: tests/docs/test_capture.py")
SIMULATOR = "the simulator is not installed where tests run"
SOURCES = "its sources are not here, and building takes minutes"
SERVER = "there is no inference server with a GPU"
INSTALLS = "installs from a package index"
CLUSTER = "a cluster of several machines; tests/tools/job/test_build.py builds on a small one"
NOT_RUN = {
    ("README.md", "git clone"): INSTALLS, ("astra-sim.md", "git clone"): SOURCES,
    ("capture-more.md", "vllm serve"): SERVER,
    ("capture-more.md", "export SGLANG_TORCH_PROFILER_DIR=/tmp/traces"): SERVER,
    ("goal.md", "txt2bin -i"): SIMULATOR, ("goal.md", "apt-get install"): SOURCES, ("goal.md", "git clone"): SOURCES,
    ("install.md", "git clone"): INSTALLS,
    ("many-ranks.md", "dask scheduler"): CLUSTER,
    ("scaling.md", "trace-generate pipeline_dp"): "makes 256 graphs, for " + SIMULATOR,
}  # fmt: skip
"""Text blocks that show commands which do not run here, by page and how the first command begins, and why."""


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("name", [name for name in PAGES if name not in ELSEWHERE])
def test_what_the_page_tells_to_run_prints_what_it_says(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(SAMPLES)
    names: dict[str, Any] = {}
    for block in blocks(PAGES[name]):
        if block.language == "python":
            exec(block.text, names)
        for example in examples(block):
            printed = run_example(example, capsys)
            if example.printed is not None and not agrees(printed, example.printed):
                assert printed == example.printed, example.command


def test_pages_that_are_followed_one_after_the_other_share_no_folder() -> None:
    """A folder in which two pages put different jobs would hold ranks of both."""
    made: dict[str, set[str]] = {}
    for name in PAGES.keys() - ELSEWHERE.keys():
        for example in (example for block in blocks(PAGES[name]) for example in examples(block) if not example.fails):
            if command := re.match(r"trace-(generate|build|scale) (?:-q )?(\S+) .*?-o (\S+)", example.command):
                kind, source, folder = command.groups()
                made.setdefault(folder, set()).add(example.command if kind == "generate" else source)
    assert {folder: sources for folder, sources in made.items() if len(sources) > 1} == {}


def test_commands_that_do_not_run_are_known() -> None:
    shown = {
        (name, " ".join(block.text.partition(PROMPT)[2].split()[:2]))
        for name, page in PAGES.items()
        for block in blocks(page)
        if block.language == "text" and PROMPT in block.text
    }
    assert shown == set(NOT_RUN)


def anchors(page: Path) -> set[str]:
    """What headings are linked by, on code hosts and on the site."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("name", PAGES)
def test_blocks_say_what_they_are_and_links_lead_somewhere(name: str) -> None:
    assert {block.language for block in blocks(PAGES[name])} <= LANGUAGES
    prose = re.sub(r"^```.*?^```$", "", PAGES[name].read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"\n\n    \S", prose), "fence the block"
    page = PAGES[name]
    for address in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        target, _, anchor = address.partition("#")
        if "://" in target:
            continue
        aim = (page.parent / target).resolve() if target else page
        assert aim.exists(), address
        assert name == "README.md" or aim.is_relative_to(ROOT / "docs"), f"{address} is not on the site"
        assert not anchor or anchor in anchors(aim), address


FIGURE = re.compile(r"(?<![\w.,])(\d[\d,]*(?:\.\d+)?) ?(%|(?:ns|µs|ms|s|MB|GB|points)\b)")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
MEASURES = re.compile(r"python -m\s+benchmarks|make (?:accuracy|bench)")
NOT_SHOWN = {
    "capture.md": {"6 %"}, "parts.md": {"5,000 µs"},
    "astra-sim.md": {"0.35 %", "4,066 µs"}, "goal.md": {"5.5 ms", "6.6 ms", "8.2 ms"}, "troubleshooting.md": {"3 %", "6 %"},
    "report-tables.md": {"50 %"},
    "why-slow.md": {"8.72 ms", "10.54 ms", "16.23 ms", "18.19 ms", "47 %", "73.2 ms", "318 ms"},
}  # fmt: skip
"""Figures that no block of the page shows, no benchmark that it names prints, and the page on accuracy lacks."""


@pytest.mark.parametrize("name", [name for name in PAGES if name != "python-api.md"])
def test_figures_are_those_of_a_command_of_the_page_or_known(name: str) -> None:
    pages = (name, "accuracy.md", "accuracy-simulated.md")
    text, *accuracy = (PAGES[page].read_text(encoding="utf-8") for page in pages)
    if MEASURES.search(text):
        return
    prose = re.sub(r"^```.*?^```$|`[^`]*`", "", text, flags=re.DOTALL | re.MULTILINE)
    shown = [one for block in blocks(PAGES[name]) for one in NUMBER.findall(block.text)]
    linked = NUMBER.findall("".join(accuracy)) if "accuracy" in text else []
    values = [float(one.replace(",", "")) / unit for one in (*shown, *linked) for unit in (1, 1000)]

    def is_known(number: str) -> bool:
        digits, value = len(number.partition(".")[2]), float(number.replace(",", ""))
        return any(round(one, digits) == value for one in values)

    unknown = {f"{number} {unit}" for number, unit in FIGURE.findall(prose) if not is_known(number)}
    assert unknown == NOT_SHOWN.get(name, set())


def test_the_index_and_the_site_name_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {name for name in PAGES if name not in ("README.md", "index.md")}
    assert {name for name in pages if f"]({name})" not in index} == set()
    assert {name for name in pages if f": {name}" not in site} == set()


def test_the_page_of_the_python_api_is_current() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "python_api.py"))["page"]()
    assert PAGES["python-api.md"].read_text(encoding="utf-8") == made, "write it anew: make docs"


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "docs").glob("*.ipynb")))
def test_a_notebook_prints_what_it_says(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """What tables and charts look like depends on the libraries that draw them, so that only their kinds are held."""
    pytest.importorskip("altair")
    monkeypatch.setattr("vl_convert.vegalite_to_png", lambda *_, **__: b"")
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    anew = runpy.run_path(str(ROOT / "docs" / "notebook.py"))["with_outputs"](text)
    assert outputs_of(text) == outputs_of(anew), "write it anew: make docs"


def outputs_of(notebook: str) -> list[list[object]]:
    cells = [cell for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]
    return [[output.get("text") or sorted(output["data"]) for output in cell["outputs"]] for cell in cells]


PACKAGES = ("schema", "linker", "converter", "tools")
ROOT_PACKAGE = ("tools", "package")
"""The folder that is installed as `execgraph` itself."""


def modules_with_examples() -> list[str]:
    """Names of the modules in whose text there is one that the page of the Python API, which is run as well, lacks."""
    on_page = set(PAGES["python-api.md"].read_text(encoding="utf-8").splitlines())
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    with_examples = [path for path in paths if not {*re.findall(">>> .*", path.read_text())} <= on_page]
    parts = [path.relative_to(ROOT).with_suffix("").parts for path in with_examples]
    inner = [path[len(ROOT_PACKAGE) :] if path[: len(ROOT_PACKAGE)] == ROOT_PACKAGE else path for path in parts]
    return [".".join(("execgraph", *(part for part in path if part != "__init__"))) for path in inner]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_give_what_they_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ran = doctest.testmod(importlib.import_module(name), optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    assert ran.attempted and not ran.failed


def test_examples_of_the_page_run_as_they_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by itself: a reader copies one, not what its module imports."""
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
    runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    for example in re.finditer(r"```pycon\n(.*?)```", text, re.DOTALL):
        line = text[: example.start()].count("\n") + 1
        runner.run(doctest.DocTestParser().get_doctest(example[1], {}, "python-api.md", "python-api.md", line))
    assert runner.tries > 40 and not runner.failures


def test_every_name_of_the_api_has_an_example() -> None:
    texts = {name: getattr(execgraph, name).__doc__ or "" for name in execgraph.__all__}
    assert [name for name, text in texts.items() if ">>> " not in text] == ["capture"], "that one needs PyTorch"


LINES = "".join(path.read_text("utf-8") for path in (PAGES["summary-lines.md"], ROOT / "tools/commands/README.md"))
COLUMNS = (ROOT / "tools/report/README.md").read_text(encoding="utf-8")
RUNS = {
    "job": [DATA / "training", "--modules"],
    "modules": [DATA / "gpu" / "attention_modules", "--modules"],
    "difference": ["--diff", DATA / "training", DATA / "gpu" / "attention_modules"],
}


def items(text: str) -> list[tuple[set[str], str]]:
    """Of each item of the lists in a text what it explains, which is in front of the colon, and how."""
    lines = (re.sub(r"\n +", " ", item) for item in re.findall(r"^- (.*(?:\n  .*)*)", text, re.MULTILINE))
    parts = (line.partition(": ")[::2] for line in lines)
    return [({*re.findall(r"`([^`]+)`", without_brackets(names))}, meaning) for names, meaning in parts]


def without_brackets(text: str) -> str:
    return re.sub(r" \([^()]*\)", "", text)


def columns(meaning: str) -> set[str]:
    """The columns that an item explains."""
    return {
        name for part in without_brackets(meaning).split(";") for name in re.findall(r"`(\w+)`", part.partition(":")[0])
    }


def explained() -> tuple[set[str], list[tuple[set[str], set[str]]]]:
    """The columns that the page explains for all tables, and of each item those of its tables, with these."""
    for_all, of_tables = COLUMNS.partition("\n## Columns\n")[2].split("\n## ", 1)
    of_all = {name for names, meaning in items(for_all) for name in names | columns(meaning.partition(";")[2])}
    return of_all, [(names, columns(meaning)) for names, meaning in items(of_tables)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The columns that the report writes, by table."""
    tables: dict[str, set[str]] = {}
    for name, arguments in RUNS.items():
        folder: Path = tmp_path_factory.mktemp(name)
        assert run_report(*arguments, "--csv", folder, "-q") == 0
        for path in folder.glob("*.csv"):
            with path.open(newline="", encoding="utf-8") as file:
                tables[path.stem] = set(next(csv.reader(file)))
    return tables


def test_every_table_and_column_is_explained_and_no_other(written: dict[str, set[str]]) -> None:
    of_all, page = explained()
    assert sorted(written) == sorted(name for tables, _ in page for name in tables)
    assert of_all <= set().union(*written.values())
    for tables, named in page:
        found = set().union(*(written[table] for table in tables))
        assert (named - found, found - named - of_all) == (set(), set()), tables


WHERE = {
    "trace-link": ("tools/commands/trace_link.py",), "trace-convert": ("tools/commands/trace_convert.py",),
    "trace-build": ("tools/commands/trace_build.py", "tools/job/build_report.py"),
    "trace-scale": ("tools/commands/trace_scale.py", "tools/job/scaling.py"),
    "trace-merge": ("tools/commands/trace_merge.py",), "trace-report": ("tools/commands/trace_report.py",),
}  # fmt: skip
"""The modules that make a command's summary."""
US = re.compile(r"(?<![\w`])us\b")
WITH_COLUMNS = {"trace-build": BUILT, "trace-diagnose": (*FILES, *WORK)}
IN_COLUMNS = {"trace-merge": {"rank"}}
"""Titles of lines that are set in columns of their own."""


def section(head: str) -> str:
    found = re.search(rf"^## {head}$(.*?)(?=^## |\Z)", LINES, re.DOTALL | re.MULTILINE)
    assert found, head
    return found[1]


def explained_in(command: str, kind: str) -> set[str]:
    """The lines or columns that a command's section explains, columns first."""
    lists = re.findall(r"((?:^(?:- |  ).*\n)+)", section(command), re.MULTILINE)
    chosen = lists[kind == "line" and command in WITH_COLUMNS]
    return {name for names, _ in items(chosen) for name in names}


def titles(module: str) -> set[str]:
    """The titles of the lines that a module makes; they are written out where the line is made."""
    makers = ("summary_line", "format_counts")
    calls = (one for one in ast.walk(ast.parse((ROOT / module).read_text())) if isinstance(one, ast.Call))
    made = [one for one in calls if isinstance(one.func, ast.Name) and one.func.id in makers]
    assert all(isinstance(one.args[0], ast.Constant) for one in made), module
    return {ast.literal_eval(one.args[0]) for one in made}


@pytest.mark.parametrize("command", WHERE)
def test_every_line_is_explained(command: str) -> None:
    made = set().union(*map(titles, WHERE[command])) | IN_COLUMNS.get(command, set())
    assert explained_in(command, "line") == made


def test_every_line_is_made_in_a_module_that_is_looked_at() -> None:
    looked_at = {module for modules in WHERE.values() for module in modules}
    makers = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tools").rglob("*.py")
        if re.search(r"terminal import .*(format_counts|summary_line)\b", path.read_text())
    }
    assert makers == looked_at


@pytest.mark.parametrize("command", WITH_COLUMNS)
def test_every_column_is_explained(command: str) -> None:
    assert {heading for heading in WITH_COLUMNS[command] if heading} == explained_in(command, "column")


@pytest.mark.parametrize("sample", ["training", "attention"], ids=["device", "host alone"])
def test_every_line_of_a_replay_is_explained(sample: str) -> None:
    host, device = (ROOT / f"tests/data/{sample}/{kind}_rank0.json.gz" for kind in ("host", "device"))
    replayed = replay_ranks([convert(link(read_host_trace(str(host)), read_device_trace(str(device))))])
    text = describe(replayed, summarise(replayed))
    lines = {line[:15].strip() for line in text.splitlines() if not line.startswith(" ")}
    other = {"thread busy"} if sample == "training" else {"stream busy", "start error"}
    elsewhere = other | {"absent", "changed", "differs", "recording", "start offset"}
    elsewhere |= {"modelled", "lost", "rounded"}
    assert explained_in("trace-replay", "line") == lines | elsewhere


def test_microseconds_are_written_with_a_mu() -> None:
    texts = {
        (str(path.relative_to(ROOT)), node.lineno)
        for layer in ("schema", "linker", "converter", "tools", "benchmarks")
        for path in (ROOT / layer).rglob("*.py")
        for text in [path.read_text(encoding="utf-8")]
        if US.search(text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and US.search(str(node.value))
    }
    assert texts == set()
