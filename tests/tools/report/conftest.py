"""Inputs of trace-report of every kind, and its page in a browser."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from execgraph.converter.convert import convert
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.linked import write_linked
from execgraph.tools.report import Report, find_sources, report_on
from support.reports import BROWSER, FEW, opened, small_run, written


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Path]:
    """A pair in a folder, its linked trace and graph, and things that are none of these."""
    pair = tmp_path / "pair"
    pair.mkdir()
    host, device = small_run().write(pair)
    linked = link(read_host_trace(str(host)), read_device_trace(str(device)))
    write_linked(linked, str(tmp_path / "linked.json"))
    convert(linked).write(str(tmp_path / "graph.et"))
    (tmp_path / "empty.json").touch()
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "nothing").mkdir()
    copy = shutil.copy(device, tmp_path / "copy.json")
    names = ("linked.json", "graph.et", "empty.json", "text.json", "nothing", "missing.json")
    return {Path(name).stem: tmp_path / name for name in names} | {
        "pair": pair, "host": host, "device": device, "copy": Path(copy), "out": tmp_path / "out"
    }  # fmt: skip


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The browser that opens pages: one for all tests, as starting one takes longer than showing a page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # containers give the browser no user of its own, which its sandbox needs
        running = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--process-per-site"])
        pages = running.new_context()
        pages.new_page().goto(Path(__file__).as_uri())
        yield pages
        running.close()


@pytest.fixture(scope="session")
def training_report(data: Path) -> Report:
    """All that is said of a small run."""
    return report_on(find_sources([data / "training"]))


@pytest.fixture(scope="session")
def training(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    return written(data / "training", tmp_path_factory.mktemp("page"), FEW)


@pytest.fixture
def show(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages for one test; none may say anything on its console or ask for anything from the network."""
    said, pages = list[str](), list[Any]()

    def open_page(file: Path, **how: Any) -> Any:
        pages.append(opened(browser, file, said, **how))
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()
    assert said == []


@pytest.fixture(scope="session")
def shared(browser: Any, training: Path) -> Iterator[Any]:
    """The page of a small run, for all tests that leave it as it is or as it can be set back."""
    said = list[str]()
    page = opened(browser, training, said)
    yield page
    page.close()
    assert said == []


@pytest.fixture
def page(shared: Any) -> Any:
    """The same for tests that move its timeline or choose in it: it shows the whole run, and nothing is chosen."""
    shared.locator("#timeline .find").fill("")
    shared.locator("#timeline .lanes").focus()
    for key in ("Escape", "0"):
        shared.keyboard.press(key)
    shared.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    shared.mouse.move(0, 0)
    return shared
