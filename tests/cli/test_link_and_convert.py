"""trace-link and trace-convert from a shell: what they print, where they write, and that they fail in one line.

How much a compressed file may be when it is decompressed: as --max-size says, in every process of a command.

--steps, --annotation and --window of trace-link and trace-build: the part that is made, and what is refused.
"""

import argparse
import gc
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest
import zstandard
from execgraph.schema.errors import DataError
from execgraph.schema.graph import ExecutionGraph
from execgraph.schema.io import GZIP_MAGIC, bytes_of, decompressing_at_most, open_output
from execgraph.schema.io.files import ZSTD_MAGIC
from execgraph.schema.linked import read_linked
from execgraph.tools.command import run_command
from execgraph.tools.commands import trace_build, trace_convert, trace_jsonize, trace_link
from execgraph.tools.workers import in_processes, on_cluster
from support.builder.timeline import TraceBuilder
from support.runs import small_run
from support.tasks import content

MAIN: dict[str, Callable[[Sequence[str]], NoReturn]] = {
    "trace-link": trace_link.main,
    "trace-convert": trace_convert.main,
}
MODULE = {
    "trace-link": "execgraph.tools.commands.trace_link",
    "trace-convert": "execgraph.tools.commands.trace_convert",
}


def run(command: str, *arguments: object) -> int:
    """The exit status of a command in this process."""
    with pytest.raises(SystemExit) as end:
        MAIN[command]([str(argument) for argument in arguments])
    return int(end.value.code or 0)


def shell(command: str, *arguments: object) -> list[str]:
    """The command as a process of its own."""
    return [sys.executable, "-c", f"from {MODULE[command]} import main; main()", *map(str, arguments)]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A pair, its linked trace, and things that are none of these."""
    folder = tmp_path / "given"
    folder.mkdir()
    host, device = small_run().write(folder)
    linked = folder / "linked.json"
    assert run("trace-link", "-q", "--host-trace", host, "--device-trace", device, "--output", linked) == 0
    (folder / "empty.json").touch()
    (folder / "text.json").write_text("hello")
    (folder / "other.json").write_text(json.dumps(small_run(("a", "b", "c")).host_trace()))
    (folder / "cut.json").write_bytes(device.read_bytes()[:300])
    found = {path.stem: path for path in folder.iterdir()}
    return found | {"folder": folder, "missing": folder / "missing.json", "out": tmp_path / "out"}


@pytest.fixture
def out(files: dict[str, Path]) -> Path:
    """An empty folder for outputs."""
    files["out"].mkdir()
    return files["out"]


def link_arguments(files: dict[str, Path], output: object, host: str = "host", device: str = "device") -> list[object]:
    return ["--host-trace", files[host], "--device-trace", files[device], "--output", output]


# What comes out


def test_a_summary_for_people_goes_to_stderr(
    files: dict[str, Path], out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("trace-link", *link_arguments(files, out / "l.json")) == 0
    linked = capfd.readouterr()
    assert run("trace-convert", "--input", out / "l.json", "--output", out / "g.et") == 0
    converted = capfd.readouterr()
    assert linked.out == converted.out == ""
    assert "2 of 2 host ops matched by record function id, agreement 100 %" in linked.err
    assert "2 of 2 linked to a launch call" in linked.err
    assert "2 activities" in converted.err and "2 launch" in converted.err
    assert sorted(path.name for path in out.iterdir()) == ["g.et", "l.json"]


def test_json_is_the_summary_as_one_object(
    files: dict[str, Path], out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("trace-link", "-q", "--json", *link_arguments(files, out / "l.json")) == 0
    report = json.loads(capfd.readouterr().out)
    assert (report["matched"], report["linked"], report["matched_by"]) == (2, 2, "record function id")
    assert run("trace-convert", "-q", "--json", "--input", out / "l.json", "--output", out / "g.et") == 0
    assert json.loads(capfd.readouterr().out)["edges"]["launch"] == 2


@pytest.mark.parametrize("command", MAIN)
def test_quiet_says_nothing(files: dict[str, Path], out: Path, capfd: pytest.CaptureFixture[str], command: str) -> None:
    arguments = {
        "trace-link": link_arguments(files, out / "l.json"),
        "trace-convert": ["--input", files["linked"], "--output", out / "g.et"],
    }
    assert run(command, "-q", *arguments[command]) == 0
    assert capfd.readouterr() == ("", "")


def test_remarks_on_a_foreign_file_are_said(
    files: dict[str, Path], out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(files["linked"].read_text())
    kept = {key: document[key] for key in ("schema", "pid", "nodes")}
    files["linked"].write_text(json.dumps(kept))
    assert run("trace-convert", "--input", files["linked"], "--output", out / "g.et") == 0
    assert "no calls in the linked trace" in capfd.readouterr().err


def test_the_device_trace_alone_will_do(files: dict[str, Path], out: Path) -> None:
    assert run("trace-link", "--device-trace", files["device"], "--output", out / "l.json") == 0
    assert run("trace-convert", "--input", out / "l.json", "--output", out / "g.et") == 0


def test_a_suffix_of_gz_compresses(files: dict[str, Path], out: Path) -> None:
    assert run("trace-link", *link_arguments(files, out / "l.json.gz")) == 0
    assert (out / "l.json.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert run("trace-convert", "--input", out / "l.json.gz", "--output", out / "g.et") == 0


def test_chakras_spellings_do_the_same(files: dict[str, Path], out: Path) -> None:
    for name, word in (("ours", []), ("theirs", ["PyTorch"])):
        link = word or ["--host-trace"]
        spelled = ["--chakra-host-trace", "--chakra-device-trace", "--output-file"] if word else []
        host, device, output = spelled or ["--host-trace", "--device-trace", "--output"]
        given = [host, files["host"], device, files["device"], "--rank", 0, output, out / f"{name}.json"]
        assert run("trace-link", *(link if word else []), *given) == 0
        read, write = ("--input_filename", "--output_filename") if word else ("--input", "--output")
        assert run("trace-convert", *word, read, out / f"{name}.json", write, out / f"{name}.et") == 0
    assert (out / "ours.json").read_bytes() == (out / "theirs.json").read_bytes()
    assert (out / "ours.et").read_bytes() == (out / "theirs.et").read_bytes()


def test_the_option_simulate_points_to_trace_replay(
    files: dict[str, Path], out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("trace-convert", "--simulate", "--input", files["linked"], "--output", out / "g.et") == 2
    assert "trace-replay GRAPH.et" in capfd.readouterr().err


@pytest.mark.parametrize("command", MAIN)
def test_help_has_an_example_and_version_a_number(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(command, "--help") == 0
    assert f"example:\n  {command} " in capfd.readouterr().out
    assert run(command, "--version") == 0
    assert capfd.readouterr().out.startswith(f"{command} 0.")


def test_options_reach_the_graph(files: dict[str, Path], out: Path) -> None:
    sizes = {}
    for name, option in (("plain", []), ("none", ["--io", "none"]), ("all", ["--promote", "all"])):
        assert run("trace-convert", "--input", files["linked"], "--output", out / f"{name}.et", *option) == 0
        sizes[name] = (out / f"{name}.et").read_bytes()
    assert len(sizes["none"]) < len(sizes["plain"])
    assert sizes["all"] != sizes["plain"]


# Through a pipe


def test_a_pipe_gives_the_same_graph_as_files(files: dict[str, Path], out: Path) -> None:
    assert run("trace-convert", "--input", files["linked"], "--output", out / "by_file.et") == 0
    first = subprocess.Popen(shell("trace-link", "-q", *link_arguments(files, "-")), stdout=subprocess.PIPE)
    second = shell("trace-convert", "-q", "--input", "-", "--output", "-")
    result = subprocess.run(second, stdin=first.stdout, capture_output=True, check=True)
    assert first.wait() == 0
    assert result.stdout == (out / "by_file.et").read_bytes()
    assert result.stderr == b""


def test_a_reader_that_leaves_is_no_traceback(files: dict[str, Path]) -> None:
    left, kept = os.pipe()
    os.close(left)
    arguments = shell("trace-convert", "-q", "--input", files["linked"], "--output", "-")
    result = subprocess.run(arguments, stdout=kept, stderr=subprocess.PIPE, check=False)
    os.close(kept)
    assert (result.returncode, result.stderr) == (1, b"")


def test_the_garbage_collector_rests_while_a_command_works() -> None:
    at_work: list[bool] = []
    with pytest.raises(SystemExit):
        run_command(lambda _: at_work.append(gc.isenabled()), argparse.Namespace(quiet=True, verbose=False), "trace-x")
    assert at_work == [False]
    assert gc.isenabled()


def test_a_stopped_command_leaves_nothing(out: Path) -> None:
    arguments = shell("trace-convert", "--input", "-", "--output", out / "g.et")
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b'{"nodes": [' + b" " * (1 << 20))
        process.stdin.flush()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate()
    assert process.returncode == 130
    assert said == b"trace-convert: interrupted\n"
    assert list(out.iterdir()) == []


# What fails, in one line and without a trace


WRONG = {
    "a device trace where the host trace belongs": ("device", "device", "a device trace"),
    "a host trace where the device trace belongs": ("host", "host", "a host trace"),
    "the two swapped": ("device", "host", "a device trace"),
    "an empty host trace": ("empty", "device", "is empty"),
    "an empty device trace": ("host", "empty", "is empty"),
    "a folder": ("host", "folder", "is a folder, not a device trace: give a file in it, such as "),
    "a missing host trace": ("missing", "device", "cannot be read"),
    "a missing device trace": ("host", "missing", "cannot be read"),
    "no JSON": ("host", "text", "is a text file, not a device trace"),
    "an unfinished device trace": ("host", "cut", "cut off by the end of the file"),
    "two runs": ("other", "device", "are not of one run"),
    "a linked trace for the device trace": (
        "host",
        "linked",
        "is a linked trace, not a device trace: pass it to trace-convert",
    ),
}


def one_line(command: str, error: str) -> str:
    assert error.startswith(f"{command}: error: ") and error.count("\n") == 1 and "Traceback" not in error
    return error


@pytest.mark.parametrize("case", WRONG)
def test_wrong_inputs_of_trace_link(
    files: dict[str, Path], out: Path, capfd: pytest.CaptureFixture[str], case: str
) -> None:
    host, device, complaint = WRONG[case]
    old = out / "old.json"
    old.write_text("precious")
    assert run("trace-link", *link_arguments(files, out / "new.json", host, device)) == 1
    assert complaint in one_line("trace-link", capfd.readouterr().err)
    assert run("trace-link", *link_arguments(files, old, host, device)) == 1
    assert [path.name for path in out.iterdir()] == ["old.json"]
    assert old.read_text() == "precious"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("device", "is a device trace, not a linked trace: pass it to trace-link"),
        ("host", "is a host trace, not a linked trace: pass it to trace-link"),
        ("empty", "is empty"),
        ("folder", "is a folder, not a linked trace: give a file in it, such as "),
        ("missing", "cannot be read"),
        ("text", "is a text file, not a linked trace: give one that trace-link wrote"),
        ("cut", "is a device trace, not a linked trace"),
    ],
)
def test_wrong_inputs_of_trace_convert(
    files: dict[str, Path], out: Path, capfd: pytest.CaptureFixture[str], given: str, complaint: str
) -> None:
    old = out / "old.et"
    old.write_text("precious")
    for output in (old, out / "new.et"):
        assert run("trace-convert", "--input", files[given], "--output", output) == 1
        assert complaint in one_line("trace-convert", capfd.readouterr().err)
    assert [path.name for path in out.iterdir()] == ["old.et"]
    assert old.read_text() == "precious"


def outputs(out: Path) -> dict[str, str]:
    return {"a missing folder": f"{out}/nowhere/x", "a folder": str(out), "a full device": "/dev/full"}


@pytest.mark.parametrize("command", MAIN)
@pytest.mark.parametrize("case", ["a missing folder", "a folder", "a full device"])
def test_outputs_that_cannot_be_written(
    files: dict[str, Path], out: Path, capfd: pytest.CaptureFixture[str], command: str, case: str
) -> None:
    output = outputs(out)[case]
    arguments = {
        "trace-link": link_arguments(files, output),
        "trace-convert": ["--input", files["linked"], "--output", output],
    }
    assert run(command, *arguments[command]) == 1
    assert "cannot be written" in one_line(command, capfd.readouterr().err)
    assert list(out.iterdir()) == []
    assert Path("/dev/full").is_char_device()


def test_an_output_of_no_regular_file_is_written_directly(files: dict[str, Path]) -> None:
    assert run("trace-convert", "-q", "--input", files["linked"], "--output", "/dev/null") == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="the system has no files without a name")
def test_a_killed_run_leaves_nothing_beside_the_old_output(out: Path) -> None:
    old = out / "old.et"
    old.write_text("precious")
    writing = "with open_output(sys.argv[1]) as file: file.write(bytes(3 << 20)); os.kill(os.getpid(), signal.SIGKILL)"
    script = f"import os, signal, sys\nfrom execgraph.schema.io.files import open_output\n{writing}"
    assert subprocess.run([sys.executable, "-c", script, str(old)], check=False).returncode == -signal.SIGKILL
    assert [path.name for path in out.iterdir()] == ["old.et"]
    assert old.read_text() == "precious"


WRITING = """
import os, sys
from execgraph.schema.io import open_output
del os.O_TMPFILE
with open_output(sys.argv[1]) as file:
    file.write(bytes(3 << 20))
    print(flush=True)
    input()
"""
"""Writes for as long as nobody says anything, on a system that has no files without a name."""


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="it is taken away here")
def test_what_a_killed_run_left_is_removed_by_the_next_but_nothing_of_another_that_still_writes(out: Path) -> None:
    pytest.importorskip("fcntl")
    (out / ".graph.et.mine.partial").touch()
    (out / ".other.et.0123abcd.partial").touch()

    def begun() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", WRITING, str(out / "graph.et")]
        writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert writer.stdout and writer.stdout.readline()
        return writer

    with begun() as killed:
        killed.kill()
    names = {path.name for path in out.iterdir()}
    assert len(names) == 3
    with begun() as other, open_output(str(out / "graph.et")) as file:
        file.write(b"whole")
        now = {path.name for path in out.iterdir()}
        assert len(now) == 3 and len(now & names) == 2
        other.communicate(b"\n")
        assert other.returncode == 0
    assert {path.name for path in out.iterdir()} == {"graph.et", ".graph.et.mine.partial", ".other.et.0123abcd.partial"}
    assert (out / "graph.et").read_bytes() == b"whole"


def test_a_summary_that_cannot_be_printed_is_one_line(files: dict[str, Path], out: Path) -> None:
    command = shell("trace-convert", "-q", "--json", "--input", files["linked"], "--output", out / "g.et")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "cannot be written (No space left on device)" in one_line("trace-convert", done.stderr)


def test_a_link_to_an_output_is_followed(files: dict[str, Path], out: Path) -> None:
    (out / "link.et").symlink_to(out / "real.et")
    assert run("trace-convert", "-q", "--input", files["linked"], "--output", out / "link.et") == 0
    assert (out / "link.et").is_symlink() and (out / "real.et").stat().st_size > 0


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("trace-link", []),
        ("trace-link", ["--device-trace", "d"]),
        ("trace-link", ["--device-trace", "d", "--output", "o", "--rank", "first"]),
        ("trace-link", ["--device-trace", "d", "--output", "-", "--json"]),
        ("trace-link", ["--device-trace", "d", "--output", "o", "-v", "-q"]),
        ("trace-link", ["--dev", "d", "--output", "o"]),
        ("trace-convert", []),
        ("trace-convert", ["--input", "l", "--output", "-", "--json"]),
        ("trace-convert", ["--input", "l", "--output", "g", "--promote", "some"]),
        ("trace-convert", ["--input", "l", "--output", "g", "--shortest-slice", "-1"]),
        ("trace-convert", ["--input", "l", "--output", "g", "--largest-gap", "long"]),
    ],
)
def test_wrong_usage_ends_with_2(command: str, arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(command, *arguments) == 2
    assert "error" in capfd.readouterr().err


KB = 1024
PACKED = {"gzip": gzip.compress, "zstd": zstandard.compress}


@pytest.fixture(params=PACKED.values(), ids=PACKED)
def file(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A compressed file of 64 KB that is no trace."""
    path = tmp_path / "file"
    path.write_bytes(request.param(b"a" * 64 * KB))
    return str(path)


def test_sizes_are_binary() -> None:
    assert [bytes_of(text) for text in ("7", "1k", "3M", "20G", "1TB")] == [7, KB, 3 << 20, 20 << 30, 1 << 40]


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5G", "G", "20P", "2 G"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="is no size such as 300M or 20G"):
        bytes_of(text)


def test_as_much_as_is_asked_for_is_read_and_no_more(file: str) -> None:
    with decompressing_at_most("64K"):
        assert content(file) == 64 * KB
    with decompressing_at_most("63K"), pytest.raises(DataError, match=r"more than 0.1 MB.*EXECGRAPH_MAX_SIZE to 1G$"):
        content(file)
    assert content(file) == 64 * KB


def test_the_limit_may_be_above_what_files_of_that_size_are(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("execgraph.schema.io.files.LEAST_SUSPECT", KB)
    monkeypatch.setattr("execgraph.schema.io.files.LARGEST_RATIO", dict.fromkeys((GZIP_MAGIC, ZSTD_MAGIC), 1))
    with pytest.raises(DataError, match="decompresses to more"):
        content(file)
    with decompressing_at_most("64K"):
        assert content(file) == 64 * KB


@pytest.mark.parametrize("run", [in_processes, on_cluster])
def test_workers_have_the_limit_of_the_command(
    file: str, run: Callable[..., object], request: pytest.FixtureRequest
) -> None:
    where = 2 if run is in_processes else request.getfixturevalue("scheduler")
    with decompressing_at_most("63K"):
        outcomes = [outcome for _, outcome in run(content, [file, file], where)]  # type: ignore[attr-defined]
    assert ["decompresses to more" in str(outcome) for outcome in outcomes] == [True, True]


def test_a_command_takes_the_limit_and_leaves_none_behind(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(os.environ)
    with pytest.raises(SystemExit) as end:
        trace_jsonize.main(["--input", file, "--output", str(tmp_path / "graph.json"), "--max-size", "52K"])
    assert (end.value.code, dict(os.environ)) == (1, before)
    assert (
        "decompresses to more than 0.1 MB, the limit for a file of its size; if you trust it" in capsys.readouterr().err
    )


def test_a_size_that_is_none_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        trace_link.main(["--max-size", "much"])
    assert end.value.code == 2
    assert "argument --max-size: much is no size such as 300M or 20G" in capsys.readouterr().err


pytestmark = pytest.mark.usefixtures("in_this_process")

RANKS = 2
KERNELS = [f"kernel {step}{part}" for step in (3, 4, 5) for part in "ab"]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps 3 to 5 on two ranks: of each the kernels a and b, launched 10 and 14 µs after it began; it lasts 18 µs."""
    folder = tmp_path_factory.mktemp("job")
    for rank in range(RANKS):
        t = TraceBuilder(rank=rank, world_size=RANKS, pid=1000 + rank)
        for number in (3, 4, 5):
            with t.annotation(f"ProfilerStep#{number}"):
                with t.annotation("forward"), t.op("aten::mm"):
                    t.work(10)
                    t.launch(f"kernel {number}a", duration=2)
                with t.op("aten::add"):
                    t.launch(f"kernel {number}b", duration=2)
        t.write(folder)
    return folder


def link_part(job: Path, output: Path, *options: str) -> int:
    given = ["--host-trace", job / "host_rank0.json", "--device-trace", job / "device_rank0.json", "--output", output]
    with pytest.raises(SystemExit) as end:
        trace_link.main([*map(str, given), *options])
    return int(end.value.code or 0)


def build_part(job: Path, output: Path, *options: str) -> int:
    with pytest.raises(SystemExit) as end:
        trace_build.main(["--input-dir", str(job), "--output-dir", str(output), "--jobs", "1", *options])
    return int(end.value.code or 0)


PARTS = {
    "one step": (["--steps", "4"], ["kernel 4a", "kernel 4b"]),
    "steps up to but without one": (["--steps", "3:5"], KERNELS[:4]),
    "all steps": (["--steps", "3:6"], KERNELS),
    "the first annotation of a name": (["--annotation", "forward"], ["kernel 3a"]),
    "another annotation of a name": (["--annotation", "forward:2"], ["kernel 5a"]),
    "another one in steps": (["--annotation", "forward:1", "--steps", "4:6"], ["kernel 5a"]),
    "from the first annotation to the last": (["--annotation", "forward:all"], KERNELS[:-1]),
    "a time": (["--window", "0:12"], ["kernel 3a"]),
    "a time in fractions of a µs": (["--window", "10.001:14.001"], ["kernel 3b"]),
    "a time from a step on": (["--window", "18:72"], KERNELS[2:]),
    "the annotation in a step": (["--annotation", "forward", "--steps", "4:6"], ["kernel 4a"]),
    "the annotation in a time": (["--annotation", "forward", "--window", "36:54"], ["kernel 5a"]),
    "a time in a step": (["--steps", "4", "--window", "30:50"], ["kernel 4b"]),
    "all of them": (["--steps", "4:6", "--window", "30:50", "--annotation", "forward"], ["kernel 5a"]),
}


@pytest.mark.parametrize("part", PARTS)
def test_trace_link_links_the_part_that_is_asked_for(job: Path, tmp_path: Path, part: str) -> None:
    options, kernels = PARTS[part]
    assert link_part(job, tmp_path / "part.json", "-q", *options) == 0
    activities = read_linked(str(tmp_path / "part.json")).activities
    assert [activities.name[row] for row in range(len(activities))] == kernels


@pytest.mark.parametrize("part", PARTS)
def test_trace_build_builds_that_part_of_every_rank(job: Path, tmp_path: Path, part: str) -> None:
    options, kernels = PARTS[part]
    assert build_part(job, tmp_path, "-q", *options) == 0
    for rank in range(RANKS):
        graph = ExecutionGraph.read(str(tmp_path / f"graph.{rank}.et"))
        assert [graph.name[row] for row in range(len(graph)) if graph.is_activity[row]] == kernels


def test_what_is_left_out_is_said(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert link_part(job, tmp_path / "part.json", "--steps", "4", "--json") == 0
    said = capsys.readouterr()
    report = json.loads(said.out)
    assert (report["activities"], report["dropped"]["activities outside the linked part"]) == (2, 4)
    assert "4 activities outside the linked part" in said.err


OUTSIDE = {
    "a time after the trace": (["--window", "1000:2000"], "nothing lies between 1000 and 2000 µs"),
    "a step before the trace": (["--steps", "2"], "no step 2 to link; the trace holds steps 3 to 5"),
    "steps that go on after the trace": (["--steps", "4:9"], "no step 6 to link; the trace holds steps 3 to 5"),
    "a name that nothing has": (
        ["--annotation", "backward"],
        "no annotation named 'backward' in that part of the trace: ",
    ),
    "a name outside the time": (["--annotation", "forward", "--window", "1:17"], "no annotation named 'forward'"),
}


@pytest.mark.parametrize("part", OUTSIDE)
def test_trace_link_refuses_a_part_that_is_not_there(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    options, complaint = OUTSIDE[part]
    assert link_part(job, tmp_path / "part.json", *options) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("trace-link: error: ") and "device_rank0.json" in line and complaint in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", OUTSIDE)
def test_trace_build_says_of_every_rank_that_a_part_is_not_there(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    options, complaint = OUTSIDE[part]
    assert build_part(job, tmp_path, *options) == 1
    failures = [line for line in capsys.readouterr().err.splitlines() if line.startswith("trace-build: error: ")]
    assert len(failures) == RANKS
    assert all(f"rank {rank}" in line and complaint in line for rank, line in enumerate(failures))
    assert not list(tmp_path.glob("*.et"))


WRONG_WINDOWS = [
    *(("--steps", text) for text in ("", "first", "4:", ":4", "4:4", "5:4", "-1", "1.5", "3:4:5", "3,4", "1" * 19)),
    *(
        ("--window", text)
        for text in ("", "5", "5:", ":5", "5:5", "6:5", "-5:5", "0:1:2", "0:later", "1.:2", "1e1:1e2")
    ),
]


@pytest.mark.parametrize(("option", "text"), WRONG_WINDOWS)
@pytest.mark.parametrize("run", [link_part, build_part], ids=["trace-link", "trace-build"])
def test_what_is_no_part_is_wrong_usage(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Callable[..., int], option: str, text: str
) -> None:
    assert run(job, tmp_path / "out", f"{option}={text}") == 2
    said = capsys.readouterr().err
    assert f"argument {option}: {text!r} is not " in said
    assert not (tmp_path / "out").exists()
