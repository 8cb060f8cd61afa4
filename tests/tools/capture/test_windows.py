"""A profiler of one's own with a handler: a pair of every window, by name and place, or what it lacks."""

import json
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import pytest
from execgraph import capture
from execgraph.tools.capture import experimental_config, trace_handler
from support.capturing import device_ops, linked, other_observer, profiled, said_by, train, written


def test_a_handler_leaves_a_pair_of_every_window(torch, tmp_path):
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=2)
    config = experimental_config()
    profiled(torch, trace_handler(tmp_path), steps=8, schedule=schedule, record_shapes=True, experimental_config=config)
    traces = ("device_rank0.json.gz", "host_rank0.json.gz")
    assert written(tmp_path) == [f"window{window}/{trace}" for window in (1, 2) for trace in traces]
    for window, steps in ((1, {"ProfilerStep#1", "ProfilerStep#2"}), (2, {"ProfilerStep#4", "ProfilerStep#5"})):
        folder = tmp_path / f"window{window}"
        assert {name for name in device_ops(folder).values() if "ProfilerStep" in name} == steps
        linked(folder)


def test_a_handler_leaves_the_ranks_alone_that_were_not_asked_for(torch, tmp_path):
    profiled(torch, trace_handler(tmp_path, ranks=[1]), steps=2)
    assert written(tmp_path) == []


def test_a_handler_that_observes_nothing_says_where_else_it_goes(torch, tmp_path):
    handler = trace_handler(tmp_path)
    with pytest.warns(UserWarning, match="execution_trace_observer"), torch.profiler.profile(on_trace_ready=handler):
        torch.ones(3).cumsum(0)


def test_a_handler_beside_another_observer_costs_the_traces_alone(torch, tmp_path):
    observer = other_observer(torch, tmp_path)
    with pytest.warns(UserWarning, match="another ExecutionTraceObserver") as warned:
        profiled(torch, trace_handler(tmp_path), steps=2)
    observer.unregister_callback()
    assert len(said_by(warned)) == 1
    assert written(tmp_path) == []


def test_an_observer_without_handler_leaves_nothing(torch, tmp_path):
    handler = trace_handler(tmp_path)
    with torch.profiler.profile(execution_trace_observer=handler):
        torch.ones(3).cumsum(0)
    assert written(tmp_path) == []
    train(torch, tmp_path, steps=4)  # nor does it stand in the way of the next
    linked(tmp_path)


PAIR = ["warm/r3.device.json.gz", "warm/r3.host.json.gz"]


NAMES = ("{trace}", "rank{rank}", "{trace}_{rank}_{epoch}", "{trace")
STEPS = ({"wait": -1}, {"warmup": -1}, {"active": 0})


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        *(({"name": name}, ValueError, r"name: .* needs \{trace\} and \{rank\}") for name in NAMES),
        *((steps, ValueError, "active is 1 or more") for steps in STEPS),
        *(({"ranks": ranks}, TypeError, "one, give several|not iterable") for ranks in (0, 1.5)),
        ({"folder": __file__}, ValueError, "not a folder"),
        ({"folder": "/proc/x"}, ValueError, "not a folder"),
    ],
)
def test_what_cannot_be_used_is_refused(torch, tmp_path, options, error, said):
    with pytest.raises(error, match=said):
        capture(**{"folder": tmp_path} | options)


@pytest.mark.parametrize("ranks, files", [({0, 3}, PAIR), (range(3), []), (None, PAIR)])
def test_only_the_ranks_that_were_asked_for_record_under_the_launchers_rank(torch, tmp_path, monkeypatch, ranks, files):
    monkeypatch.setenv("RANK", "3")
    train(torch, tmp_path, steps=4, ranks=ranks, name="warm/r{rank}.{trace}")
    assert written(tmp_path) == files


def test_paths_and_the_next_command_are_said_once(torch, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "my traces"
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        train(torch, folder, steps=4)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("execgraph: ")]
    untimed = "execgraph: no steps were timed without a profiler: do not trust predictions about the host"
    assert said == [
        untimed,
        f"execgraph: rank 0 recorded {folder}/host_rank0.json.gz and {folder}/device_rank0.json.gz",
        "execgraph: both traces are of the same steps, and their ops take longer for it",
        f"execgraph: next: trace-report '{folder}'",
        untimed,
        f"execgraph: rank 1 recorded {folder}/host_rank1.json.gz and {folder}/device_rank1.json.gz",
    ]
    train(torch, folder, steps=4)
    assert f"{said[-1]}, in place of earlier ones" in capsys.readouterr().err


def test_missing_torch_is_named_with_its_remedy(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="pip install torch"), capture(tmp_path):
        pass


@pytest.fixture
def switched(torch, monkeypatch) -> list[bool]:
    """What the switch for synchronisation records was set to."""
    values: list[bool] = []
    monkeypatch.setattr(torch._C._profiler, "_set_cuda_sync_enabled_val", values.append)
    return values


def test_a_capture_asks_for_synchronisation_records(torch, tmp_path, monkeypatch):
    configs, original = [], torch._C._profiler._ExperimentalConfig

    def config(**options):
        configs.append(options)
        return original(**options)

    monkeypatch.setattr(torch._C._profiler, "_ExperimentalConfig", config)
    train(torch, tmp_path, steps=4)
    assert configs[-1]["enable_cuda_sync_events"] is True
    linked(tmp_path)  # a machine without a GPU records all else as before


@pytest.mark.parametrize("is_config_given", [False, True])
def test_a_handler_switches_synchronisation_records_on_and_leaves_the_config(
    torch, tmp_path, switched, is_config_given
):
    config = torch._C._profiler._ExperimentalConfig(verbose=True) if is_config_given else None
    handler = trace_handler(tmp_path, name="{trace}_rank{rank}")
    assert switched == [True]
    how = {"on_trace_ready": handler, "execution_trace_observer": handler, "experimental_config": config}
    with torch.profiler.profile(**how) as profiler:
        torch.ones(3).cumsum(0)
    assert profiler.experimental_config is config
    linked(tmp_path)


def test_a_handler_keeps_a_profiler_without_schedule_and_sets_the_switch_of_the_installed_pytorch(
    torch, tmp_path, recwarn
):
    profiled(torch, trace_handler(tmp_path, name="{trace}_rank{rank}"), steps=2)
    torch._C._profiler._set_cuda_sync_enabled_val(False)
    assert said_by(recwarn) == []
    linked(tmp_path)


def test_a_pytorch_without_the_switch_is_warned_of_and_records_all_else(torch, tmp_path, monkeypatch):
    monkeypatch.delattr(torch._C._profiler, "_set_cuda_sync_enabled_val")
    said = "synchronisation records were not switched on .*experimental_config"
    with pytest.warns(UserWarning, match=said) as warned:
        handler = trace_handler(tmp_path, name="{trace}_rank{rank}")
    assert [Path(one.filename).name for one in warned] == [Path(__file__).name]
    profiled(torch, handler, steps=2)
    linked(tmp_path)


@pytest.mark.parametrize(
    ("lacks", "said"),
    [("option", "no synchronisation records"), ("experimental configs", "without synchronisation records")],
)
def test_a_pytorch_without_the_option_is_warned_of_and_records_all_else(torch, tmp_path, monkeypatch, lacks, said):
    original = torch._C._profiler._ExperimentalConfig

    def config(*, enable_cuda_sync_events=None, **options):
        if enable_cuda_sync_events is not None:
            raise TypeError("incompatible constructor arguments")
        return original(**options)

    if lacks == "option":
        monkeypatch.setattr(torch._C._profiler, "_ExperimentalConfig", config)
    else:
        monkeypatch.delattr(torch._C._profiler, "_ExperimentalConfig")
    with pytest.warns(UserWarning, match=said):
        train(torch, tmp_path, steps=4)
    linked(tmp_path)


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
    with capture(tmp_path, wait=1, warmup=1, together=True) as recorder:
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
    said = "training goes on: another profiler is active"
    with pytest.warns(UserWarning, match=said), capture(tmp_path, wait=1) as recorder:
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


@pytest.mark.parametrize("export", [None, lambda *_: None], ids=["kept", "not written"])
def test_a_failing_loop_keeps_its_own_error_and_its_device_trace(torch, tmp_path, monkeypatch, export):
    if export:
        monkeypatch.setattr(torch.profiler._KinetoProfile, "export_chrome_trace", export)
    with warnings.catch_warnings(), pytest.raises(ZeroDivisionError), capture(tmp_path, wait=0, warmup=0):
        warnings.simplefilter("error")
        torch.ones(3).cumsum(0)
        _ = 1 / 0
    assert written(tmp_path) == ([] if export else ["device_rank0.json.gz"])


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
