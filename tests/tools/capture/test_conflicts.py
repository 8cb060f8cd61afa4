"""Beside another profiler, observer or capture a block is refused, or records nothing, and leaves them alone."""

import json
import threading
from pathlib import Path

import pytest
from execgraph import capture
from support.capturing import linked, other_observer, train, written


def refused(torch, folder: Path, what: str) -> None:
    with pytest.raises(RuntimeError, match=what), capture(folder):
        pytest.fail("nothing begins")


def test_a_block_in_a_profiler_is_refused(torch, tmp_path):
    with torch.profiler.profile() as profiler:
        refused(torch, tmp_path, "another profiler is active in this process")
        torch.ones(3).cumsum(0)
    assert "aten::cumsum" in {one.key for one in profiler.key_averages()}


def test_a_block_beside_the_profiler_of_another_thread_is_refused(torch, tmp_path):
    begun, refusing = threading.Event(), threading.Event()

    def profile():
        with torch.profiler.profile():
            begun.set()
            refusing.wait(60)

    thread = threading.Thread(target=profile)
    thread.start()
    begun.wait(60)
    refused(torch, tmp_path, "another profiler is active in this process")
    refusing.set()
    thread.join()


def test_a_block_in_a_profiler_that_waits_for_its_steps_is_refused(torch, tmp_path):
    schedule = torch.profiler.schedule(wait=9, warmup=1, active=1)
    with torch.profiler.profile(schedule=schedule) as profiler:
        refused(torch, tmp_path, "another profiler is active in this process")
    train(torch, tmp_path, steps=4)  # once its block has ended it is in nobody's way
    assert profiler.step_num == 0
    linked(tmp_path)


def test_a_block_in_a_block_is_refused(torch, tmp_path):
    with capture(tmp_path, wait=1) as recorder:
        refused(torch, tmp_path, "another capture is open")
        for _ in range(4):
            torch.ones(3).cumsum(0)
            recorder.step()
        train(torch, tmp_path / "next", steps=4)  # that one has its steps
    linked(tmp_path)
    linked(tmp_path / "next")


def test_a_block_beside_another_observer_is_refused_and_leaves_it_alone(torch, tmp_path):
    observer = other_observer(torch, tmp_path)
    observer.start()
    refused(torch, tmp_path, "another ExecutionTraceObserver")
    torch.ones(3).cumsum(0)
    observer.unregister_callback()
    nodes = json.loads((tmp_path / "other.json").read_text())["nodes"]
    assert "aten::cumsum" in {node["name"] for node in nodes}


def test_a_profiler_that_begins_before_recording_keeps_it_from_beginning(torch, tmp_path):
    with (
        pytest.warns(UserWarning, match="training goes on: another profiler is active"),
        capture(tmp_path, wait=1) as recorder,
    ):
        with torch.profiler.profile() as profiler:
            for _ in range(4):
                torch.ones(3).cumsum(0)
                recorder.step()
        assert recorder.steps == 4
    assert "aten::cumsum" in {one.key for one in profiler.key_averages()}
    assert written(tmp_path) == []
    train(torch, tmp_path, steps=4)
    linked(tmp_path)


def test_an_observer_that_comes_before_recording_keeps_it_from_beginning(torch, tmp_path):
    with pytest.warns(UserWarning, match="another ExecutionTraceObserver"), capture(tmp_path, wait=1) as recorder:
        observer = other_observer(torch, tmp_path)
        for _ in range(4):
            recorder.step()
        observer.unregister_callback()
    assert written(tmp_path) == []
