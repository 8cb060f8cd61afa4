"""Capturing leaves one pair per rank, of exactly the same ops, or says why it did not."""

import gzip
import json
import sys
import threading
from pathlib import Path

import pytest
from execgraph.schema.errors import DataError
from execgraph.tools.capture import capture


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


def test_files_are_named_by_the_launchers_rank(torch, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    train(torch, tmp_path, steps=4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["device_rank3.json.gz", "host_rank3.json.gz"]


def test_a_loop_too_short_to_record_says_so(torch, tmp_path):
    with pytest.raises(DataError, match="ended after 1 steps and recording begins after 2"):
        train(torch, tmp_path, steps=1)


def test_missing_torch_is_named_with_its_remedy(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="pip install torch"), capture(tmp_path):
        pass
