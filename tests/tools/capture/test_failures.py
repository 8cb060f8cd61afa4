"""What fails while training runs costs the traces alone: training goes on, with its own errors, and says so."""

import tempfile
import warnings
from pathlib import Path

import pytest
from execgraph import capture
from support.capturing import device_ops, linked, train, written


def test_a_failing_loop_keeps_its_own_error_and_its_traces(torch, tmp_path):
    with pytest.raises(ZeroDivisionError), capture(tmp_path, wait=0, warmup=0):
        torch.ones(3).cumsum(0)
        _ = 1 / 0
    assert "aten::cumsum" in device_ops(tmp_path).values()


def test_a_loop_that_fails_before_it_is_recorded_keeps_its_own_error(torch, tmp_path):
    with warnings.catch_warnings(), pytest.raises(StopIteration, match="mine"), capture(tmp_path):
        warnings.simplefilter("error")
        raise StopIteration("mine")
    train(torch, tmp_path, steps=4)  # nor does it stand in the way of the next
    linked(tmp_path)


def test_a_folder_that_cannot_be_written_costs_the_traces_alone(torch, tmp_path):
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match=r"recording stopped, training goes on: .*file") as warned:
        train(torch, tmp_path, steps=5, name="file/{trace}{rank}")
    caller = train.__code__.co_filename
    assert [one.filename for one in warned if "execgraph" in str(one.message)] == [caller]


@pytest.mark.parametrize("steps", [0, 5])
def test_a_rank_that_is_no_number_costs_the_traces_alone(torch, tmp_path, monkeypatch, steps):
    monkeypatch.setenv("RANK", "first")
    with pytest.warns(UserWarning, match="training goes on: .*'first'"):
        train(torch, tmp_path, steps, ranks=[0])


def test_no_room_for_temporary_files_costs_the_traces_alone(torch, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.warns(UserWarning, match="training goes on: .*absent"):
        train(torch, tmp_path, steps=5)


@pytest.mark.parametrize("left", [None, '{"traceEvents": ['])
def test_a_trace_that_is_not_whole_is_not_kept(torch, tmp_path, monkeypatch, left):
    """PyTorch does not raise where a disk is full."""

    def export(_, path: str) -> None:
        if left:
            Path(path).write_text(left)

    monkeypatch.setattr(torch.profiler._KinetoProfile, "export_chrome_trace", export)
    with pytest.warns(UserWarning, match="could not write the whole device trace"):
        train(torch, tmp_path, steps=5)
    assert written(tmp_path) == []


@pytest.mark.parametrize("method", ["prepare_trace", "start_trace", "stop_trace", "export_chrome_trace"])
def test_a_profiler_that_fails_costs_the_traces_alone(torch, tmp_path, monkeypatch, method):
    original = getattr(torch.profiler._KinetoProfile, method)

    def fail(*arguments):
        if method == "stop_trace":
            original(*arguments)
        raise RuntimeError("CUPTI is not\nin the mood")

    monkeypatch.setattr(torch.profiler._KinetoProfile, method, fail)
    with pytest.warns(UserWarning, match="training goes on: CUPTI is not in the mood"):
        train(torch, tmp_path, steps=5)
    monkeypatch.undo()
    train(torch, tmp_path, steps=4)  # nothing is left of it
    linked(tmp_path)


def test_a_failing_loop_keeps_its_own_error_when_its_traces_cannot_be_kept(torch, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.profiler._KinetoProfile, "export_chrome_trace", lambda *_: None)
    with (
        warnings.catch_warnings(),
        pytest.raises(ZeroDivisionError),
        capture(tmp_path, wait=0, warmup=0),
    ):
        warnings.simplefilter("error")
        _ = 1 / 0
