"""Opens the page of trace-report in a browser, and tells what stands on it."""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from execgraph.tools.report import ReportRequest, find_sources, render, report_on

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
