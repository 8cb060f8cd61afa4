"""What commands print when names, groups, files and folders hold control codes: none acts or begins a line."""

import io
import json
import logging
import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from execgraph.schema.io.files import plain_on_terminals
from execgraph.tools.command import progress, progress_bar
from execgraph.tools.terminal import LONGEST_LINE, in_one_line, plain
from support.builder.timeline import TraceBuilder
from support.commands import Run, status_of

EVIL = "evil\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202e\u2066\u200f\x7f\u2028end\nforged: all is well"
TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
FOLDER = "tr\x1b[2J\u202eaces"


def acting(text: str) -> list[str]:
    """What terminals obey, by what Unicode says of each character."""
    return [
        one
        for one in text
        if one not in "\n\t"
        and (
            unicodedata.category(one) in ("Cc", "Zl", "Zp", "Cs")
            or unicodedata.bidirectional(one) in TURNING
            or one in "\u200e\u200f\u061c"
        )
    ]


def test_every_character_that_acts_is_escaped_and_no_other() -> None:
    every = [chr(number) for number in range(0x3000)] + ["\ud800", "\udcff", "字", "🙂"]
    assert [one for one in every if plain(one) != one] == acting("".join(every))
    assert acting(in_one_line(EVIL)) == [] and "\n" not in in_one_line(EVIL)


def test_of_a_line_that_fills_screens_both_ends_are_shown() -> None:
    line = in_one_line(f"device.db: holds {'x' * 262_144} and nothing else")
    assert len(line) <= LONGEST_LINE and "262,178 letters in all" in line
    assert line.startswith("device.db: holds xxx") and line.endswith("xxx and nothing else")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks in which every name that a trace has is evil, and what the commands make of them."""
    root = tmp_path_factory.mktemp("evil")
    traces = root / FOLDER
    for rank in (0, 1):
        t = TraceBuilder(rank=rank, world_size=2, pid=1000 + rank)
        group = t.group((0, 1), name=f"{EVIL} group", description=f"{EVIL} description")
        with t.op(f"{EVIL} op", inputs=[t.tensor()]):
            t.work(2)
            t.launch(f"{EVIL} kernel", duration=20)
        t.collective(group=group, seq=rank)  # their numbers disagree, which is said of the group
        t.device_synchronize()
        traces.mkdir(exist_ok=True)
        host, device = t.write(root)
        for path in (host, device):
            path.rename(traces / f"{path.stem}\x1b[31m.json")
    (traces / "br\x1b[2Joken_rank7.json").write_text('{"traceEvents": [')
    return root


def commands(root: Path) -> Iterator[tuple[str, list[object]]]:
    """Every command with what it needs, in an order in which each finds what it reads."""
    traces = root / FOLDER
    host, device = (next(traces.glob(f"{kind}*_rank0*")) for kind in ("host", "device"))
    yield "link", ["--host-trace", host, "--device-trace", device, "--output", root / "linked.json"]
    yield "link", ["--host-trace", device, "--device-trace", host, "--output", root / "swapped.json"]
    yield "link", ["--device-trace", traces / "missing", "--output", root / "none.json"]
    yield "link", ["--json", "--device-trace", device, "--output", root / "alone.json"]
    yield "convert", ["--input", root / "linked.json", "--output", root / "graph.et"]
    yield "convert", ["--input", device, "--output", root / "none.et"]
    yield "build", ["--input-dir", traces, "--output-dir", root / "graphs", "--json", "--jobs", 1]
    yield "replay", ["--input", root / "graphs"]
    yield "replay", ["--input", traces / "missing.et"]
    yield "jsonize", ["--input", root / "graph.et", "--output", root / "graph.json"]
    yield "view", ["--input", root / "graph.et", "--output", root / "graph.svg"]
    yield "report", [traces]
    yield "report", [traces, "--json"]
    yield "report", ["--diff", traces, traces]
    yield "diagnose", [traces, "-v"]
    yield "diagnose", [traces, "--json"]
    yield "merge", [traces, "--output", root / "merged.json"]
    yield "scale", ["--input-dir", root / "graphs", "--output-dir", root / "scaled", "--data-parallel", 2, "--jobs", 1]
    yield "scale", ["--input-dir", root / "graphs", "--output-dir", root / "one", "--data-parallel", EVIL]


def test_nothing_that_any_command_prints_acts_or_is_forged(job: Path, run: Run) -> None:
    said = {}
    for number, (command, arguments) in enumerate(commands(job)):
        ended = run(f"trace-{command}", *arguments)
        said[f"{number} {command}"] = ended.out + ended.err
    assert {name: acting(text) for name, text in said.items() if acting(text)} == {}
    assert [name for name, text in said.items() if any(line.startswith("forged") for line in text.splitlines())] == []
    assert "evil\\x1b]0;owned" in said["11 report"] and "tr\\x1b[2J" in said["2 link"]
    assert not [name for name, text in said.items() if "internal error" in text]


def test_the_page_of_a_report_holds_nothing_that_acts(job: Path) -> None:
    pytest.importorskip("altair")
    from execgraph.tools.report.page import drawing_library

    page = job / "page.html"
    assert status_of("trace-report", "-q", job / FOLDER, "--output", page) == 0
    # the drawing library is other people's, and comes first
    ours = page.read_text().replace(drawing_library(), "")
    assert acting(ours) == [] and "evil" in ours


def on_terminal(command: list[str], **environment: str) -> str:
    """What a command shows whose standard streams are a terminal."""
    child, master = pytest.importorskip("pty").fork()
    if not child:
        os.execve(command[0], command, {**os.environ, **environment})
    shown = b""
    with suppress(OSError):  # as its other end is closed
        while part := os.read(master, 1 << 16):
            shown += part
    os.close(master)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("output", ["-", "/dev/tty"])
def test_json_that_goes_to_a_terminal_is_the_same_json_and_acts_on_nothing(job: Path, output: str) -> None:
    link = ["-q", "--device-trace", str(next((job / FOLDER).glob("device*_rank0*"))), "--output"]
    assert status_of("trace-link", *link, job / "of_device.json") == 0
    script = "from execgraph.start import trace_link; trace_link()"
    text = on_terminal([sys.executable, "-c", script, *link, output])
    assert acting(text) == []
    assert json.loads(text) == json.loads((job / "of_device.json").read_bytes())
    assert "\x9b" in json.dumps(json.loads(text), ensure_ascii=False)


def test_a_terminal_shows_the_verdict_in_bold_unless_it_is_asked_not_to() -> None:
    script = "from execgraph.start import trace_report; trace_report()"
    command = [sys.executable, "-c", script, "tests/data/compiled"]
    # where reading takes long its progress comes first
    bold, plain = (on_terminal(command, NO_COLOR=value).rpartition("\r")[2] for value in ("", "1"))
    verdict, rest = bold.split("\n\n", 1)
    assert re.fullmatch("(\x1b\\[1m[^\x1b]+\x1b\\[0m\n?)+", verdict)
    assert acting(rest) == acting(plain) == []


def test_what_is_no_text_does_not_act_either(tmp_path: Path) -> None:
    shown = io.BytesIO()
    shown.isatty = lambda: True  # type: ignore[method-assign]
    stream = plain_on_terminals(shown)
    for part in (b"\x1b[2J\xc2", b"\x9b31m\xff", b"\n"):
        stream.write(part)
    assert shown.getvalue() == b"\\u001b[2J\\u009b31m\\xff\n"


@pytest.mark.parametrize(("level", "shows"), [(logging.INFO, True), (logging.ERROR, False)])
def test_quiet_commands_show_no_progress(level: int, shows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", screen)
    logging.getLogger().setLevel(level)
    assert [*progress([1, 2], "read", total=2)] == [1, 2]
    with progress_bar("write"):
        pass
    assert bool(screen.getvalue()) == shows
