"""The pages of docs/ as Markdown with the commands in them, and the page of trace-report in a browser."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from execgraph.tools.report import ReportRequest, find_sources, render, report_on

ROOT = Path(__file__).parents[2]
PAGES = {page.name: page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
PROMPT = "$ "
SECONDS = re.compile(r"\b\d+\.\d s\b")
"""How long something took: the only thing that may differ without … in the page."""


class Block(NamedTuple):
    """What stands between two fences, and the language that the first one names."""

    language: str
    text: str


class Example(NamedTuple):
    """A command line, and what it prints; None where the page does not show it."""

    command: str
    printed: str | None

    @property
    def fails(self) -> bool:
        """Whether the page shows an error."""
        return ": error: " in (self.printed or "")


def blocks(page: Path) -> list[Block]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [Block(*one) for one in found]


def examples(block: Block) -> Iterator[Example]:
    """The commands of a `console` block, behind prompts, or of an `sh` block, one a line."""
    if block.language == "sh":
        yield from (Example(line, None) for line in block.text.splitlines())
    elif block.language == "console":
        for part in re.split(rf"^{re.escape(PROMPT)}", block.text, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield Example(command, printed)


def run(example: Example, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command line prints; it must end as the page says. Our commands run in this process, others in a shell."""
    name, *arguments = shlex.split(example.command)
    if not name.startswith("trace-") or "|" in arguments:
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        line = ["bash", "-ec", example.command]
        ran = subprocess.run(line, env={"PATH": path}, capture_output=True, text=True, check=False)
        assert bool(ran.returncode) == example.fails, ran.stderr
        return ran.stdout + ran.stderr
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        import_module(f"execgraph.tools.commands.{name.replace('-', '_')}").main(arguments)
    said = capsys.readouterr()
    assert bool(ended.value.code) == example.fails, said.err
    return said.out + said.err


def agrees(printed: str, shown: str) -> bool:
    """Whether that is what the page shows; a line … stands for any lines, … in a line for any text."""
    lines = _normal(shown).splitlines()
    pattern = "".join(r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in lines)
    return re.fullmatch(pattern, _normal(printed)) is not None


def _normal(text: str) -> str:
    return SECONDS.sub("0.0 s", "".join(f"{line.rstrip()}\n" for line in text.splitlines()))


LAPTOP, PHONE = 1366, 390
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HAS_ALL = BROWSER is not None and find_spec("altair") is not None and find_spec("playwright") is not None
needs_browser = pytest.mark.skipif(not HAS_ALL, reason="needs chromium, playwright and the extra `report`")

FEW = ["temporal_breakdown", "kernel_duration_distribution", "critical_path"]
"""What most of these tests look at: to draw all charts takes longer than the tests."""


def written(traces: Path, folder: Path, only: list[str] | None = None) -> Path:
    page = folder / "report.html"
    page.write_text(render(report_on(find_sources([traces]), ReportRequest(only=only))), "utf-8")
    return page


def opened(browser: Any, file: Path, said: list[str], width: int = LAPTOP, color_scheme: str = "light") -> Any:
    """The page when all is drawn, nothing folded; `said` collects its console messages, errors and network requests."""
    page = browser.new_page()
    page.set_viewport_size({"width": width, "height": 768})
    page.emulate_media(color_scheme=color_scheme)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "request", lambda request: said.append(request.url) if not request.url.startswith(("file:", "data:")) else None
    )
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-drawn]")
    page.evaluate("document.querySelectorAll('details.fold').forEach((fold) => { fold.open = true; })")
    page.wait_for_function("[...document.querySelectorAll('.chart')].every((chart) => chart.querySelector('svg'))")
    return page


def shown(page: Any) -> list[float]:
    """From when to when the timeline shows the run (µs), when it is drawn."""
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    times: list[float] = page.evaluate("['from', 'to'].map((name) => Number(timeline.view.element.dataset[name]))")
    return times


def place_on(page: Any, lane: str, part: float) -> dict[str, float]:
    """A place on the first lane whose name ends so, at a part of its width; it is scrolled to."""
    label = page.locator("#timeline .labels span", has_text=lane).first
    label.scroll_into_view_if_needed()
    box, canvas = label.bounding_box(), page.locator("#timeline .lanes canvas").bounding_box()
    return {"x": part * canvas["width"], "y": box["y"] - canvas["y"] + 22}


def told_at(page: Any, lane: str, part: float) -> dict[str, str]:
    """What hovering tells there."""
    page.locator("#timeline .lanes canvas").hover(position=place_on(page, lane, part))
    rows = page.locator("#tip.visible tr")
    return dict(row.split("\t", 1) for row in rows.all_inner_texts())


def cells(page: Any, section: str, column: int) -> list[str]:
    rows: list[str] = page.locator(f"#{section} details[open] tbody tr td:nth-child({column})").all_inner_texts()
    return rows
