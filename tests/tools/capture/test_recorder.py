"""A block leaves one pair of traces of exactly the same ops and of whole steps, or warns why it did not."""

import shutil
import threading

import pytest
from execgraph import capture
from support.capturing import device_ops, host_ops, linked, load, said_by, train, written


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


def test_a_block_may_be_one_step(torch, tmp_path):
    with capture(tmp_path, wait=0, warmup=0, active=1) as recorder:
        torch.ones(3).cumsum(0)
        recorder.step()
    assert {"aten::cumsum", "ProfilerStep#0"} <= set(device_ops(tmp_path).values())


@pytest.mark.parametrize(
    "wish, category, name",
    [
        ("stacks", "python_function", "test_recorder.py"),
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
    with capture(tmp_path, wait=1) as recorder:
        for _ in range(4):
            compiled(torch.randn(4, 8))
            recorder.step()
    linked(tmp_path)
    assert any("Compiled" in name for name in host_ops(tmp_path).values())


@pytest.mark.parametrize(
    ("steps", "window", "reason", "files"),
    [
        (0, {}, r"recorder\.step\(\) was never called", []),
        (1, {}, "the block ended after 1 step and recording begins after 2", []),
        (
            2,
            {},
            "the block ended after 2 steps and recording begins after 2",
            ["device_rank0.json.gz", "host_rank0.json.gz"],
        ),
        (
            0,
            {"wait": 0, "warmup": 0},
            r"recorder\.step\(\) was never called",
            ["device_rank0.json.gz", "host_rank0.json.gz"],
        ),
    ],
)
def test_a_block_without_a_complete_step_is_warned_of(torch, tmp_path, steps, window, reason, files):
    with pytest.warns(UserWarning, match=f"execgraph: no complete step was recorded: {reason}"):
        train(torch, tmp_path, steps, **window)
    assert written(tmp_path) == files


def test_a_rank_that_was_not_asked_for_is_not_warned_of(torch, tmp_path, recwarn):
    train(torch, tmp_path, steps=0, ranks=[1])
    assert said_by(recwarn) == []


@pytest.mark.parametrize("window", [{"wait": -1}, {"warmup": -1}, {"active": 0}])
def test_steps_that_cannot_be_are_refused(torch, tmp_path, window):
    with pytest.raises(ValueError, match="active is 1 or more"), capture(tmp_path, **window):
        pass
