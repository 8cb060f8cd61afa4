"""A handler in a profiler of one's own leaves a pair of every window, or says what it lacks."""

import pytest
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
