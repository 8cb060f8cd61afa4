"""Damaged files: what can be read is used, what cannot is counted and said, and nothing ends in a traceback.

A command is stopped at each change of a file in turn: the next run is as if it had never been. At every 40th one in a
run of all tests, at each with EXECGRAPH_ENDINGS.
"""

import gzip
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import execgraph
import pytest
from execgraph.converter.scaling import Growth
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.errors import DataError
from execgraph.schema.reasons import Reason
from execgraph.tools.analyses import Column, Table
from execgraph.tools.generate import build_job, simulate, write_traces
from execgraph.tools.job import BuildOptions, build, scale
from execgraph.tools.report import write_csv
from support.builder.timeline import TraceBuilder
from support.damages import DAMAGES, DEVICE, HOST, Damage, link_damaged, link_undamaged, sample
from support.generated import here

HARMLESS = {
    "a byte-order mark first", "Windows line ends", "numbers as texts", "an argument of 20 MB", "a bare list of events",
    "every event twice", "a category nobody knows", "an event in two rows, begin and end", "an event without a time",
    "an event without a duration", "a duration of 1e17 µs", "two nodes of one id", "negative ids",
    "parents in a circle", "inputs that are no lists", "a schema of the future", "no schema",
    "gzip under a name without .gz", "gzip in two members", "zstd under a name without .zst",
}  # fmt: skip
"""Odd, but valid JSON from its beginning to its end."""

each_damage = pytest.mark.parametrize("damage", [pytest.param(d, id=f"{Path(d.file).stem}-{d.what}") for d in DAMAGES])


@each_damage
def test_what_can_be_read_is_used_a_refusal_is_one_line_and_what_is_said_is_in_the_file(damage: Damage) -> None:
    found, all_ops = link_damaged(damage), link_undamaged().matched
    assert (found.exit, found.matched == all_ops, found.matched > 0) in {
        "all": [(0, True, True)],
        "some": [(0, False, True)],
        "none": [(1, False, False), (0, False, True)],
    }[damage.used]
    assert (not found.report) == (found.exit != 0)
    assert not any("Traceback" in line or "internal error" in line for line in found.lines)
    if found.exit:
        [line] = found.lines
        assert line.startswith((f"trace-link: error: {damage.file}: ", f"trace-link: error: {damage.file} is "))
        return
    counts = [(word, found.report.get(word, {})) for word in ("oddities", "dropped")]
    said = [f"{word} {count} {what}" for word, told in counts for what, count in told.items()]
    said += [f"note {note}" for note in found.report.get("notes", [])]
    # rows outside the linked part are dropped in the report, and by themselves on the screen
    lines = [re.sub("^left out", "dropped", line) for line in found.lines]
    assert sorted(line for line in lines if line.split()[0] in ("oddities", "dropped", "note")) == sorted(said)


@pytest.mark.parametrize("damage", DAMAGES[::3], ids=lambda damage: damage.what)
def test_strict_refuses_damage_and_nothing_else(damage: Damage) -> None:
    found = link_damaged(damage, "--strict")
    assert len(found.lines) == 1 or not found.exit
    assert (found.exit == 0) == (damage.what in HARMLESS)


def test_there_are_many_kinds_of_damage() -> None:
    assert len({(damage.file, damage.what) for damage in DAMAGES}) == len(DAMAGES) >= 40


# Where a file ends


@pytest.mark.parametrize("part", range(1, 20, 3))
def test_of_a_cut_trace_every_whole_row_is_read(tmp_path: Path, part: int) -> None:
    cuts = [text[: len(text) * part // 20] for text in map(sample, (DEVICE, HOST))]
    for name, cut in zip((DEVICE, HOST), cuts, strict=True):
        (tmp_path / name).write_bytes(cut)
    device, begun = read_device_trace(str(tmp_path / DEVICE)), cuts[0].count(b'\n    "ph"')
    events = begun - (not cuts[0].rstrip(b", \n").endswith(b"\n  }"))
    whole = json.loads(sample(DEVICE))["traceEvents"][:events]
    assert (device.read, device.skipped[Reason.CUT_OFF_ROWS.of("device events")]) == (events, begun - events)
    assert len(device.ops.start) == sum(event.get("cat") in ("cpu_op", "user_annotation") for event in whole)
    host = read_host_trace(str(tmp_path / HOST))
    nodes = json.loads(sample(HOST))["nodes"][: cuts[1].count(b"\n      }")]
    assert host.id.tolist() == [node["id"] for node in nodes]
    assert any("is cut off" in note for note in host.notes)


def test_of_a_cut_gzip_file_everything_that_decompresses_is_read(tmp_path: Path) -> None:
    packed = gzip.compress(sample(HOST))
    sizes = []
    for size in range(1000, len(packed), 1500):
        (tmp_path / HOST).write_bytes(packed[:size])
        sizes.append(len(read_host_trace(str(tmp_path / HOST))))
    assert sizes == sorted(sizes) and len(set(sizes)) > 5


def test_a_host_trace_that_ends_within_a_step_is_not_held_against_whole_steps(tmp_path: Path, data: Path) -> None:
    host, device = (data / "gpu/small" / f"{of}_rank0.json.gz" for of in ("host", "device"))
    text = gzip.decompress(host.read_bytes())
    (tmp_path / "host_rank0.json").write_bytes(text[: len(text) // 3])
    shutil.copy(device, tmp_path)
    steps = [
        link(str(path), str(device)).info.step_without_profiler_ns for path in (host, tmp_path / "host_rank0.json")
    ]
    assert steps[0] > 0 and steps[1] == -1
    assert "cannot be told: host nodes cut off by the end of the file (1)" in execgraph.report(tmp_path).verdict


# Names that profilers do not escape

NAMES = [
    'say "hi"', 'a"b"c"', '"', '""', 'quote and comma", x', 'brace "} here', "tab\tline\nbreak", "C:\\data",
    "back\\slash", "ends in \\", '{"step": 3}', 'f("a", ["b", "c"])', "é漢字", "\x01\x1f",
]  # fmt: skip


@pytest.mark.parametrize("torch", ["2.1", "2.13"])
@pytest.mark.parametrize("name", NAMES)
def test_ops_of_any_name_are_matched(tmp_path: Path, name: str, torch: str) -> None:
    t = TraceBuilder(torch=torch)
    for op in ("aten::mm", "MARK", "aten::add"):
        with t.op(op):
            t.work(2)
            t.launch("kernel")
    host, device = t.write(tmp_path)
    host.write_bytes(host.read_bytes().replace(b"MARK", name.encode()))
    device.write_bytes(device.read_bytes().replace(b"MARK", name.replace("\\", "/").encode()))
    linked = link(read_host_trace(str(host)), read_device_trace(str(device)))
    assert linked.report.matched == linked.report.host_ops == 3


@pytest.mark.parametrize("weird", ["quote", "newline", "nonascii", "types"])
def test_real_names_that_break_json(real_traces: Path, weird: str) -> None:
    folder = real_traces / "captures" / "weird_names"
    host, device = (read(str(folder / f"{side}_{weird}.json.gz")) for read, side in READERS)
    report = link(host, device).report  # type: ignore[arg-type]
    assert report.matched == report.host_ops and not host.skipped and not device.skipped


READERS = ((read_host_trace, "et"), (read_device_trace, "kineto"))


def test_a_real_unfinished_trace(real_traces: Path) -> None:
    folder = real_traces / "captures" / "unfinished"
    device = read_device_trace(str(folder / "kineto.json.gz"))
    report = link(read_host_trace(str(folder / "et.json.gz")), device).report
    assert (report.matched, report.host_ops, report.device_ops) == (16, 16, 18)
    assert device.oddities[Reason.STILL_RUNNING] == 2


# Limits


@pytest.mark.parametrize("filling", [b" ", b"x", b"[", b'{"a":', b"{},", b'"', b"\\", b"\0", b'{"ph":"X"},{"ph":'])
def test_a_large_file_of_one_thing_is_refused_soon(tmp_path, monkeypatch, filling):
    monkeypatch.setattr("execgraph.schema.json_repair.MOST_LOST", 10_000)
    path = tmp_path / "device.json"
    path.write_bytes(b'{"traceEvents": [' + filling * ((1 << 18) // len(filling)))
    with pytest.raises(DataError) as refused:
        read_device_trace(str(path))
    assert len(str(refused.value)) < 1000


CHANGES = {"os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.truncate"}
APART = 1 if "EXECGRAPH_ENDINGS" in os.environ else 40
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Steps:
    """Counts changes of the file system, and stops the one with the number `stop`."""

    stop = count = 0

    @classmethod
    def seen(cls, event: str, arguments: tuple[object, ...]) -> None:
        is_writing = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & WRITING)
        if cls.stop and (event in CHANGES or is_writing):
            cls.count += 1
            if cls.count == cls.stop:
                raise KeyboardInterrupt


sys.addaudithook(Steps.seen)


@contextmanager
def stopped_at(step: int) -> Iterator[None]:
    Steps.stop, Steps.count = step, 0
    try:
        yield
    finally:
        Steps.stop = 0


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def stop_at_every_step(work: Callable[[Path], object], folder: Path, before: Callable[[Path], object]) -> None:
    """The next run gives what an undisturbed one gives, wherever the first was stopped."""
    undisturbed = folder / "undisturbed"
    before(undisturbed)
    work(undisturbed)
    for step in range(1, 1000, APART):
        out = folder / str(step)
        before(out)
        try:
            with stopped_at(step):
                work(out)
        except KeyboardInterrupt:
            work(out)
            assert files(out) == files(undisturbed), f"stopped at step {step}"
            assert not list(out.rglob(".*"))
            shutil.rmtree(out)
        else:
            assert step > 10
            return


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of a job, each of which would by itself give its groups other numbers."""
    folder = tmp_path_factory.mktemp("traces")
    for pair in write_traces(simulate(build_job("moe_dp", steps=1, layers=1, seed=3)), folder / "job")[1:3]:
        for path in map(Path, pair):
            path.rename(folder / path.name)
    shutil.rmtree(folder / "job")
    return folder


def nothing(_: Path) -> None:
    pass


def test_a_first_build(traces: Path, tmp_path: Path) -> None:
    options = BuildOptions(target="goal")
    stop_at_every_step(lambda out: build(traces, out, options, here), tmp_path, nothing)


def test_a_build_over_that_of_another_job(traces: Path, jobs: Callable[[int], Path], tmp_path: Path) -> None:
    build(jobs(3), tmp_path / "other", BuildOptions(), here)

    def before(out: Path) -> None:
        shutil.copytree(tmp_path / "other", out)

    options = BuildOptions(target="astra-sim")
    stop_at_every_step(lambda out: build(traces, out, options, here), tmp_path, before)


def test_a_build_of_the_rank_that_is_new(traces: Path, tmp_path: Path) -> None:
    build([traces / "device_rank1.json", traces / "host_rank1.json"], tmp_path / "one", BuildOptions(), here)

    def before(out: Path) -> None:
        shutil.copytree(tmp_path / "one", out)

    stop_at_every_step(lambda out: build(traces, out, BuildOptions(), here), tmp_path, before)


def test_scaling_a_job(jobs: Callable[[int], Path], tmp_path: Path) -> None:
    build(jobs(2), tmp_path / "graphs", BuildOptions(), here)

    def scaled(out: Path) -> None:
        if not (out / "scaled").exists():
            scale(tmp_path / "graphs", out / "scaled", Growth(2), here)

    stop_at_every_step(scaled, tmp_path / "work", nothing)


def test_tables_of_a_report(tmp_path: Path) -> None:
    tables = [Table(name, "", [Column("a", "", ["b"])]) for name in ("one", "two", "three")]

    def written(out: Path) -> None:
        write_csv(tables, out)

    def is_none(out: Path) -> bool:
        return not list(out.glob("*.csv"))

    stop_at_every_step(written, tmp_path / "work", nothing)
    for step in range(1, 10):
        out = tmp_path / str(step)
        with pytest.raises(KeyboardInterrupt), stopped_at(step):
            written(out)
        assert is_none(out)
