"""The timeline of the report's page in a browser: it moves by hand and by keys, and leads along dependencies."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from execgraph.tools.report import ReportRequest, find_sources, read_ranks, render, report_on, timeline
from support.pages import FEW, PHONE, needs_browser, opened, place_on, shown, told_at, written

pytestmark = needs_browser

CROWD = 1500


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A long run on a page with little room for its timeline: a long kernel in the middle, one with a name of
    its own near the end, and many short ones.
    """
    from support.builder.timeline import TraceBuilder

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
    report.timeline = timeline(played, bar_count=60, max_bytes=6000)
    page = folder / "report.html"
    page.write_text(render(report), "utf-8")
    return page


@pytest.fixture
def crowded_page(browser: Any, crowded: Path) -> Iterator[Any]:
    page = opened(browser, crowded, [])
    yield page
    page.close()


def test_what_lies_beyond_the_first_view_is_there_with_its_name(crowded_page: Any) -> None:
    page = crowded_page
    whole = shown(page)
    page.locator("#timeline .path").click()
    first = shown(page)
    page.locator("#timeline .lanes").focus()
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


def test_what_is_not_told_one_by_one_is_summed_up_and_counted(browser: Any, crowded: Path) -> None:
    page = opened(browser, crowded, [], width=PHONE)
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
    page.close()


def test_the_timeline_moves_by_hand_and_by_the_keyboard(crowded_page: Any) -> None:
    page = crowded_page
    page.locator("#timeline .path").click()
    first = shown(page)
    length = first[1] - first[0]
    page.locator("#timeline .lanes").focus()
    for key, begin, end in (("d", 0.2, 1.2), ("a", 0, 1), ("w", 0.25, 0.75), ("s", 0, 1)):
        page.keyboard.press(key)
        assert shown(page) == pytest.approx([first[0] + begin * length, first[0] + end * length])
    page.keyboard.press("ArrowRight")
    assert shown(page) == pytest.approx([time + 0.2 * length for time in first])
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("+")
    assert shown(page) == pytest.approx([first[0] + length / 4, first[1] - length / 4])
    page.locator("#timeline .path").click()
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


def test_ops_are_told_by_the_row_below_the_one_that_called_them(page: Any) -> None:
    shown(page)
    place = place_on(page, "main thread", 0.6)
    canvas, names = page.locator("#timeline .lanes canvas"), []
    for deep in range(3):
        canvas.hover(position={"x": place["x"], "y": place["y"] + 15 * deep})
        names.append(page.locator("#tip.visible tr").first.inner_text().split("\t")[-1])
    assert names == ["ProfilerStep#1", "aten::item", "aten::_local_scalar_dense"]


def test_ranks_fold(page: Any) -> None:
    heading, labels = page.locator("#timeline .labels button"), page.locator("#timeline .labels span")
    assert heading.all_inner_texts() == ["▾ rank 0", "▾ rank 1"] and labels.count() == 8
    heading.first.press("Enter")
    assert heading.all_inner_texts() == ["▸ rank 0", "▾ rank 1"] and labels.count() == 4
    heading.last.press("Enter")
    page.locator("#kernel_duration_distribution td[data-name^=ampere_sgemm]").first.click()
    assert labels.count() == 4


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


def test_a_key_shows_the_step_of_median_length(browser: Any, tmp_path: Path) -> None:
    from support.builder.timeline import TraceBuilder

    t = TraceBuilder()
    for number, work in enumerate((50, 400, 90)):
        with t.annotation(f"ProfilerStep#{number}"):
            t.leaf("aten::mm", work)
            t.leaf("aten::add", 5)
    t.write(tmp_path)
    page = opened(browser, written(tmp_path, tmp_path, ["temporal_breakdown"]), [])
    whole = shown(page)[1]
    page.locator("#timeline .lanes").focus()
    page.keyboard.press("m")
    begin, end = shown(page)
    assert 450 < begin < whole - 90 and end - begin < 120
    page.close()


def test_the_timeline_is_drawn_in_the_colours_of_the_system(browser: Any, training: Path) -> None:
    pixel = "[...timeline.view.drawing.getContext('2d').getImageData({x}, {y}, 1, 1).data]"
    seen = []
    for scheme in ("light", "dark"):
        page = opened(browser, training, [], color_scheme=scheme)
        shown(page)
        place = {axis: round(value) for axis, value in place_on(page, "device 0 stream 7", 0.13).items()}
        seen.append(page.evaluate(pixel.format(**place)))
        page.close()
    assert seen[0] != seen[1] and all(colour[3] == 255 for colour in seen)


def test_on_paper_the_whole_run_is_shown(page: Any) -> None:
    whole = shown(page)
    page.locator("#timeline .path").click()
    assert shown(page) != whole
    page.pdf()
    assert shown(page) == whole and page.locator("#timeline").is_visible()
