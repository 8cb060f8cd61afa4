"""A handler in a profiler of one's own leaves a pair of every window, or says what it lacks.

Where a rank's traces go, by which names, and the messages about them; impossible names and folders are refused.
"""

from pathlib import Path

import pytest
from execgraph import capture
from execgraph.tools.capture import experimental_config, trace_handler
from support.capturing import device_ops, linked, other_observer, profiled, said_by, train, written


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
        f"execgraph: next: trace-build '{folder}' -o graphs",
        f"execgraph: rank 1 recorded {folder}/host_rank1.json.gz and {folder}/device_rank1.json.gz",
    ]


@pytest.mark.parametrize("ranks", [0, 1.5])
def test_ranks_are_several(torch, tmp_path, ranks):
    with pytest.raises(TypeError):
        capture(tmp_path, ranks=ranks)


def test_a_file_is_no_folder_for_traces(torch, tmp_path):
    with pytest.raises(ValueError, match="not a folder"):
        capture(Path(__file__))
