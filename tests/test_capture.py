"""Capturing leaves one pair per rank, of exactly the same ops, or says why it did not."""

import gzip
import json
import shutil
import sys
import threading
from pathlib import Path

import pytest
from execgraph.linker import link, read_device_trace, read_host_trace
from execgraph.schema.errors import DataError
from execgraph.tools.capture import capture, experimental_config, trace_handler


@pytest.fixture
def torch():
    return pytest.importorskip("torch", minversion="2.4", reason="host and device ops have no common id before 2.4")


def train(torch, folder: Path, steps: int, work=None, **window) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    with capture(folder, **window) as recorder:
        for _ in range(steps):
            model(torch.randn(4, 8)).sum().backward()
            if work:
                work()
            recorder.step()


def written(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.json.gz"))


def linked(folder: Path, rank: int = 0):
    """What linking says of a pair, of which every host op must be found."""
    host, device = (str(folder / f"{trace}_rank{rank}.json.gz") for trace in ("host", "device"))
    report = link(read_host_trace(host), read_device_trace(device)).report
    assert report.host_ops == report.matched > 0
    assert report.matched_by == "record function id"
    return report


def load(path: Path) -> dict:
    return json.loads(gzip.decompress(path.read_bytes()))


def host_ops(folder: Path) -> dict[int, str]:
    """Names by record function id."""
    ops = {}
    for node in load(folder / "host_rank0.json.gz")["nodes"]:
        rf_id = next(attribute["value"] for attribute in node["attrs"] if attribute["name"] == "rf_id")
        if rf_id and node["name"] != "## process_group:init ##":
            ops[rf_id] = node["name"]
    return ops


def device_ops(folder: Path) -> dict[int, str]:
    rows = load(folder / "device_rank0.json.gz")["traceEvents"]
    return {
        row["args"]["Record function id"]: row["name"]
        for row in rows
        if row.get("cat") in ("cpu_op", "user_annotation") and row["args"].get("finished", True)
    }


def test_both_traces_hold_the_same_ops(torch, tmp_path):
    train(torch, tmp_path, steps=5)
    assert host_ops(tmp_path) == device_ops(tmp_path)
    steps = sorted(name for name in host_ops(tmp_path).values() if name.startswith("ProfilerStep"))
    assert steps == ["ProfilerStep#2", "ProfilerStep#3"]


def test_ops_of_other_threads_are_in_both(torch, tmp_path):
    def work():
        thread = threading.Thread(target=lambda: torch.ones(3).cumsum(0))
        thread.start()
        thread.join()

    train(torch, tmp_path, steps=4, work=work)
    assert host_ops(tmp_path) == device_ops(tmp_path)
    assert "aten::cumsum" in host_ops(tmp_path).values()


def test_a_loop_that_ends_early_leaves_what_was_recorded(torch, tmp_path):
    train(torch, tmp_path, steps=2, wait=0, warmup=1, active=10)
    assert "aten::addmm" in host_ops(tmp_path).values()
    assert host_ops(tmp_path) == device_ops(tmp_path)


def test_a_block_without_steps_is_recorded_whole(torch, tmp_path):
    with capture(tmp_path, wait=0, warmup=0):
        torch.ones(3).cumsum(0)
    assert "aten::cumsum" in device_ops(tmp_path).values()


def test_a_failing_loop_keeps_its_own_error_and_its_traces(torch, tmp_path):
    with pytest.raises(ZeroDivisionError), capture(tmp_path, wait=0, warmup=0):
        torch.ones(3).cumsum(0)
        _ = 1 / 0
    assert "aten::cumsum" in device_ops(tmp_path).values()


PAIR = ["device_rank3.json.gz", "host_rank3.json.gz"]


def test_files_are_named_by_the_launchers_rank(torch, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    train(torch, tmp_path, steps=4)
    assert written(tmp_path) == PAIR


def test_a_name_can_be_given(torch, tmp_path):
    train(torch, tmp_path, steps=4, name="warm/r{rank}.{trace}")
    assert written(tmp_path) == ["warm/r0.device.json.gz", "warm/r0.host.json.gz"]


@pytest.mark.parametrize("name", ["{trace}", "rank{rank}", "{trace}_{rank}_{epoch}", "{trace"])
def test_a_name_that_two_traces_would_share_is_refused(torch, tmp_path, name):
    with pytest.raises(ValueError, match=r"name: .* needs \{trace\} and \{rank\}"), capture(tmp_path, name=name):
        pass


@pytest.mark.parametrize("ranks, files", [({0, 3}, PAIR), (range(3), []), (None, PAIR)])
def test_only_the_ranks_that_were_asked_for_record(torch, tmp_path, monkeypatch, ranks, files):
    monkeypatch.setenv("RANK", "3")
    train(torch, tmp_path, steps=4, ranks=ranks)
    assert written(tmp_path) == files


def test_paths_and_the_next_command_are_said_once(torch, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "my traces"
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        train(torch, folder, steps=4)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("execgraph: ")]
    assert said == [
        f"execgraph: rank 0 recorded {folder}/host_rank0.json.gz and {folder}/device_rank0.json.gz",
        f"execgraph: next: trace-build --input-dir '{folder}' --output-dir graphs",
        f"execgraph: rank 1 recorded {folder}/host_rank1.json.gz and {folder}/device_rank1.json.gz",
    ]


@pytest.mark.parametrize(
    "wish, category, name",
    [
        ("stacks", "python_function", "test_capture.py"),
        ("modules", "python_function", "nn.Module: Linear_0"),
        ("memory", "cpu_instant_event", "[memory]"),
    ],
)
def test_what_is_asked_for_is_in_the_device_trace_alone(torch, tmp_path, wish, category, name):
    train(torch, tmp_path / "plain", steps=4)
    train(torch, tmp_path / "more", steps=4, **{wish: True})
    plain, more = (load(tmp_path / folder / "device_rank0.json.gz")["traceEvents"] for folder in ("plain", "more"))
    assert category not in {row.get("cat") for row in plain}
    assert any(name in row["name"] for row in more if row.get("cat") == category)
    linked(tmp_path / "more")


def test_a_compiled_model_links(torch, tmp_path):
    if not shutil.which("g++"):
        pytest.skip("compiling needs g++")
    compiled = torch.compile(lambda x: torch.relu(x) + 1)
    with capture(tmp_path) as recorder:
        for _ in range(4):
            compiled(torch.randn(4, 8))
            recorder.step()
    linked(tmp_path)
    assert any("Compiled" in name for name in host_ops(tmp_path).values())


def test_a_loop_too_short_to_record_says_so(torch, tmp_path):
    with pytest.raises(DataError, match="ended after 1 steps and recording begins after 2"):
        train(torch, tmp_path, steps=1)


def test_a_loop_that_never_ends_a_step_is_told_which_call_does(torch, tmp_path):
    with pytest.raises(DataError, match=r"recorder\.step\(\) was never called"), capture(tmp_path):
        torch.ones(3).cumsum(0)


@pytest.mark.parametrize("window", [{"wait": -1}, {"warmup": -1}, {"active": 0}])
def test_steps_that_cannot_be_are_refused(torch, tmp_path, window):
    with pytest.raises(ValueError, match="no such steps"), capture(tmp_path, **window):
        pass


def test_missing_torch_is_named_with_its_remedy(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="pip install torch"), capture(tmp_path):
        pass


def test_a_second_observer_in_the_process_is_named(torch, tmp_path):
    other = torch.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "other.json"))
    try:
        with pytest.raises(DataError, match="another ExecutionTraceObserver"):
            train(torch, tmp_path, steps=4)
    finally:
        other.unregister_callback()


def profiled(torch, handler, steps: int, **more) -> None:
    """A loop with a profiler of its own."""
    with torch.profiler.profile(on_trace_ready=handler, execution_trace_observer=handler, **more) as profiler:
        for _ in range(steps):
            torch.nn.Linear(8, 8)(torch.randn(4, 8)).sum().backward()
            profiler.step()


def test_a_handler_leaves_a_pair_of_every_window(torch, tmp_path):
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=2)
    config = experimental_config()
    profiled(torch, trace_handler(tmp_path), steps=8, schedule=schedule, record_shapes=True, experimental_config=config)
    assert written(tmp_path) == [
        f"window{window}/{trace}_rank0.json.gz" for window in (1, 2) for trace in ("device", "host")
    ]
    for window, steps in ((1, {"ProfilerStep#1", "ProfilerStep#2"}), (2, {"ProfilerStep#4", "ProfilerStep#5"})):
        folder = tmp_path / f"window{window}"
        assert {name for name in device_ops(folder).values() if "ProfilerStep" in name} == steps
        linked(folder)


def test_a_handler_keeps_a_profiler_without_schedule(torch, tmp_path):
    profiled(torch, trace_handler(tmp_path, name="{trace}_rank{rank}"), steps=2)
    linked(tmp_path)


def test_a_handler_leaves_the_ranks_alone_that_were_not_asked_for(torch, tmp_path):
    profiled(torch, trace_handler(tmp_path, ranks=[1]), steps=2)
    assert written(tmp_path) == []


def test_a_handler_that_observes_nothing_says_where_else_it_goes(torch, tmp_path):
    handler = trace_handler(tmp_path)
    with (
        pytest.raises(DataError, match="execution_trace_observer"),
        torch.profiler.profile(on_trace_ready=handler) as profiler,
    ):
        profiler.step()


def test_an_observer_without_handler_leaves_nothing(torch, tmp_path):
    handler = trace_handler(tmp_path)
    with torch.profiler.profile(execution_trace_observer=handler):
        torch.ones(3).cumsum(0)
    assert written(tmp_path) == []
    train(torch, tmp_path, steps=4)  # nor does it stand in the way of the next
    linked(tmp_path)
