"""What the installed PyTorch can record of waits is asked for; what it cannot is warned of, and all else recorded."""

import sys
from pathlib import Path

import pytest
from execgraph import capture
from execgraph.tools.capture import trace_handler
from support.capturing import linked, profiled, said_by, train


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
def test_a_handler_switches_synchronisation_records_on_and_leaves_the_config_alone(
    torch, tmp_path, switched, is_config_given
):
    config = torch._C._profiler._ExperimentalConfig(verbose=True) if is_config_given else None
    handler = trace_handler(tmp_path, name="{trace}_rank{rank}")
    assert switched == [True]
    with torch.profiler.profile(
        on_trace_ready=handler, execution_trace_observer=handler, experimental_config=config
    ) as profiler:
        torch.ones(3).cumsum(0)
    assert profiler.experimental_config is config
    linked(tmp_path)


def test_a_handler_really_sets_the_switch_of_the_installed_pytorch(torch, tmp_path, recwarn):
    profiled(torch, trace_handler(tmp_path, name="{trace}_rank{rank}"), steps=2)
    torch._C._profiler._set_cuda_sync_enabled_val(False)
    assert said_by(recwarn) == []
    linked(tmp_path)


def test_a_pytorch_without_the_switch_is_warned_of_and_records_all_else(torch, tmp_path, monkeypatch):
    monkeypatch.delattr(torch._C._profiler, "_set_cuda_sync_enabled_val")
    with pytest.warns(
        UserWarning, match="synchronisation records were not switched on .*experimental_config"
    ) as warned:
        handler = trace_handler(tmp_path, name="{trace}_rank{rank}")
    assert [Path(one.filename).name for one in warned] == [Path(__file__).name]
    profiled(torch, handler, steps=2)
    linked(tmp_path)


def test_a_pytorch_without_the_option_is_warned_of_and_records_all_else(torch, tmp_path, monkeypatch):
    original = torch._C._profiler._ExperimentalConfig

    def config(*, enable_cuda_sync_events=None, **options):
        if enable_cuda_sync_events is not None:
            raise TypeError("incompatible constructor arguments")
        return original(**options)

    monkeypatch.setattr(torch._C._profiler, "_ExperimentalConfig", config)
    with pytest.warns(UserWarning, match="no synchronisation records"):
        train(torch, tmp_path, steps=4)
    linked(tmp_path)


def test_a_pytorch_without_experimental_configs_is_warned_of_and_records_all_else(torch, tmp_path, monkeypatch):
    monkeypatch.setattr("execgraph.tools.capture.pytorch._takes", lambda *_: 1 / 0)
    with pytest.warns(UserWarning, match="without synchronisation records"):
        train(torch, tmp_path, steps=4)
    linked(tmp_path)
