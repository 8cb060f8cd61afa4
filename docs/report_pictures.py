"""Draws docs/report-*.png: parts of a report page with numbers on them. Needs the extra `test`, and Chromium.

trace-report tests/data/gpu/loader_slow -o out/report.html
python docs/report_pictures.py out/report.html
"""

import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import sync_playwright

WIDTH = 1000
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Picture(NamedTuple):
    """A part of the page, from the top of one element to the end of another, and what its numbers 1, 2, … stand at."""

    name: str
    first: str
    last: str
    marked: tuple[str, ...]


PICTURES = (
    Picture(
        "head",
        "header",
        ".findings > li:nth-child(2)",
        (
            "#verdict",
            "header dl",
            "nav > :last-child",
            ".findings .gain",
            ".findings li > a",
            ".findings .advice",
        ),
    ),
    Picture(
        "charts",
        ".facts",
        "#overview",
        (".facts li", "#overview .columns h2", "#overview .columns h2 ~ h2", "#overview .columns > :nth-child(2) h2"),
    ),
    Picture(
        "timeline",
        "#timeline .tools",
        "#chosen",
        (
            "#timeline .range",
            "#timeline .legend",
            "#timeline canvas.overview",
            ".labels > :nth-child(2) i",
            ".labels > :last-child i",
            "#chosen .chain > :first-child",
            "#chosen .chain > :last-child",
        ),
    ),
    Picture(
        "section",
        "#per_op_device_time h3",
        "#per_op_device_time tbody tr:nth-child(4)",
        (
            "#per_op_device_time .proves",
            "#per_op_device_time .reads",
            "#per_op_device_time .chart",
            "#per_op_device_time .csv",
            "#per_op_device_time thead",
        ),
    ),
)

CHOOSE = """() => {
  document.querySelector("#timeline .step").click();
  const [run] = timeline.view.runs, lane = run.lanes.find((one) => / stream /.test(one.label));
  const length = (row) => lane.end[row] - lane.start[row], isKernel = (row) => !/^Mem/.test(run.full[lane.name[row]]);
  const [longest] = [...lane.start.keys()].filter(isKernel).sort((a, b) => length(b) - length(a));
  timeline.select(lane.bar(longest));
  document.getElementById("chosen").style.position = "static";
}"""
"""Shows the step of median length, and selects the longest kernel of the first stream, which it describes below."""

MARK = """(selectors) => {
  document.querySelectorAll(".mark-of-picture").forEach((mark) => mark.remove());
  const boxes = (element) => {
    const text = document.createRange();
    text.selectNodeContents(element);
    return element.matches("canvas, .chart") ? [element.getBoundingClientRect()] : [...text.getClientRects()];
  };
  // of texts on one line, large and small, the right one is later
  const isLater = (box, other) => box.top >= other.bottom || (box.bottom > other.top && box.right > other.right);
  selectors.forEach((selector, index) => {
    const filled = boxes(document.querySelector(selector)).filter(({ width }) => width);
    const end = filled.reduce((last, box) => (isLater(box, last) ? box : last));
    const mark = document.createElement("b");
    Object.assign(mark, { className: "mark-of-picture", textContent: index + 1 });
    mark.style = "position: absolute; z-index: 9; width: 20px; height: 20px; border-radius: 10px; text-align: center; "
      + "font: bold 13px/20px sans-serif; color: white; background: #c2185b";
    mark.style.left = `${Math.min(end.right + 6, innerWidth - 24) + scrollX}px`;
    mark.style.top = `${(end.top + end.bottom) / 2 - 10 + scrollY}px`;
    document.body.append(mark);
  });
}"""
"""Puts a number behind each of these elements."""


def main(page: str) -> None:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        tab.goto(Path(page).resolve().as_uri())
        tab.wait_for_selector("body[data-drawn]")
        tab.evaluate(CHOOSE)
        tab.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        for picture in PICTURES:
            tab.evaluate(MARK, picture.marked)
            path = Path(__file__).with_name(f"report-{picture.name}.png")
            tab.screenshot(path=path, clip=part(tab, picture), full_page=True)
        browser.close()


def part(tab: Any, picture: Picture) -> dict[str, float]:
    """Returns what the picture shows of the whole page."""
    first, last = (tab.locator(selector).first.bounding_box() for selector in (picture.first, picture.last))
    top, scrolled = first["y"], tab.evaluate("scrollY")
    return {"x": 0, "y": top + scrolled - 6, "width": WIDTH, "height": last["y"] + last["height"] - top + 12}


if __name__ == "__main__":
    main(*sys.argv[1:])
