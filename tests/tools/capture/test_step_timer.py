"""The device trace says how long the steps before recording took, without the first one."""

from types import SimpleNamespace

import pytest
from execgraph.tools.capture.timers import StepTimer
from support.capturing import linked, load, train

KEY = "execgraph_step_without_profiler_us"


def clock(monkeypatch, *seconds: float) -> None:
    """What the timer reads: at the beginning, as each step ends on the host, and when the device is done."""
    times = iter(seconds)
    monkeypatch.setattr("execgraph.tools.capture.timers.perf_counter", lambda: next(times))


def test_the_device_trace_says_how_long_a_step_takes_without_a_profiler(torch, tmp_path, monkeypatch):
    clock(monkeypatch, 100.0, 100.001, 100.002, 100.006)
    train(torch, tmp_path, steps=6, wait=3)
    assert load(tmp_path / "device_rank0.json.gz")[KEY] == pytest.approx(3000)


def test_steps_of_which_one_compiles_have_no_length(torch, tmp_path, monkeypatch):
    clock(monkeypatch, 100.0, 100.9, 101.0, 101.1)
    with pytest.warns(UserWarning, match="one took 900.0 ms and most 100.0 ms, .* raise wait") as warned:
        train(torch, tmp_path, steps=7, wait=4)
    assert [one.filename for one in warned if "raise wait" in str(one.message)] == [train.__code__.co_filename]
    assert KEY not in load(tmp_path / "device_rank0.json.gz")


def test_the_first_step_alone_is_not_measured(torch, tmp_path):
    train(torch, tmp_path, steps=4, wait=1)
    assert KEY not in load(tmp_path / "device_rank0.json.gz")


def test_a_profiler_that_takes_no_metadata_costs_the_length_of_a_step_alone(torch, tmp_path, monkeypatch):
    original = torch.profiler._KinetoProfile.add_metadata_json

    def add(profiler, key: str, value: str) -> None:
        if key == KEY:
            raise RuntimeError("no metadata")
        original(profiler, key, value)

    monkeypatch.setattr(torch.profiler._KinetoProfile, "add_metadata_json", add)
    with pytest.warns(UserWarning, match="how long a step takes without a profiler: .*no metadata"):
        train(torch, tmp_path, steps=6, wait=2)
    linked(tmp_path)


def timer_of_steps(monkeypatch, *steps: tuple[float, float], workers: int = 0) -> StepTimer:
    """A timer that saw steps of so many seconds, of which the loop waited so many for its data."""
    now = 0.0
    monkeypatch.setattr("execgraph.tools.capture.timers.perf_counter", lambda: now)
    monkeypatch.setattr("execgraph.tools.capture.timers.synchronise", lambda torch: None)
    timer = StepTimer(None)
    loader = SimpleNamespace(total_s=0.0, workers=workers, start=lambda: None, stop=lambda: None)
    monkeypatch.setattr(timer, "_loader", loader)
    timer.start()
    for number, (length, data_wait) in enumerate(steps, 1):
        now += length
        loader.total_s += data_wait
        timer.lap() if number < len(steps) else timer.stop()
    return timer


def metadata(timer: StepTimer) -> dict[str, str]:
    kept: dict[str, str] = {}
    timer.add_to(SimpleNamespace(add_metadata_json=kept.__setitem__))
    return kept


def test_batches_that_arrive_together_do_not_make_steps_uneven(monkeypatch):
    burst = [(0.4, 0.39), (0.01, 0), (0.01, 0), (0.02, 0)]
    timer = timer_of_steps(monkeypatch, *burst, workers=4)
    assert metadata(timer) == {KEY: "110000.0", "execgraph_data_wait_without_profiler_us": "97500.0"}


def test_a_long_step_is_uneven_although_the_loop_waited_in_others(monkeypatch):
    with pytest.warns(UserWarning, match="one took 900.0 ms and most 100.0 ms"):
        timer = timer_of_steps(monkeypatch, (0.1, 0.09), (0.9, 0), (0.1, 0.09))
    assert metadata(timer) == {}


def test_a_long_step_among_the_last_is_no_reason_to_skip_more(monkeypatch):
    """More steps on a machine that others use make such a step more likely."""
    with pytest.warns(UserWarning, match="one took 900.0 ms and most 100.0 ms, .* record again"):
        timer = timer_of_steps(monkeypatch, (0.1, 0), (0.1, 0), (0.1, 0), (0.9, 0))
    assert metadata(timer) == {}


def test_fewer_steps_than_workers_are_warned_of_and_kept(monkeypatch):
    with pytest.warns(UserWarning, match="8 workers, and 3 steps .*; give wait=10"):
        timer = timer_of_steps(monkeypatch, (0.1, 0), (0.1, 0), (0.1, 0), workers=8)
    assert metadata(timer)[KEY] == "100000.0"
