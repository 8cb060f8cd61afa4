"""The page of trace-report in a browser: it draws without an error or the network, and answers mouse and keys; its
timeline moves by hand and by keys, and leads along dependencies.
"""

import csv
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import numpy as np
import pytest
from execgraph.tools.report import ReportRequest, find_sources, read_ranks, render, report_on, timeline, write_csv
from execgraph.tools.view import draw_lanes
from support.builder.timeline import TraceBuilder
from support.graphs import GraphBuilder
from support.reports import FEW, LAPTOP, PHONE, cells, needs_browser, opened, place_on, shown, told_at, written

pytestmark = needs_browser


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    return written(data / "training", tmp_path_factory.mktemp("everything"))


@pytest.mark.parametrize("sample", ["training", "compiled"])
def test_every_chart_is_drawn_without_an_error_or_the_network(show, data, tmp_path, everything, sample):
    page = show(everything if sample == "training" else written(data / sample, tmp_path))
    charts = page.locator(".chart").count()
    assert page.locator(".chart svg").count() == charts > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= LAPTOP


def test_boxes_of_the_data_flow_open_and_close_with_their_arrows(show: Any, training: Path) -> None:
    page = show(training)
    boxes, arrows = page.locator(".flow .box:visible"), page.locator(".flow .arrows path")
    before = boxes.count(), arrows.count()
    backward = page.locator(".flow details > summary", has_text="backward").first
    backward.click()
    page.wait_for_function("count => document.querySelectorAll('.flow .arrows path').length < count", arg=before[1])
    assert 0 < boxes.count() < before[0] and arrows.count() > 0
    backward.click()
    page.wait_for_function("count => document.querySelectorAll('.flow .arrows path').length === count", arg=before[1])
    assert boxes.count() == before[0]


def test_a_click_on_a_heading_sorts_by_value_and_a_second_one_turns_it_round(shared: Any) -> None:
    page = shared
    heading = page.locator("#critical_path th", has_text="time [ms]").first.locator("button")
    heading.click()
    times = [float(text.replace(",", "")) for text in cells(page, "critical_path", 3)]
    assert times == sorted(times, reverse=True) and len(times) > 2
    heading.click()
    assert cells(page, "critical_path", 3) == [f"{time:,.3f}" for time in times[::-1]]
    page.locator("#critical_path th", has_text="kind").first.locator("button").click()
    kinds = cells(page, "critical_path", 2)
    assert kinds == sorted(kinds)


def test_hovering_a_bar_tells_its_values_in_suitable_units(shared: Any) -> None:
    page = shared
    page.locator("#temporal_breakdown .mark-rect path").first.hover()
    page.wait_for_selector("#tip.visible")
    told = page.locator("#tip").inner_text()
    assert "computation" in told and " ms" in told


def test_a_name_in_a_table_leads_to_its_bars(page: Any) -> None:
    whole = shown(page)
    page.locator("#kernel_duration_distribution td[data-name^=ampere_sgemm]").first.click()
    page.wait_for_function(
        "most => timeline.view.element.dataset.to - timeline.view.element.dataset.from < most", arg=whole[1] / 2
    )
    assert "ampere_sgemm" in page.locator("#chosen b").inner_text()
    page.locator("#chosen button").click()
    page.wait_for_selector("#chosen", state="hidden")
    page.wait_for_function(
        "all => timeline.view.element.dataset.to - timeline.view.element.dataset.from == all", arg=whole[1]
    )
    page.locator("#kernel_duration_distribution td[data-name] button").first.press("Enter")
    assert page.locator("#chosen").is_visible()


def test_a_bar_of_a_chart_leads_to_the_timeline(page: Any) -> None:
    whole = shown(page)
    page.locator("#kernel_duration_distribution .mark-rect path").first.click()
    assert page.locator("#chosen b").inner_text().startswith("ncclDevKernel")
    assert shown(page)[1] - shown(page)[0] < whole[1] / 2


def test_memory_is_a_curve_with_its_peak_and_the_steps(show: Any, data: Path, tmp_path: Path) -> None:
    page = show(written(data / "torch_2.13.0", tmp_path, ["memory_timeline"]))
    chart = page.locator("#memory_timeline .chart").first
    assert "peak" in chart.inner_text()
    assert chart.locator(".mark-area path").count() == 1 and chart.locator(".mark-symbol path").count() == 1
    assert chart.locator(".mark-rule line").count() > 1


def test_the_labels_of_an_axis_are_as_far_apart_from_each_other(shared: Any) -> None:
    places = shared.evaluate(
        """[...document.querySelectorAll('#overview .role-axis-label')].map((labels) =>
          [...labels.querySelectorAll('text')]
            .filter((text) => text.getAttribute("opacity") !== "0" && /^[\\d.,]+( µs| ms)?$/.test(text.textContent))
            .map((text) => text.transform.baseVal.consolidate().matrix.e))"""
    )
    axes = [axis for axis in places if len(axis) > 2]
    assert len(axes) >= 2
    for axis in axes:
        assert np.ptp(np.diff(axis)) < 1


def test_colours_follow_the_system_on_charts_and_the_timeline(show: Any, training: Path) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    bar = "getComputedStyle(document.querySelector('#temporal_breakdown .mark-rect path')).fill"
    pixel = "[...timeline.view.drawing.getContext('2d').getImageData({x}, {y}, 1, 1).data]"
    looks = []
    for scheme in ("light", "dark"):
        page = show(training, color_scheme=scheme)
        shown(page)
        place = {axis: round(value) for axis, value in place_on(page, "device 0 stream 7", 0.13).items()}
        looks.append([page.evaluate(look) for look in (paper, bar, pixel.format(**place))])
    light, dark = looks
    assert not any(one == other for one, other in zip(light, dark, strict=True))
    assert "rgb" in light[1] and "rgb(0, 0, 0)" not in (light[1], dark[1]) and light[2][3] == dark[2][3] == 255


MANY_LAUNCHES = 450
FORMULAS = {10 * number: f"{sign}HYPERLINK(1)" for number, sign in enumerate("=+-@\t＝")}
"""Kernels whose names a spreadsheet would take for formulas."""


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with more launches than a table shows at first, some of them of kernels with names of their own."""
    t, folder = TraceBuilder(), tmp_path_factory.mktemp("long")
    for number in range(MANY_LAUNCHES):
        with t.op("aten::mm"):
            t.work(2)
            t.launch({7: 'needle, "quoted"', **FORMULAS}.get(number, "hay"), duration=1 + number % 5)
    t.write(folder)
    return written(folder, folder, ["launch_statistics"])


@pytest.fixture
def long_page(show: Any, long_run: Path) -> Any:
    return show(long_run)


def launches(page: Any) -> Any:
    """The table of all launches, opened by hand."""
    table = page.locator("details[data-table=launch_statistics]")
    table.locator("summary").press("Enter")
    table.locator("tbody tr").first.wait_for()
    return table


def test_all_rows_of_a_long_table_come_on_demand(long_page: Any) -> None:
    table = launches(long_page)
    rows, told = table.locator("tbody tr"), table.locator(".count")
    assert rows.count() == 200 and told.inner_text() == "200 of 450 shown"
    table.locator(".all").press("Enter")
    assert rows.count() == MANY_LAUNCHES and told.inner_text() == ""
    assert table.locator(".all").is_hidden()


def test_a_table_is_searched_in_all_its_rows(long_page: Any) -> None:
    table = launches(long_page)
    rows, told = table.locator("tbody tr"), table.locator(".count")
    long_page.keyboard.press("Tab")
    long_page.keyboard.type("NEEDLE")
    assert rows.count() == 1 and told.inner_text() == "1 that match"
    assert "needle" in rows.first.inner_text()
    long_page.keyboard.press("Escape")
    assert rows.count() == 200
    table.locator("input").fill("nowhere")
    assert rows.count() == 0 and told.inner_text() == "0 that match"


def test_a_table_is_saved_as_the_command_writes_it(show: Any, long_run: Path, tmp_path: Path) -> None:
    page = show(long_run)
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
    assert {row["stream"] for row in expected} == {"7"}
    assert {f"'{name}" for name in FORMULAS.values()} <= {row["name"] for row in expected}


def comparable(row: dict[str, str]) -> list[str]:
    """A line of a file; browsers write a whole time without its `.0`."""
    return [value.removesuffix(".0") for value in row.values()]


def test_names_that_are_markup_stay_text(t: TraceBuilder, show: Any, tmp_path: Path) -> None:
    with t.op("</script><script>window.broken = 1</script>"):
        t.work(2)
        t.launch("kernel<b>&\"'</b>")
    t.write(tmp_path)
    page = show(written(tmp_path, tmp_path, FEW))
    assert page.evaluate("window.broken") is None


MARKUP = "<img src=x onerror='window.broken = 1'></text></svg><script>window.broken = 1</script>&lt;b>"


def test_names_that_are_markup_stay_text_in_a_picture_of_a_graph(browser: Any, tmp_path: Path) -> None:
    g, said = GraphBuilder(), list[str]()
    g.host(MARKUP + "\x1b\x00\x9b", 0, 500)
    (tmp_path / "graph.svg").write_text(draw_lanes(g.build(), 0), "utf-8")
    page = browser.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.goto((tmp_path / "graph.svg").as_uri())
    assert MARKUP in page.locator("title").text_content()
    assert (page.locator("script, img").count(), page.evaluate("window.broken"), said) == (0, None, [])
    page.close()


class Asked(BaseHTTPRequestHandler):
    """Somebody out there, who remembers what he was asked for."""

    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        self.send_response(200)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def somebody() -> Iterator[str]:
    """The address of somebody out there."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Asked) as server:
        Asked.paths.clear()
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


ASKING = """async (address) => {
  const refused = [];
  addEventListener("securitypolicyviolation", ({ effectiveDirective }) => refused.push(effectiveDirective));
  const put = (kind, more) => document.body.append(Object.assign(document.createElement(kind), more));
  put("img", { src: `${address}/img` });
  put("script", { src: `${address}/script` });
  put("script", { textContent: "window.broken = 1" });
  put("link", { rel: "stylesheet", href: `${address}/style` });
  put("iframe", { src: `${address}/frame` });
  put("style", { textContent: `body { background: url(${address}/background) }` });
  document.body.insertAdjacentHTML("beforeend", "<b onclick='window.broken = 1'></b>");
  document.body.lastChild.click();
  await fetch(`${address}/fetch`).catch(() => {});
  await new Promise((done) => setTimeout(done, 200));
  return refused.sort();
}"""


def test_whatever_gets_into_the_page_can_ask_nobody_and_run_nothing(browser, training, somebody):
    page = opened(browser, training, [])
    refused = page.evaluate(ASKING, somebody)
    wanted = [
        "connect-src", "frame-src", *["img-src"] * 2, "script-src-attr", *["script-src-elem"] * 2, "style-src-elem",
    ]  # fmt: skip
    assert (refused, Asked.paths, page.evaluate("window.broken")) == (wanted, [], None)
    page.close()


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    page = tmp_path_factory.mktemp("modules") / "report.html"
    wanted = ReportRequest(only=["modules"], modules=True)
    page.write_text(render(report_on(find_sources([data / "modules"]), wanted)), "utf-8")
    return page


def test_branches_of_the_tree_open_and_close(show: Any, modules: Path) -> None:
    page = show(modules)
    tree = page.locator("#modules .tree")
    inner = tree.get_by_text("MultiheadAttention_0", exact=True)
    assert inner.is_visible()
    tree.locator("summary", has_text="Block_0").click()
    assert inner.is_hidden()
    tree.locator("summary", has_text="Block_0").click()
    assert inner.is_visible()
    tree.locator("summary", has_text="Picture_0").press("Enter")
    assert inner.is_hidden() and tree.locator("summary", has_text="Block_0").is_hidden()


# The timeline

CROWD = 1500


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A long run on a page with little room for its timeline: a long kernel in the middle, one with a name of
    its own near the end, and many short ones.
    """
    t, folder = TraceBuilder(), tmp_path_factory.mktemp("crowded")
    for number in range(CROWD):
        name, duration = {900: ("longest", 400), 1490: ("needle", 90)}.get(number, ("hay", 15 + number % 7))
        with t.op("aten::mm"):
            t.work(8)
            t.launch(name, duration=duration)
    t.device_synchronize()
    t.write(folder)
    report = report_on(find_sources([folder]), ReportRequest(only=FEW))
    played = {rank.rank: replay for rank in read_ranks(find_sources([folder]).ranks) if (replay := rank.replay)}
    report.timeline = timeline(played, max_bytes=6000)
    page = folder / "report.html"
    page.write_text(render(report), "utf-8")
    return page


@pytest.fixture
def crowded_page(show: Any, crowded: Path) -> Any:
    return show(crowded)


def test_what_lies_beyond_the_first_view_is_there_with_its_name(crowded_page: Any) -> None:
    page = crowded_page
    whole = shown(page)
    page.locator("#timeline .lanes").focus()
    for _ in range(3):
        page.keyboard.press("w")
    first = shown(page)
    page.keyboard.press("0")
    assert shown(page) == whole
    assert whole[0] == 0 and whole[1] - whole[0] > 3 * (first[1] - first[0])
    start, end = page.evaluate(
        """(() => { const run = timeline.view.runs[0], lane = run.lanes.find((one) => one.label.includes("stream"));
        const row = lane.name.findIndex((name) => run.full[name] === "needle");
        return [lane.start[row] / 1000, lane.end[row] / 1000]; })()"""
    )
    assert start > first[1]
    at = (start + end) / 2 / whole[1]
    page.locator("#timeline .lanes canvas").hover(position=place_on(page, "stream", at))
    page.keyboard.down("Control")
    for _ in range(12):
        page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    zoomed = shown(page)
    assert zoomed[1] - zoomed[0] < 0.1 * whole[1] and zoomed[0] < start < zoomed[1]
    told = told_at(page, "stream", ((start + end) / 2 - zoomed[0]) / (zoomed[1] - zoomed[0]))
    assert (told["name"], told["kind"], told["time"]) == ("needle", "computation", "90 µs")


def test_what_is_not_told_one_by_one_is_summed_up_and_counted(show: Any, crowded: Path) -> None:
    page = show(crowded, width=PHONE)
    said = page.locator("#run .reads").inner_text()
    told, whole = (int(number.replace(",", "")) for number in said.split()[2:5:2])
    assert told < whole and "summed up" in said
    per_level = page.evaluate(
        """timeline.view.lanes.map((lane) => lane.levels.map((level) =>
        [level.begun.reduce((a, b) => a + b), [...level.spent.values()].flatMap((times) => [...times]).reduce((a, b) => a + b)]))"""
    )
    assert sum(levels[0][0] for levels in per_level) == whole
    assert all(level == levels[0] for levels in per_level for level in levels)
    kernels = [level for levels in per_level for level in levels[:1] if level[0] == CROWD]
    assert kernels == [
        [CROWD, 1000 * (400 + 90 + sum(15 + number % 7 for number in range(CROWD) if number not in (900, 1490)))]
    ]
    page.locator("#timeline .all").click()
    shown(page)
    assert "each column sums up" in page.locator("#timeline .range").inner_text()
    found = told_at(page, "stream", 0.1)
    assert int(found["begin in it"]) > 1 and found["busy"] == found["computation"]


def test_the_timeline_moves_by_hand_and_by_the_keyboard(crowded_page: Any) -> None:
    page = crowded_page
    page.locator("#timeline .lanes").focus()
    for _ in range(4):
        page.keyboard.press("w")
    first = shown(page)
    length = first[1] - first[0]
    for key, begin, end in (("d", 0.2, 1.2), ("a", 0, 1), ("w", 0.25, 0.75), ("s", 0, 1)):
        page.keyboard.press(key)
        assert shown(page) == pytest.approx([first[0] + begin * length, first[0] + end * length])
    page.keyboard.press("ArrowRight")
    assert shown(page) == pytest.approx([time + 0.2 * length for time in first])
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("+")
    assert shown(page) == pytest.approx([first[0] + length / 4, first[1] - length / 4])
    page.keyboard.press("s")
    assert shown(page) == pytest.approx(first)
    box = page.locator("#timeline .lanes canvas").bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 30, steps=5)
    page.mouse.up()
    assert shown(page) == pytest.approx([time + 100 / box["width"] * length for time in first])
    page.locator("#timeline .overview").click(position={"x": 3, "y": 10})
    assert shown(page) == pytest.approx([0, length])
    page.locator("#timeline .lanes canvas").dblclick(position={"x": 600, "y": 30})
    assert shown(page)[0] == 0 and shown(page)[1] > 3 * length


def test_keys_move_the_timeline_while_the_pointer_is_on_it(page: Any) -> None:
    whole = shown(page)
    page.locator("h1").hover()
    page.keyboard.press("w")
    assert shown(page) == whole
    page.locator("#timeline .lanes canvas").hover()
    page.keyboard.press("w")
    assert shown(page) == pytest.approx([whole[1] / 4, 3 * whole[1] / 4])
    page.keyboard.press("/")
    page.keyboard.type("adds")
    assert page.locator("#timeline .find").input_value() == "adds"
    assert shown(page) == pytest.approx([whole[1] / 4, 3 * whole[1] / 4])


def test_what_was_clicked_on_leads_along_its_dependencies(page: Any) -> None:
    page.locator("#timeline .lanes canvas").click(position=place_on(page, "device 0 stream 24", 0.4))
    chosen, chain = page.locator("#chosen b"), page.locator("#chosen .chain div")
    assert chosen.inner_text().startswith("ncclDevKernel_AllReduce")
    released, releases = chain.nth(0), chain.nth(1)
    assert released.inner_text().startswith("Released by") and releases.inner_text().startswith("Releases")
    first = released.locator("button").first
    assert "event wait, device 0 stream 7" in first.inner_text()
    first.click()
    assert not chosen.inner_text().startswith("nccl")
    back = page.locator("#chosen .chain div").nth(1).locator("button", has_text="nccl").first
    back.press("Enter")
    assert chosen.inner_text().startswith("ncclDevKernel_AllReduce")


def test_a_bar_that_is_wide_already_fills_the_view(page: Any) -> None:
    page.keyboard.press("0")
    page.locator("#timeline .lanes canvas").click(position=place_on(page, "stream 7", 0.5))
    page.keyboard.press("f")
    near = shown(page)
    page.keyboard.press("f")
    nearest = shown(page)
    assert near[0] < nearest[0] < nearest[1] < near[1]


def test_ops_are_told_by_the_row_below_the_one_that_called_them(shared: Any) -> None:
    page = shared
    shown(page)
    place = place_on(page, "main thread", 0.6)
    canvas, names = page.locator("#timeline .lanes canvas"), []
    for deep in range(3):
        canvas.hover(position={"x": place["x"], "y": place["y"] + 15 * deep})
        names.append(page.locator("#tip.visible tr").first.inner_text().split("\t")[-1])
    assert names == ["ProfilerStep#1", "aten::item", "aten::_local_scalar_dense"]


def test_bars_are_found_by_a_part_of_their_name(page: Any) -> None:
    whole = shown(page)
    page.locator("#timeline .lanes").focus()
    page.keyboard.press("/")
    page.keyboard.type("NCCLDEVKERNEL_ALLREDUCE")
    hits = page.locator("#timeline .hits")
    assert hits.inner_text() == "8 found" and shown(page) == whole
    page.keyboard.press("Enter")
    first = shown(page)
    assert hits.inner_text() == "1 of 8 found" and first[1] - first[0] < whole[1]
    chain = page.locator("#chosen .chain div").all_inner_texts()
    assert [line.split(" ")[0] for line in chain] == ["Released", "Releases"]
    page.keyboard.press("Shift+Enter")
    assert hits.inner_text() == "8 of 8 found" and shown(page)[0] > first[0]
    page.keyboard.press("Escape")
    assert hits.inner_text() == "" and page.locator("#chosen").is_hidden()


def test_a_key_shows_the_step_of_median_length(t: TraceBuilder, show: Any, tmp_path: Path) -> None:
    for number, work in enumerate((50, 400, 90)):
        with t.annotation(f"ProfilerStep#{number}"):
            t.leaf("aten::mm", work)
            t.leaf("aten::add", 5)
    t.write(tmp_path)
    page = show(written(tmp_path, tmp_path, ["temporal_breakdown"]))
    whole = shown(page)[1]
    page.locator("#timeline .lanes").focus()
    page.keyboard.press("m")
    begin, end = shown(page)
    assert 450 < begin < whole - 90 and end - begin < 120


def test_on_paper_the_whole_run_is_shown(page: Any) -> None:
    whole = shown(page)
    page.locator("#timeline .in").click()
    assert shown(page) != whole
    page.pdf()
    assert shown(page) == whole and page.locator("#timeline").is_visible()
