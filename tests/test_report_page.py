"""The page of trace-report in a browser: everything is drawn without an error or the network, and answers to hand and eye."""

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from execgraph.tools.report.files import write_csv
from execgraph.tools.report.inputs import find_sources
from execgraph.tools.report.page import MISSING, render
from execgraph.tools.report.report import report_on

playwright = pytest.importorskip("playwright.sync_api")
LAPTOP, PHONE = 1366, 390
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None or MISSING is not None, reason="needs chromium and the extra `report`")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        # containers give the browser no user of its own, which its sandbox needs
        running = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    return written(data / "training", tmp_path_factory.mktemp("page"))


def written(traces: Path, folder: Path) -> Path:
    page = folder / "report.html"
    page.write_text(render(report_on(find_sources([traces]))), "utf-8")
    return page


def opened(browser: Any, file: Path, said: list[str], **look: Any) -> Any:
    """The page when all is drawn; `said` collects what it writes to the console, its errors, and what it asks the network for."""
    page = browser.new_page(viewport={"width": look.pop("width", LAPTOP), "height": 768}, **look)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on(
        "request", lambda request: said.append(request.url) if not request.url.startswith(("file:", "data:")) else None
    )
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-drawn]")
    return page


def cells(page: Any, section: str, column: int) -> list[str]:
    rows: list[str] = page.locator(f"#{section} details[open] tbody tr td:nth-child({column})").all_inner_texts()
    return rows


@pytest.mark.parametrize("sample", ["training", "ddp", "compiled"])
def test_every_chart_is_drawn_without_an_error_or_the_network(
    browser: Any, data: Path, tmp_path: Path, sample: str
) -> None:
    said: list[str] = []
    page = opened(browser, written(data / sample, tmp_path), said)
    charts = page.locator(".chart").count()
    assert page.locator(".chart svg").count() == charts > 0
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth") <= LAPTOP
    page.close()


def test_a_click_on_a_heading_sorts_by_value_and_a_second_one_turns_it_round(browser: Any, training: Path) -> None:
    page = opened(browser, training, [])
    heading = page.locator("#critical_path th", has_text="time [µs]").first.locator("button")
    heading.click()
    times = [float(text.replace(",", "")) for text in cells(page, "critical_path", 3)]
    assert times == sorted(times, reverse=True) and len(times) > 2
    heading.click()
    assert cells(page, "critical_path", 3) == [f"{time:,.1f}" for time in times[::-1]]
    page.locator("#critical_path th", has_text="kind").first.locator("button").click()
    kinds = cells(page, "critical_path", 2)
    assert kinds == sorted(kinds)
    page.close()


def test_hovering_a_bar_tells_its_values(browser: Any, training: Path) -> None:
    page = opened(browser, training, [])
    page.locator("#temporal_breakdown .mark-rect path").first.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")
    told = page.locator("#vg-tooltip-element").inner_text()
    assert "computation" in told and "share [%]" in told
    page.close()


def test_a_name_in_a_table_leads_to_its_bars_and_a_bar_to_its_rows(browser: Any, training: Path) -> None:
    page = opened(browser, training, [])
    domain = "views.then((all) => { const [from, to] = all['timeline-0'].scale('x').domain(); return to - from; })"
    whole = page.evaluate(domain)
    page.locator("#kernel_duration_distribution td[data-name^=ampere_sgemm]").first.click()
    page.wait_for_function(f"{domain}.then((width) => width < {whole})")
    assert "ampere_sgemm" in page.locator("#chosen b").inner_text()
    assert page.locator("tr.found").count() > 1
    page.locator("#chosen button").click()
    assert page.locator("tr.found").count() == 0 and page.locator("#chosen").is_hidden()
    page.wait_for_function(f"{domain}.then((width) => width === {whole})")
    page.locator("#run path[fill='var(--computation)']").first.click()
    assert page.locator("#chosen").is_visible()
    page.close()


def test_memory_is_a_curve_with_its_peak_and_the_steps(browser: Any, data: Path, tmp_path: Path) -> None:
    page = opened(browser, written(data / "torch_2.13.0", tmp_path), [])
    chart = page.locator("#memory_timeline .chart").first
    assert "peak" in chart.inner_text()
    assert chart.locator(".mark-area path").count() == 1 and chart.locator(".mark-symbol path").count() == 1
    assert chart.locator(".mark-rule line").count() > 1
    page.close()


def test_colours_follow_the_system(browser: Any, training: Path) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    bar = "getComputedStyle(document.querySelector('#temporal_breakdown .mark-rect path')).fill"
    looks = []
    for scheme in ("light", "dark"):
        page = opened(browser, training, [], color_scheme=scheme)
        looks.append((page.evaluate(paper), page.evaluate(bar)))
        page.close()
    (light_paper, light_bar), (dark_paper, dark_bar) = looks
    assert light_paper != dark_paper and light_bar != dark_bar
    assert "rgb" in light_bar and "rgb(0, 0, 0)" not in (light_bar, dark_bar)


MANY_LAUNCHES = 450


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with more launches than a table shows at first, one of them of a kernel with a name of its own."""
    from builder import TraceBuilder

    t, folder = TraceBuilder(), tmp_path_factory.mktemp("long")
    for number in range(MANY_LAUNCHES):
        with t.op("aten::mm"):
            t.work(2)
            t.launch('needle, "quoted"' if number == 7 else "hay", duration=1 + number % 5)
    t.write(folder)
    return written(folder, folder)


def launches(page: Any) -> Any:
    """The table of all launches, opened by hand."""
    table = page.locator("details[data-table=launch_statistics]")
    table.locator("summary").press("Enter")
    table.locator("tbody tr").first.wait_for()
    return table


def test_all_rows_of_a_long_table_come_on_demand(browser: Any, long_run: Path) -> None:
    page = opened(browser, long_run, [])
    table = launches(page)
    rows, told = table.locator("tbody tr"), table.locator(".count")
    assert rows.count() == 200 and told.inner_text() == "200 of 450 shown"
    table.locator(".all").press("Enter")
    assert rows.count() == MANY_LAUNCHES and told.inner_text() == ""
    assert table.locator(".all").is_hidden()
    page.close()


def test_a_table_is_searched_in_all_its_rows(browser: Any, long_run: Path) -> None:
    page = opened(browser, long_run, [])
    table = launches(page)
    rows, told = table.locator("tbody tr"), table.locator(".count")
    page.keyboard.press("Tab")
    page.keyboard.type("NEEDLE")
    assert rows.count() == 1 and told.inner_text() == "1 that match"
    assert "needle" in rows.first.inner_text()
    page.keyboard.press("Escape")
    assert rows.count() == 200
    table.locator("input").fill("nowhere")
    assert rows.count() == 0 and told.inner_text() == "0 that match"
    page.close()


def test_a_table_is_saved_as_the_command_writes_it(browser: Any, long_run: Path, tmp_path: Path) -> None:
    said: list[str] = []
    page = opened(browser, long_run, said)
    table = launches(page)
    report = report_on(find_sources([long_run.parent]))
    write_csv(report.tables.values(), tmp_path)
    with (tmp_path / "launch_statistics.csv").open(newline="") as file:
        expected = list(csv.DictReader(file))
    for wanted in ("", "needle"):
        table.locator("input").fill(wanted)
        with page.expect_download() as download:
            table.locator(".csv").press("Enter")
        assert download.value.suggested_filename == "launch_statistics.csv"
        with download.value.path().open(newline="") as file:
            found = list(csv.DictReader(file))
        own = [row for row in expected if wanted in row["name"]]
        assert sorted(map(comparable, found)) == sorted(map(comparable, own)) and len(own) in (1, MANY_LAUNCHES)
    assert said == []
    page.close()


def comparable(row: dict[str, str]) -> list[str]:
    """A line of a file; browsers write a whole time without its `.0`."""
    return [value.removesuffix(".0") for value in row.values()]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_at_the_width_of_a_phone(browser: Any, training: Path, scheme: str) -> None:
    said: list[str] = []
    page = opened(browser, training, said, width=PHONE, color_scheme=scheme)
    assert said == [] and page.evaluate("document.documentElement.scrollWidth") <= PHONE
    cut = page.evaluate(
        """[...document.querySelectorAll('.chart svg')].flatMap((chart) => {
          const { left, right } = chart.getBoundingClientRect();
          return [...chart.querySelectorAll('text')].filter((text) => {
            const box = text.getBoundingClientRect();
            return box.width && text.getAttribute("opacity") !== "0" && (box.left < left - 1 || box.right > right + 1);
          }).map((text) => text.textContent);
        })"""
    )
    assert cut == []
    page.close()


def test_names_lead_to_the_timeline_by_the_keyboard(browser: Any, training: Path) -> None:
    page = opened(browser, training, [])
    page.locator("#kernel_duration_distribution td[data-name] button").first.press("Enter")
    assert page.locator("#chosen").is_visible() and page.locator("tr.found").count() > 0
    page.close()


def test_names_that_are_markup_stay_text(browser: Any, tmp_path: Path) -> None:
    from builder import TraceBuilder

    t = TraceBuilder()
    with t.op("</script><script>window.broken = 1</script>"):
        t.work(2)
        t.launch("kernel<b>&\"'</b>")
    t.write(tmp_path)
    said: list[str] = []
    page = opened(browser, written(tmp_path, tmp_path), said)
    assert said == [] and page.evaluate("window.broken") is None
    page.close()
