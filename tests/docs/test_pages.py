"""Every command line in the pages runs, in an empty folder per page, and prints what is shown; every link is valid."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from support.folders import ROOT, TESTS
from support.pages import PAGES, PROMPT, agrees, blocks, examples, run

SAMPLES = TESTS
RUN = ("console", "sh", "python")
LANGUAGES = {*RUN, "text", "pycon"}
ELSEWHERE = {"capture.md": "what can run of it needs PyTorch: tests/docs/test_capture.py"}
SIMULATOR, SOURCES = (
    "the simulator is not installed where tests run",
    "its sources are not here, and building takes minutes",
)
SERVER, SLOW = "there is no inference server with a GPU", "takes minutes"
INSTALLS = "installs from a package index"
NOT_RUN = {
    ("README.md", "git clone"): INSTALLS,
    ("astra-sim.md", "git clone"): SOURCES,
    ("capture.md", "vllm serve"): SERVER,
    ("capture.md", "export SGLANG_TORCH_PROFILER_DIR=/tmp/traces"): SERVER,
    ("contributing.md", "git checkout"): SLOW,
    ("contributing.md", "make test-fast"): SLOW,
    ("goal.md", "txt2bin -i"): SIMULATOR,
    ("goal.md", "apt-get install"): SOURCES,
    ("goal.md", "git clone"): SOURCES,
    ("index.md", "git clone"): INSTALLS,
    ("install.md", "git clone"): INSTALLS,
    (
        "many-ranks.md",
        "dask scheduler",
    ): "a cluster of several machines; tests/tools/job/test_build.py builds on a small one",
    ("performance.md", "make bench"): SLOW,
    ("performance.md", "git checkout"): SLOW,
    ("performance.md", "trace-generate ddp"): "makes 10 GB",
    ("scaling.md", "trace-generate moe_dp"): "makes 256 graphs, for " + SIMULATOR,
}
"""Text blocks that show commands which do not run here, by page and how the first command begins, and why."""


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("name", [name for name in PAGES if name not in ELSEWHERE])
def test_what_the_page_tells_to_run_prints_what_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(SAMPLES)
    names: dict[str, Any] = {}
    for block in blocks(PAGES[name]):
        if block.language == "python":
            exec(block.text, names)
        for example in examples(block):
            printed = run(example, capsys)
            if example.printed is not None and not agrees(printed, example.printed):
                assert printed == example.printed, example.command


def test_pages_that_are_followed_one_after_the_other_share_no_folder() -> None:
    """A folder in which two pages put different jobs would hold ranks of both."""
    made: dict[str, set[str]] = {}
    for name in PAGES.keys() - ELSEWHERE.keys():
        for example in (example for block in blocks(PAGES[name]) for example in examples(block) if not example.fails):
            if command := re.match(r"trace-(generate|build|scale) (?:-q )?(\S+) .*?-o (\S+)", example.command):
                kind, source, folder = command.groups()
                made.setdefault(folder, set()).add(f"{name}: {source}" if kind == "generate" else source)
    assert {folder: sources for folder, sources in made.items() if len(sources) > 1} == {}


def test_commands_that_do_not_run_are_known() -> None:
    shown = {
        (name, " ".join(block.text.partition(PROMPT)[2].split()[:2]))
        for name, page in PAGES.items()
        for block in blocks(page)
        if block.language == "text" and PROMPT in block.text
    }
    assert shown == set(NOT_RUN)


@pytest.mark.parametrize("name", PAGES)
def test_blocks_say_what_they_are(name: str) -> None:
    assert {block.language for block in blocks(PAGES[name])} <= LANGUAGES
    prose = re.sub(r"^```.*?^```$", "", PAGES[name].read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"\n\n    \S", prose), "fence the block"


def anchors(page: Path) -> set[str]:
    """What headings are linked by, on code hosts and on the site."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    page = PAGES[name]
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        aim = (page.parent / target).resolve() if target else page
        assert aim.exists(), link
        assert name == "README.md" or aim.is_relative_to(ROOT / "docs"), f"{link} is not on the site"
        assert not anchor or anchor in anchors(aim), link


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
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    anew = runpy.run_path(str(ROOT / "docs" / "notebook.py"))["with_outputs"](text)
    assert outputs_of(text) == outputs_of(anew), "write it anew: make docs"


def outputs_of(notebook: str) -> list[list[object]]:
    cells = [cell for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]
    return [[output.get("text") or sorted(output["data"]) for output in cell["outputs"]] for cell in cells]
