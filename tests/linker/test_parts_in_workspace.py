"""A part that is linked with all columns in the workspace is what is cut out of the whole linked in memory."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from execgraph.linker.cut import cut
from execgraph.linker.link import link
from execgraph.linker.readers import DeviceTrace, HostTrace, read_device_trace, read_host_trace
from execgraph.linker.windows import EVERYTHING, Window, period_of, trace_start, whole
from execgraph.schema.columns import builders, nesting, workspace, workspace_in
from execgraph.schema.errors import DataError
from execgraph.schema.linked import LinkedTrace, write_linked
from hypothesis import given, settings, strategies as st
from support.builder import TraceBuilder
from support.programs import VERSIONS, Step, backward, launch_in_op, play, two_threads

ROWS = 7
BYTES_A_ROW = 128
"""A dozen numbers, as a few columns hold at a time; Python objects for each row would take several times as much."""
HALVES = (EVERYTHING, Window(clock=(0, 60)), Window(clock=(45, 200)))
Read = Callable[[], tuple[HostTrace | None, DeviceTrace]]


@contextmanager
def all_in_workspace(rows: int) -> Iterator[None]:
    """The smallest column counts as large, and intervals are nested so many rows at a time."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder, workspace_in(Path(folder)):
        patch.setattr(workspace, "LARGE", 1)
        patch.setattr(builders, "PIECE", 1)
        patch.setattr(builders, "TEXT_PIECE", 1)
        patch.setattr(nesting, "ROWS_AT_ONCE", rows)
        yield


def written(linked: LinkedTrace, folder: Path) -> bytes:
    write_linked(linked, str(folder / "linked.json"))
    return (folder / "linked.json").read_bytes()


def reading(t: TraceBuilder, folder: Path) -> Read:
    host, device = map(str, t.write(folder))
    return lambda: (read_host_trace(host), read_device_trace(device))


def check(read: Read, windows: tuple[Window, ...], rows: int) -> int:
    """Compares every window that the trace has; how many it has."""
    pair, found = read(), 0
    entire = link(*pair)
    with TemporaryDirectory() as folder:
        for window in windows:
            try:
                part = link(*pair, window=window)
            except DataError:
                continue
            with all_in_workspace(rows):
                assert written(link(*read(), window=window), Path(folder)) == written(part, Path(folder))
            if window != EVERYTHING:
                cut_out = cut(entire, period_of(pair[1], window, whole(pair[1]))).linked
                assert written(part, Path(folder)) == written(replace(cut_out, report=part.report), Path(folder))
            found += 1
    return found


def training(steps: int = 4, **options: Any) -> TraceBuilder:
    """Steps with a backward pass on its own thread, a collective, a blocking copy, and waits for the step before."""
    t = TraceBuilder(rank=0, world_size=2, **options)
    group = t.group([0, 1])
    begun = t.record_event(stream=20)
    t.leaf("untimed", 0, only="host")
    with t.annotation("training"):
        for number in range(1, steps + 1):
            with t.annotation(f"ProfilerStep#{number}"):
                before, begun = begun, t.record_event(stream=20)
                t.wait_event(before, stream=7)
                launch_in_op(t, Step("launch", 7, 0, 40), begun, f"long {number}")
                backward(t, Step("backward", 20, 1, 10), begun, f"backward {number}")
                t.collective("allreduce", group=group)
                t.leaf(f"untimed {number}", 0, only="host")
                t.event_query(before)
                if number == 3:
                    t.memcpy("DtoH", 7, 4)
                    t.stream_synchronize(20)
    return t


@pytest.mark.parametrize(("torch", "sync_records"), [("2.1", False), ("2.13", True)])
def test_steps_annotations_and_times_of_a_training_loop(torch: str, sync_records: bool, tmp_path: Path) -> None:
    steps = (EVERYTHING, *(Window(steps=(first, end)) for first, end in ((1, 2), (3, 4), (2, 5))))
    others = (Window(annotation="## backward ##:2"), Window(annotation="aten::none"), Window(clock=(33, 90)))
    read = reading(training(torch=torch, sync_records=sync_records), tmp_path)
    assert check(read, (*steps, *others), ROWS) == len(steps) + 2


def memory_and_rows(steps: int, folder: Path) -> tuple[int, int]:
    """The most memory that linking one step takes beside what is on disk, and the rows of the whole."""
    folder.mkdir()
    with all_in_workspace(1 << 8):
        host, device = reading(training(steps, torch="2.13", sync_records=True), folder)()
        assert host
        tables = (host.id, device.ops.start, device.calls.start, device.activities.start, device.syncs.start)
        tracemalloc.start()
        link(host, device, window=Window(steps=(1, 2)))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return most, sum(map(len, tables))


def test_memory_of_a_part_grows_by_few_bytes_for_each_row_of_the_whole(tmp_path: Path) -> None:
    (few, few_rows), (many, rows) = (memory_and_rows(steps, tmp_path / str(steps)) for steps in (40, 160))
    assert many - few < BYTES_A_ROW * (rows - few_rows)


@settings(max_examples=6)
@given(two_threads, VERSIONS, st.booleans())
def test_parts_of_any_run(steps: list[Step], torch: str, sync_records: bool) -> None:
    with TemporaryDirectory() as folder:
        read = reading(play(steps, threads=2, torch=torch, sync_records=sync_records), Path(folder))
        assert check(read, HALVES, ROWS)


@pytest.mark.parametrize("run", ["dlrm_8gpu", "captures/compile_inductor", "critical_path", "device_only"])
def test_parts_of_recorded_runs(run: str, real_traces: Path) -> None:
    host, device = {
        "dlrm_8gpu": ("host_rank0.json.gz", "device_rank0.json.gz"),
        "captures/compile_inductor": ("et.json.gz", "kineto.json.gz"),
        "critical_path": (None, "event_sync_multi_stream.json.gz"),
        "device_only": (None, "mi300_vllm_decode_hipgraph.json.gz"),
    }[run]

    def read() -> tuple[HostTrace | None, DeviceTrace]:
        traces = real_traces / run
        return read_host_trace(str(traces / host)) if host else None, read_device_trace(str(traces / device))

    trace = read()[1]
    first, end = ((time - trace_start(trace)) / 1000 for time in whole(trace))
    borders = [first + (end - first) * part / 3 for part in range(4)]
    thirds = tuple(map(Window, (None,) * 3, (None,) * 3, pairwise(borders)))
    assert check(read, (EVERYTHING, *thirds), 1 << 10) > 1
