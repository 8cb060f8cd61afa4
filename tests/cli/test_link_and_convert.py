"""trace-link and trace-convert from a shell: what they print, where they write, and that they fail in one line.

How much a compressed file may be when it is decompressed: as --max-size says, in every process of a command. --steps,
--annotation and --window of trace-link and trace-build: the part that is made, and what is refused. What is said of
traces without synchronisation records: where, and how far off answers are without them.
"""

import argparse
import gc
import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from execgraph.linker.link import link, read_linked
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.errors import DataError
from execgraph.schema.graph import ExecutionGraph
from execgraph.schema.io import GZIP_MAGIC, bytes_of, decompressing_at_most, open_output
from execgraph.schema.io.files import ZSTD_MAGIC
from execgraph.schema.linked import LinkedTrace, write_linked
from execgraph.tools.command import run_command
from execgraph.tools.commands.trace_link import summary
from execgraph.tools.sync_records_advice import lacks_sync_records
from support.builder.timeline import TraceBuilder
from support.commands import Run, status_of
from support.folders import ROOT
from support.runs import small_run
from support.tasks import content

COMMANDS = pytest.mark.parametrize("command", ["trace-link", "trace-convert"])
Files = dict[str, Path]


def shell(command: str, *arguments: object) -> list[str]:
    """The command as a process of its own."""
    start = f"from execgraph.tools.commands.{command.replace('-', '_')} import main; main()"
    return [sys.executable, "-c", start, *map(str, arguments)]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A pair, its linked trace, and things that are none of these."""
    folder = tmp_path / "given"
    folder.mkdir()
    host, device = small_run().write(folder)
    linked = folder / "linked.json"
    assert status_of("trace-link", "-q", "--host-trace", host, "--device-trace", device, "--output", linked) == 0
    (folder / "other.json").write_text(json.dumps(small_run(("a", "b", "c")).host_trace()))
    (folder / "cut.json").write_bytes(device.read_bytes()[:300])
    found = {path.stem: path for path in folder.iterdir()}
    return found | {"missing": folder / "missing.json", "out": tmp_path / "out"}


@pytest.fixture
def out(files: Files) -> Path:
    """An empty folder for outputs."""
    files["out"].mkdir()
    return files["out"]


def arguments_of(command: str, files: Files, output: object, *given: str) -> list[object]:
    """What a command reads and writes: the files of these names, else those that are right."""
    if command == "trace-convert":
        return ["--input", files[given[0] if given else "linked"], "--output", output]
    host, device = given or ("host", "device")
    return ["--host-trace", files[host], "--device-trace", files[device], "--output", output]


# What comes out


def test_a_summary_for_people_goes_to_stderr(files: Files, out: Path, run: Run) -> None:
    linked = run("trace-link", *arguments_of("trace-link", files, out / "l.json"))
    converted = run("trace-convert", "--input", out / "l.json", "--output", out / "g.et")
    assert (linked.code, linked.out) == (converted.code, converted.out) == (0, "")
    assert "2 of 2 host ops matched by record function id, agreement 100 %" in linked.err
    assert "2 of 2 linked to a launch call" in linked.err
    assert "2 activities" in converted.err and "2 launch" in converted.err
    assert sorted(path.name for path in out.iterdir()) == ["g.et", "l.json"]


def test_json_is_the_summary_as_one_object(files: Files, out: Path, run: Run) -> None:
    report = json.loads(run("trace-link", "-q", "--json", *arguments_of("trace-link", files, out / "l.json")).out)
    assert (report["matched"], report["linked"], report["matched_by"]) == (2, 2, "record function id")
    converted = run("trace-convert", "-q", "--json", "--input", out / "l.json", "--output", out / "g.et")
    assert json.loads(converted.out)["edges"]["launch"] == 2


@COMMANDS
def test_quiet_says_nothing(files: Files, out: Path, run: Run, command: str) -> None:
    assert run(command, "-q", *arguments_of(command, files, out / "made")) == (0, "", "")


def test_remarks_on_a_foreign_file_are_said(files: Files, out: Path, run: Run) -> None:
    document = json.loads(files["linked"].read_text())
    kept = {key: document[key] for key in ("schema", "pid", "nodes")}
    files["linked"].write_text(json.dumps(kept))
    ended = run("trace-convert", "--input", files["linked"], "--output", out / "g.et")
    assert ended.code == 0 and "no calls in the linked trace" in ended.err


# Through a pipe


def test_a_pipe_gives_the_same_graph_as_files(files: Files, out: Path) -> None:
    assert status_of("trace-convert", "--input", files["linked"], "--output", out / "by_file.et") == 0
    linking = shell("trace-link", "-q", *arguments_of("trace-link", files, "-"))
    first = subprocess.Popen(linking, stdout=subprocess.PIPE)
    second = shell("trace-convert", "-q", "--input", "-", "--output", "-")
    result = subprocess.run(second, stdin=first.stdout, capture_output=True, check=True)
    assert first.wait() == 0
    assert result.stdout == (out / "by_file.et").read_bytes()
    assert result.stderr == b""


def test_a_reader_that_leaves_is_no_traceback(files: Files) -> None:
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
    "a missing host trace": ("trace-link", "missing", "device", "cannot be read"),
    "a missing device trace": ("trace-link", "host", "missing", "cannot be read"),
    "an unfinished device trace": ("trace-link", "host", "cut", "is cut off after byte"),
    "two runs": ("trace-link", "other", "device", "are not of one run"),
    "a missing linked trace": ("trace-convert", "missing", "cannot be read"),
}  # fmt: skip
"""Inputs by command, and what is said of them; tests/cli/test_wrong_kinds.py has every kind of file."""


def one_line(command: str, error: str) -> str:
    assert error.startswith(f"{command}: error: ") and error.count("\n") == 1 and "Traceback" not in error
    return error


@pytest.mark.parametrize("case", WRONG)
def test_wrong_inputs_are_refused_and_the_old_output_stays(files: Files, out: Path, run: Run, case: str) -> None:
    command, *given, complaint = WRONG[case]
    old = out / "old"
    old.write_text("precious")
    for output in (old, out / "new"):
        ended = run(command, *arguments_of(command, files, output, *given))
        assert ended.code == 1 and complaint in one_line(command, ended.err)
    assert [path.name for path in out.iterdir()] == ["old"]
    assert old.read_text() == "precious"


OUTPUTS = {"a missing folder": "{}/nowhere/x", "a folder": "{}", "a full device": "/dev/full"}


@COMMANDS
@pytest.mark.parametrize("case", OUTPUTS)
def test_outputs_that_cannot_be_written(files: Files, out: Path, run: Run, command: str, case: str) -> None:
    ended = run(command, *arguments_of(command, files, OUTPUTS[case].format(out)))
    assert ended.code == 1 and "cannot be written" in one_line(command, ended.err)
    assert list(out.iterdir()) == []
    assert Path("/dev/full").is_char_device()


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


def test_a_link_to_an_output_is_followed_and_what_is_no_regular_file_written_directly(files: Files, out: Path) -> None:
    (out / "link.et").symlink_to(out / "real.et")
    for output in (out / "link.et", "/dev/null"):
        assert status_of("trace-convert", "-q", "--input", files["linked"], "--output", output) == 0
    assert (out / "link.et").is_symlink() and (out / "real.et").stat().st_size > 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    "line",
    [
        "trace-link", "trace-link --device-trace d", "trace-link --device-trace d --output o --rank first",
        "trace-link --device-trace d --output o -v -q", "trace-link --dev d --output o",
        "trace-link --max-size much", "trace-convert --input l --output - --json",
        "trace-convert --input l --output g --promote some",
        "trace-convert --input l --output g --shortest-slice -1",
    ],
)  # fmt: skip
def test_wrong_usage_ends_with_2(line: str, run: Run) -> None:
    ended = run(*line.split())
    assert ended.code == 2 and "error" in ended.err


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


def test_a_command_takes_the_limit_and_leaves_none_behind(file: str, tmp_path: Path, run: Run) -> None:
    before = dict(os.environ)
    ended = run("trace-jsonize", "--input", file, "--output", tmp_path / "graph.json", "--max-size", "52K")
    assert (ended.code, dict(os.environ)) == (1, before)
    assert "decompresses to more than 0.1 MB, the limit for a file of its size; if you trust it" in ended.err


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


def link_part(job: Path, output: Path) -> list[object]:
    host, device = job / "host_rank0.json", job / "device_rank0.json"
    return ["trace-link", "--host-trace", host, "--device-trace", device, "--output", output]


def build_part(job: Path, output: Path) -> list[object]:
    return ["trace-build", "--input-dir", job, "--output-dir", output, "--jobs", "1"]


PARTS = {
    "one step": (["--steps", "4"], ["kernel 4a", "kernel 4b"]),
    "steps up to but without one": (["--steps", "3:5"], KERNELS[:4]), "all steps": (["--steps", "3:6"], KERNELS),
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
}  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_the_part_that_is_asked_for_is_linked_and_built_of_every_rank(job: Path, tmp_path: Path, part: str) -> None:
    options, kernels = PARTS[part]
    assert status_of(*link_part(job, tmp_path / "part.json"), "-q", *options) == 0
    activities = read_linked(str(tmp_path / "part.json")).activities
    assert [activities.name[row] for row in range(len(activities))] == kernels
    if part not in ("one step", "the annotation in a time", "all of them"):
        return
    assert status_of(*build_part(job, tmp_path / "graphs"), "-q", *options) == 0
    for rank in range(RANKS):
        graph = ExecutionGraph.read(str(tmp_path / "graphs" / f"graph.{rank}.et"))
        assert [graph.name[row] for row in range(len(graph)) if graph.is_activity[row]] == kernels


def test_what_is_left_out_is_said(job: Path, tmp_path: Path, run: Run) -> None:
    said = run(*link_part(job, tmp_path / "part.json"), "--steps", "4", "--json")
    report = json.loads(said.out)
    assert (report["activities"], report["dropped"]["activities outside the linked part"]) == (2, 4)
    assert said.code == 0 and "4 activities outside the linked part" in said.err


OUTSIDE = {
    "a time after the trace": (["--window", "1000:2000"], "nothing lies between 1000 and 2000 µs"),
    "a step before the trace": (["--steps", "2"], "no step 2 to link; the trace holds steps 3 to 5"),
    "steps that go on after the trace": (["--steps", "4:9"], "no step 6 to link; the trace holds steps 3 to 5"),
    "a name that nothing has": (["--annotation", "backward"], "no annotation named 'backward' in that part of the trace: "),
    "a name outside the time": (["--annotation", "forward", "--window", "1:17"], "no annotation named 'forward'"),
}  # fmt: skip


@pytest.mark.parametrize("part", OUTSIDE)
def test_a_part_that_is_not_there_is_refused_of_every_rank_by_name(job, tmp_path, run, part):
    options, complaint = OUTSIDE[part]
    ended = run(*link_part(job, tmp_path / "part.json"), *options)
    assert ended.code == 2 and ended.line.startswith("trace-link: error: ")
    assert "device_rank0.json" in ended.line and complaint in ended.line
    assert list(tmp_path.iterdir()) == []
    ended = run(*build_part(job, tmp_path), *options)
    failures = [line for line in ended.err.splitlines() if line.startswith("trace-build: error: ")]
    assert (ended.code, len(failures)) == (1, RANKS)
    assert all(f"rank {rank}" in line and complaint in line for rank, line in enumerate(failures))
    assert not list(tmp_path.glob("*.et"))


@pytest.mark.parametrize("part", [link_part, build_part], ids=["trace-link", "trace-build"])
@pytest.mark.parametrize(
    ("option", "texts"),
    [
        ("--steps", ["", "first", "4:", ":4", "4:4", "5:4", "-1", "1.5", "3:4:5", "3,4", "1" * 19]),
        ("--window", ["", "5", "5:", ":5", "5:5", "6:5", "-5:5", "0:1:2", "0:later", "1.:2", "1e1:1e2"]),
    ],
)
def test_what_is_no_part_is_wrong_usage(job, tmp_path, run, part, option, texts):
    for text in texts:
        ended = run(*part(job, tmp_path / "out"), f"{option}={text}")
        assert ended.code == 2 and f"argument {option}: {text!r} is not " in ended.err
    assert not (tmp_path / "out").exists()


NOTE = "note        no synchronisation records: which event each wait was for is inferred; execgraph.diagnose says how to record it"


def played(folder: Path, *, sync_records: bool, waits: bool = True) -> LinkedTrace:
    t = TraceBuilder(sync_records=sync_records)
    with t.op("aten::mm"):
        t.launch("gemm", duration=50)
    if waits:
        t.stream_synchronize(7)
    t.device_synchronize()
    host, device = t.write(folder)
    return link(read_host_trace(str(host)), read_device_trace(str(device)))


@pytest.mark.parametrize(
    ("options", "count"),
    [({"sync_records": False}, 1), ({"sync_records": True}, 0), ({"sync_records": False, "waits": False}, 0)],
    ids=["waits that no record names", "records", "nothing to infer"],
)
def test_trace_link_notes_waits_that_no_record_names(tmp_path: Path, options: dict[str, bool], count: int) -> None:
    lines = summary(played(tmp_path, **options)).splitlines()
    assert lines.count(NOTE) == sum("synchronisation records" in line for line in lines) == count


def test_trace_build_notes_them_once_for_all_ranks_and_no_strict_build_fails(tmp_path: Path, run: Run) -> None:
    for rank in range(2):
        t = TraceBuilder(rank=rank, world_size=2, pid=1000 + rank, sync_records=False)
        with t.op("aten::mm"):
            t.launch("gemm", duration=50)
        t.stream_synchronize(7)
        t.write(tmp_path)
    ended = run(*build_part(tmp_path, tmp_path / "graphs"), "--strict")
    assert ended.code == 0
    assert ended.err.count("trace-build: note: ranks 0, 1: no synchronisation records") == 1


def test_a_linked_file_tells_as_much_as_its_traces(tmp_path: Path) -> None:
    linked = played(tmp_path, sync_records=False)
    write_linked(linked, str(tmp_path / "linked.json"))
    assert lacks_sync_records(read_linked(str(tmp_path / "linked.json"))) and lacks_sync_records(linked)


def test_pages_name_the_worst_of_the_table_of_changed_runs() -> None:
    pages = (ROOT / "docs" / f"accuracy{of}.md" for of in ("", "-simulated"))
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith(("| named | ", "| random | "))]
    known = {recorded for _, recorded, *_ in rows}
    worst = {recorded: max(float(row[5]) for row in rows if row[1] == recorded) for recorded in known}
    summary = "".join(line for line in lines if "#changed-runs) |" in line)
    assert f"{max(worst.values()):.0f} %" in summary
    assert all(f"{worst['all']:.1f} %" in text for text in (summary, (ROOT / "README.md").read_text("utf-8")))
