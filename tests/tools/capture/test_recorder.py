"""A block leaves one pair of traces of whole steps, or warns why not; steps and loaders are timed without it."""

import os
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pytest
from execgraph import capture
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.tools.capture import experimental_config, timing
from execgraph.tools.capture.timing import StepTimer, busy_cores, recording_cost
from support.capturing import device_ops, device_pairs, host_ops, linked, load, said_by, train, written


@pytest.mark.parametrize(("first", "window"), [(2, {}), (1, {"wait": 0, "active": 10}), (0, {"wait": 0, "warmup": 0})])
def test_both_traces_hold_the_same_ops_also_where_a_loop_ends_early(torch, tmp_path, first, window):
    train(torch, tmp_path, steps=first + 2, **window)
    assert host_ops(tmp_path) == device_ops(tmp_path)
    steps = {f"ProfilerStep#{first}", f"ProfilerStep#{first + 1}", "aten::addmm"}
    assert steps <= {*host_ops(tmp_path).values()}


@pytest.mark.parametrize("together", [False, True])
def test_ops_of_other_threads_are_in_both(torch, tmp_path, together):
    train(torch, tmp_path, 6, lambda: in_another_thread(lambda: torch.ones(3).cumsum(0)), together=together)
    in_host, in_device = Counter(host_ops(tmp_path).values()), Counter(name for _, name in device_pairs(tmp_path))
    # alone the device trace has the step to warm up, too, without a mark
    assert in_host - in_device == (Counter() if together else Counter({"ProfilerStep#4": 1, "ProfilerStep#5": 1}))
    assert {*(in_device - in_host)} >= (set() if together else {"ProfilerStep#2", "ProfilerStep#3"})
    assert (in_host["aten::cumsum"], in_device["aten::cumsum"]) == (2, 2 if together else 3)


def test_with_a_gpu_both_traces_are_of_the_same_steps(torch, tmp_path, monkeypatch):
    for is_available, steps in ((True, {1}), (False, {1, 2})):
        monkeypatch.setattr(torch.cuda, "is_available", lambda found=is_available: found)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        folder = tmp_path / str(is_available)
        train(torch, folder, steps=3, together=None, wait=1, warmup=0, active=1)
        ops = {*host_ops(folder).values(), *(name for _, name in device_pairs(folder))}
        assert {f"ProfilerStep#{step}" for step in steps} == {op for op in ops if op.startswith("ProfilerStep")}


def test_what_another_thread_ends_right_after_the_last_step_is_whole(torch, tmp_path, monkeypatch):
    ends, threads = threading.Event(), []
    monkeypatch.setattr("execgraph.tools.capture.recorder.is_distributed", lambda _: True)
    monkeypatch.setattr(
        "execgraph.tools.capture.recorder.sleep", lambda _: (ends.set(), [one.join() for one in threads])
    )
    work = torch.profiler.record_function("late")(lambda: ends.wait(60))
    train(torch, tmp_path, 4, lambda: (threads.append(threading.Thread(target=work)), threads[-1].start()), active=1)
    assert "late" in device_ops(tmp_path).values()


@pytest.mark.parametrize("wish, category, name", [
    ("stacks", "python_function", "test_recorder.py"), ("modules", "python_function", "nn.Module: Linear_0"),
    ("memory", "cpu_instant_event", "[memory]"),
])  # fmt: skip
def test_what_is_asked_for_is_in_the_device_trace_or_in_one_beside_it(torch, tmp_path, wish, category, name):
    train(torch, tmp_path / "apart", steps=6, together=False, **{wish: True})
    train(torch, tmp_path / "together", steps=4, **{wish: True})
    files = [tmp_path / "apart/device_rank0.json.gz", *tmp_path.glob("*/detail*"), *tmp_path.glob("together/device*")]
    rows = [[row for row in load(path)["traceEvents"] if row.get("cat") == category] for path in files]
    assert [any(name in row["name"] for row in of_file) for of_file in rows] == [False, True, True]
    assert linked(tmp_path / "apart", "detail").host_ops == linked(tmp_path / "together").host_ops
    train(torch, tmp_path / "apart", steps=6, together=False)
    assert written(tmp_path / "apart") == PAIR


def test_a_compiled_model_links(torch, tmp_path):
    if not shutil.which("g++"):
        pytest.skip("compiling needs g++")
    compiled = torch.compile(lambda x: torch.relu(x) + 1)
    with capture(tmp_path, wait=1, warmup=1, together=True) as recorder:
        for _ in range(4):
            compiled(torch.randn(4, 8))
            recorder.step()
    linked(tmp_path)
    assert any("Compiled" in name for name in host_ops(tmp_path).values())


PAIR = ["device_rank0.json.gz", "host_rank0.json.gz"]
NEVER = r"recorder\.step\(\) was never called"


APART, NONE = {"together": False, "active": 3}, "no complete step was recorded: "


@pytest.mark.parametrize(("steps", "window", "said", "files", "complete"), [
    (0, {}, NONE + NEVER, PAIR[1:], {}),
    (1, {}, NONE + "the block ended after 1 step and recording begins after 2", PAIR[1:], {}),
    (2, {}, NONE + "the block ended after 2 steps and recording begins after 2", PAIR, {}),
    (0, {"wait": 0, "warmup": 0}, NONE + NEVER, PAIR, {}),
    (2, APART, NONE + "the block ended after 2 .* run 8 steps or more", PAIR[:1], {}),
    (3, {}, "each trace has 1 of 2 steps: .* smaller wait, warmup and active$", PAIR, {2}),
    (4, APART, "no host trace .*, and the device trace has 2 of 3 steps: .* after 4 .* after 5", PAIR[:1], {2, 3}),
    (5, APART, "no host trace was recorded: .* after 5 .* after 5; run 8 .*together=True", PAIR[:1], {2, 3, 4}),
    (6, APART, "the host trace has 1 of 3 steps: .* after 6 .* after 5; run 8", PAIR, {2, 3, 4}),
])  # fmt: skip
@pytest.mark.parametrize("work", [0, 1], ids=["", "within a step"])
def test_a_block_that_ends_early_says_so_and_counts_complete_steps(
    torch, tmp_path, capsys, steps, window, said, files, complete, work
):
    (tmp_path / PAIR[1]).touch()  # an older one stays beside no device trace of other steps
    with pytest.warns(UserWarning, match=f"execgraph: {said}"):
        train(torch, tmp_path, steps, rest=lambda: work and torch.ones(3).cumsum(0), **window)
    assert written(tmp_path) == files
    assert ("but no host trace" in capsys.readouterr().err) == (files == PAIR[:1])
    if PAIR[0] in files:
        device = read_device_trace(str(tmp_path / PAIR[0]))
        ops = link(None if steps < 6 else str(tmp_path / PAIR[1]), device).ops.name
        assert {name for name in ops if name.startswith("ProfilerStep#")} == {f"ProfilerStep#{one}" for one in complete}
        assert ("aten::cumsum" in list(ops)) == bool(work and not complete)


def test_a_rank_that_was_not_asked_for_is_not_warned_of(torch, tmp_path, recwarn):
    train(torch, tmp_path, steps=0, ranks=[1])
    assert said_by(recwarn) == []


KEY, WAIT_KEY = "execgraph_step_without_profiler_us", "execgraph_data_wait_without_profiler_us"
STEPS_KEY, COST_KEY = "execgraph_steps_without_profiler_us", "execgraph_recording_cost_us"


def clock(monkeypatch, *seconds: float) -> None:
    """What the timer reads: at the beginning, as each step ends on the host, and when the device is done."""
    times = chain(seconds, iter(perf_counter, None))
    monkeypatch.setattr("execgraph.tools.capture.timing.perf_counter", lambda: next(times))


@pytest.mark.usefixtures("untouched")
def test_traces_say_which_steps_they_are_of_and_how_long_these_take_without_a_profiler(torch, tmp_path, monkeypatch):
    clock(monkeypatch, 100.0, 100.001, 100.003, 100.006, 100.009)
    train(torch, tmp_path / "apart", steps=9, wait=4, together=False)
    train(torch, tmp_path / "together", steps=4, wait=1)  # the first step alone is not measured
    files = [
        [str(tmp_path / how / f"{trace}_rank0.json.gz") for trace in ("host", "device")]
        for how in ("apart", "together")
    ]
    said = [(read_host_trace(host).window, read_device_trace(device).window) for host, device in files]
    assert said == [("host", "device"), ("", "")]
    apart, together = (load(Path(device)) for _, device in files)
    has_shapes = [any("Input Dims" in row.get("args", {}) for row in top["traceEvents"]) for top in (apart, together)]
    assert (has_shapes, KEY in together) == ([False, True], False)
    spread = {"count": 3, "median": 2000.0, "p10": 1200.0, "p90": 2800.0}
    assert [apart[key] for key in (KEY, WAIT_KEY, STEPS_KEY)] == [3000, 0, spread]
    assert ({*apart[COST_KEY]}, COST_KEY in together) == ({"op"}, False)
    assert 0.05 < apart[COST_KEY]["op"] < 20


def cost_of(torch) -> dict[str, float]:
    return recording_cost(torch, experimental_config(trace_only=True))


def test_what_recording_costs_is_told_in_any_mode_and_changes_none(torch):
    with torch.inference_mode(), torch.autocast("cpu"), torch.device("meta"), torch.profiler.record_function("step"):
        assert cost_of(torch)["op"] > 0
        assert (torch.is_grad_enabled(), torch.ones(1).device.type) == (False, "meta")
    assert not torch.autograd._profiler_enabled()


@pytest.mark.parametrize(
    ("name", "value", "why"), [("LIMIT_S", 0, "something else keeps"), ("_KinetoProfile", None, "not callable")]
)
def test_what_recording_costs_may_remain_unknown(torch, monkeypatch, name, value, why):
    monkeypatch.setattr(timing if name == "LIMIT_S" else torch.profiler, name, value)
    with pytest.warns(UserWarning, match=f"does not say how long recording an op takes: .*{why}"):
        assert cost_of(torch) == {}
    assert not torch.autograd._profiler_enabled()


def test_steps_of_which_one_compiles_have_no_length(torch, tmp_path, monkeypatch):
    clock(monkeypatch, 100.0, 100.9, 101.0, 101.1)
    with pytest.warns(UserWarning, match="one took 900.0 ms and most 100.0 ms, .* raise wait") as warned:
        train(torch, tmp_path, steps=7, wait=4)
    assert [one.filename for one in warned if "raise wait" in str(one.message)] == [train.__code__.co_filename]
    assert KEY not in load(tmp_path / "device_rank0.json.gz")


def test_a_profiler_that_takes_no_metadata_costs_the_length_of_a_step_alone(torch, tmp_path, monkeypatch):
    original = torch.profiler._KinetoProfile.add_metadata_json

    def add(profiler, key: str, value: str) -> None:
        if key == KEY:
            raise RuntimeError("no metadata")
        original(profiler, key, value)

    monkeypatch.setattr(torch.profiler._KinetoProfile, "add_metadata_json", add)
    with pytest.warns(UserWarning, match="how long an unprofiled step takes: .*no metadata"):
        train(torch, tmp_path, steps=6, wait=2)
    linked(tmp_path)


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> StepTimer:
    """A timer of steps and of Loader, on its clock, without a device."""
    Loader.clock = 0.0
    module = SimpleNamespace(_BaseDataLoaderIter=Loader)
    monkeypatch.setitem(sys.modules, "torch.utils.data.dataloader", module)  # type: ignore[arg-type]
    monkeypatch.setattr("execgraph.tools.capture.timing.perf_counter", lambda: Loader.clock)
    monkeypatch.setattr("execgraph.tools.capture.timing.synchronise", lambda torch: None)
    monkeypatch.setattr("execgraph.tools.capture.timing.busy_cores", lambda: (0, 0.0, 0.0))
    return StepTimer(SimpleNamespace(get_num_threads=lambda: 3))


def measure(timer: StepTimer, *steps: tuple[float, float], workers: int = 0) -> dict[str, str]:
    """What the trace is told of steps of so many seconds, of which the loop waited so many for its data."""
    timer.start()
    for number, (length, data_wait) in enumerate(steps, 1):
        next(Loader(data_wait, workers=workers))
        Loader.clock += length - data_wait
        timer.lap() if number < len(steps) else timer.stop()
    kept: dict[str, str] = {}
    timer.add_to(SimpleNamespace(add_metadata_json=kept.__setitem__), {})
    return {key: value for key, value in kept.items() if key != STEPS_KEY}


def steps_of(timer: StepTimer) -> dict[str, float]:
    return timer._known.get(STEPS_KEY, {})


def test_batches_that_arrive_together_do_not_make_steps_uneven(timer: StepTimer) -> None:
    burst = [(0.4, 0.39), (0.01, 0), (0.01, 0), (0.02, 0)]
    assert measure(timer, *burst, workers=4) == {KEY: "110000.0", WAIT_KEY: "97500.0"}
    assert steps_of(timer) == {"count": 4, "median": 107500, "p10": 107500, "p90": 114500}


def test_it_says_who_kept_the_cores_busy(timer: StepTimer, monkeypatch: pytest.MonkeyPatch) -> None:
    cores, own_s, all_s = busy_cores()
    assert cores == len(os.sched_getaffinity(0)) and 0 < own_s < all_s
    monkeypatch.setattr(
        "execgraph.tools.capture.timing.busy_cores", lambda: (2, 3 + 0.5 * Loader.clock, 70 + 1.75 * Loader.clock)
    )
    measure(timer, *[(0.1, 0.0)] * 4)
    assert [steps_of(timer)[name] for name in ("cores", "threads", "own", "others")] == [2, 3, 50_000, 125_000]


USUAL, LONG = (0.1, 0.0), (0.9, 0.0)


@pytest.mark.parametrize(
    ("steps", "said", "kept"),
    [
        ([(0.1, 0.09), LONG, (0.1, 0.09)], "one took 900.0 ms and most 70.0 ms, .* not known; raise wait", {}),
        # more steps on a machine that others use make such a step more likely
        ([USUAL] * 3 + [LONG], "one took 900.0 ms and most 100.0 ms, .* not known; .* record again", {}),
        ([LONG, LONG, *[USUAL] * 7], "2 of 9 took 900.0 ms and most 100.0 ms, .* raise wait", {}),
        (
            [USUAL] * 4 + [LONG],
            "one took 900.0 ms .* are about the others; 69 % of the time",
            {KEY: "100000.0", WAIT_KEY: "0.0"},
        ),
    ],
    ids=["although the loop waited in others", "among the last is no reason to skip more", "many", "few do not count"],
)
def test_a_long_step_is_uneven(timer: StepTimer, steps: list[tuple[float, float]], said: str, kept: Any) -> None:
    with pytest.warns(UserWarning, match=said):
        assert measure(timer, *steps) == kept
    assert steps_of(timer).get("count", 0) == (4 if kept else 0)


def test_fewer_steps_than_workers_are_warned_of_and_kept(timer: StepTimer) -> None:
    with pytest.warns(UserWarning, match="8 workers, and 3 steps .*; give wait=10"):
        assert measure(timer, (0.1, 0), (0.1, 0), (0.1, 0), workers=8)[KEY] == "100000.0"


def test_steps_that_take_batches_loaded_ahead_do_not_count(timer: StepTimer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loader, "_prefetch_factor", 2, raising=False)
    assert measure(timer, *[(0.01, 0)] * 2, *[(0.1, 0.09)] * 2, workers=1) == {KEY: "100000.0", WAIT_KEY: "90000.0"}


class Loader:
    """Stands for PyTorch's iterator: getting a batch takes so many seconds of the clock."""

    clock = 0.0

    def __init__(self, *seconds: float, source: Iterator[Any] | None = None, workers: int = 0) -> None:
        self._seconds, self._source, self._num_workers = iter(seconds), source, workers

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = next(self._source) if self._source else 0
        Loader.clock += next(self._seconds)
        return batch


def test_only_what_is_between_start_and_stop_counts(timer: StepTimer) -> None:
    batches, own = Loader(1, 2, 4, 8), Loader.__next__
    next(batches)
    timer.start()
    next(batches), next(batches)
    timer.stop()
    next(batches)
    assert timer.waited_s == 6
    assert Loader.__next__ is own
    timer.drop()
    assert Loader.__next__ is own


def in_another_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.parametrize(("work", "seconds"), [
    (lambda: next(Loader(1, source=Loader(2))), 3), (lambda: [*Loader(3)], 3),
    (lambda: in_another_thread(lambda: next(Loader(5))), 0),
], ids=["a loader that reads another one, once", "the end of the data, too", "other threads do not count"])  # fmt: skip
def test_the_loop_waits(timer: StepTimer, work: Callable[[], object], seconds: float) -> None:
    timer.start()
    work()
    timer.drop()
    assert timer.waited_s == seconds


def test_the_loader_with_the_most_workers_says_how_many_there_are(timer: StepTimer) -> None:
    timer.start()
    next(Loader(1, workers=8)), next(Loader(1, workers=2))
    timer.drop()
    assert timer.workers == 8


def test_without_a_loader_nothing_is_measured(timer: StepTimer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.utils.data.dataloader")
    timer.start()
    next(Loader(1))
    timer.drop()
    assert timer.waited_s == 0


@pytest.fixture
def untouched(torch) -> Iterator[None]:
    """PyTorch's loader is after the test as it was before."""
    from torch.utils.data import dataloader

    own = dataloader._BaseDataLoaderIter.__next__
    yield
    assert dataloader._BaseDataLoaderIter.__next__ is own


@pytest.mark.usefixtures("untouched")
def test_a_block_that_ends_early_leaves_the_loader_as_it_was(torch, tmp_path) -> None:
    with pytest.warns(UserWarning, match="no complete step"):
        train(torch, tmp_path, steps=2, wait=4)
