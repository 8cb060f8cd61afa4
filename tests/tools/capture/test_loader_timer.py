"""The wait for PyTorch's data loader is measured in the loop's own thread, and its `next` is put back."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from execgraph.tools.capture.timers import LoaderTimer
from support.capturing import load, train

WAIT_KEY = "execgraph_data_wait_without_profiler_us"


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


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> LoaderTimer:
    """A timer of Loader, on its clock."""

    class Module:
        _BaseDataLoaderIter = Loader

    monkeypatch.setitem(__import__("sys").modules, "torch.utils.data.dataloader", Module)
    monkeypatch.setattr("execgraph.tools.capture.timers.perf_counter", lambda: Loader.clock)
    return LoaderTimer()


def test_only_what_is_between_start_and_stop_counts(timer: LoaderTimer) -> None:
    batches, own = Loader(1, 2, 4, 8), Loader.__next__
    next(batches)
    timer.start()
    next(batches), next(batches)
    timer.stop()
    next(batches)
    assert timer.total_s == 6
    assert Loader.__next__ is own
    timer.stop()
    assert Loader.__next__ is own


def test_a_loader_that_reads_another_one_counts_once(timer: LoaderTimer) -> None:
    timer.start()
    next(Loader(1, source=Loader(2)))
    timer.stop()
    assert timer.total_s == 3


def test_the_end_of_the_data_is_waited_for_too(timer: LoaderTimer) -> None:
    timer.start()
    assert list(Loader(3)) == [0]
    timer.stop()
    assert timer.total_s == 3


def test_the_loader_with_the_most_workers_says_how_many_there_are(timer: LoaderTimer) -> None:
    timer.start()
    next(Loader(1, workers=8)), next(Loader(1, workers=2))
    timer.stop()
    assert timer.workers == 8


def test_other_threads_do_not_count(timer: LoaderTimer) -> None:
    timer.start()
    thread = threading.Thread(target=lambda: next(Loader(5)))
    thread.start()
    thread.join()
    timer.stop()
    assert timer.total_s == 0


def test_without_a_loader_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(__import__("sys").modules, "torch.utils.data.dataloader", raising=False)
    timer = LoaderTimer()
    timer.start()
    timer.stop()
    assert timer.total_s == 0


def test_the_device_trace_says_how_long_the_loop_waits_for_data(torch, tmp_path) -> None:
    from torch.utils.data import dataloader

    own = dataloader._BaseDataLoaderIter.__next__
    train(torch, tmp_path, steps=6, wait=3)
    assert load(tmp_path / "device_rank0.json.gz")[WAIT_KEY] == 0
    assert dataloader._BaseDataLoaderIter.__next__ is own


def test_a_block_that_ends_early_leaves_the_loader_as_it_was(torch, tmp_path) -> None:
    from torch.utils.data import dataloader

    own = dataloader._BaseDataLoaderIter.__next__
    with pytest.warns(UserWarning, match="no complete step"):
        train(torch, tmp_path, steps=2, wait=4)
    assert dataloader._BaseDataLoaderIter.__next__ is own
