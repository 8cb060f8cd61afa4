"""Rows of rocpd databases: their process, zero or absent times, hardware queues, categories, and lanes of ranges."""

from pathlib import Path

import numpy as np
import pytest
from execgraph.linker.readers import read_rocpd
from execgraph.schema.reasons import Reason
from support.databases import EPOCH, LITE, RPD_2, Api, Op, Range, rows, sql, write_database


def test_ops_that_no_process_launched_are_of_none_of_several(tmp_path: Path) -> None:
    ops = [Op("a", EPOCH, EPOCH + 5, caller=1), Op("b", EPOCH, EPOCH + 5, caller=2), Op("c", EPOCH, EPOCH + 5)]
    api = [Api("hipLaunchKernel", EPOCH - 9, EPOCH - 5, pid=pid) for pid in (70, 60)]
    trace = read_rocpd(str(write_database(tmp_path / "t.db", RPD_2, ops, api)))
    assert trace.activities.process.tolist() == [70, 60, -1]
    assert trace.skipped == {Reason.OPS_OF_NO_PROCESS: 1}
    assert trace.labels == [(60, "rank 0"), (70, "rank 1")]


def test_ops_that_nothing_launched_are_of_the_process_or_else_of_their_device(tmp_path: Path) -> None:
    ops = [Op("a", EPOCH, EPOCH + 5, gpu=3)]
    known = read_rocpd(str(write_database(tmp_path / "known.db", LITE, ops, pid=60)))
    unknown = read_rocpd(str(write_database(tmp_path / "unknown.db", RPD_2, ops)))
    assert (known.activities.process.tolist(), unknown.activities.process.tolist()) == ([60], [3])
    assert (known.merge_marks, known.labels, known.read) == ([], [], 1)


def test_times_may_be_zero(tmp_path: Path) -> None:
    ops, api, ranges = [Op("k", 0, 1)], [Api("hipFree", 0, 0), Api("hipFree", 3, 2)], [Range("mark", 0, 1)]
    trace = read_rocpd(str(write_database(tmp_path / "t.db", RPD_2, ops, api, ranges)))
    assert [len(table.start) for table in (trace.activities, trace.calls, trace.ops)] == [1, 1, 1]
    assert (trace.skipped, trace.read) == ({Reason.API_ROWS_WITHOUT_END: 1}, 4)


def test_rows_without_a_start_are_counted(tmp_path: Path) -> None:
    ops, api = [Op("k", EPOCH, EPOCH + 1)] * 2, [Api("hipFree", EPOCH, EPOCH + 1)] * 2
    path = write_database(tmp_path / "t.db", RPD_2, ops, api, [Range("mark", EPOCH, EPOCH + 1)])
    sql(path, "UPDATE rocpd_op SET start = NULL WHERE id = 2; UPDATE rocpd_api SET start = NULL WHERE id > 1;")
    trace = read_rocpd(str(path))
    assert [len(table.start) for table in (trace.activities, trace.calls, trace.ops)] == [1, 1, 0]
    assert trace.skipped == {
        Reason.ZERO_LENGTH_OPS: 1,
        Reason.API_ROWS_WITHOUT_END: 1,
        Reason.ROCTX_MARKS: 1,
    }


@pytest.mark.parametrize(
    ("signal", "queue"),
    [("hwq=5", 5), ("HWQ : 0x1f", 31), ("a hwq=0 b", 0), ("hwq=", 9), ("myhwq=5", 9), ("", 9)],
)
def test_a_hardware_queue_is_a_number_behind_its_word(tmp_path: Path, signal: str, queue: int) -> None:
    path = write_database(tmp_path / "t.db", RPD_2, [Op("k", EPOCH, EPOCH + 1, queue=9)])
    sql(path, f"UPDATE rocpd_op SET completionSignal = '{signal}'")
    assert read_rocpd(str(path)).activities.stream.tolist() == [queue]


@pytest.mark.parametrize(
    ("queues", "ops", "streams"), [(128, 1, 128), (129, 1, 1), (129, 2, 129)], ids=["few", "many", "of several ops"]
)
def test_more_than_128_queues_of_fewer_than_two_ops_number_dispatches(
    tmp_path: Path, queues: int, ops: int, streams: int
) -> None:
    rows = [Op("k", EPOCH + n, EPOCH + n + 1, queue=1000 + n % queues) for n in range(queues * ops)]
    other = Op("k", EPOCH, EPOCH + 1, gpu=1, queue=5)
    trace = read_rocpd(str(write_database(tmp_path / "t.db", LITE, [*rows, other])))
    assert len(np.unique(trace.activities.stream[trace.activities.device == 0])) == streams
    assert trace.activities.stream[-1] == 5


@pytest.mark.parametrize(
    ("type_", "category"),
    [
        ("CopyHostToDevice", "gpu_memcpy"),
        ("hipMemcpyAsync", "gpu_memcpy"),
        ("FillBuffer", "gpu_memset"),
        ("MEMSET", "gpu_memset"),
        ("Task", "kernel"),
        ("dispatch", "kernel"),
    ],
)
def test_the_category_is_that_of_the_type(tmp_path: Path, type_: str, category: str) -> None:
    path = write_database(tmp_path / "t.db", RPD_2, [Op("k", EPOCH, EPOCH + 1, type=type_)])
    assert [row[1] for row in rows(read_rocpd(str(path)))] == [category]


def test_ops_of_no_length_leave_the_others_their_categories(tmp_path: Path) -> None:
    ops = [Op("k", EPOCH, EPOCH), Op("c", EPOCH, EPOCH + 1, type="CopyHostToDevice"), Op("k", EPOCH + 2, EPOCH + 3)]
    found = read_rocpd(str(write_database(tmp_path / "t.db", RPD_2, ops))).activities
    assert [*found.category] == ["gpu_memcpy", "kernel"]


def test_ranges_that_follow_each_other_or_begin_together_share_a_lane(tmp_path: Path) -> None:
    spans = [(0, 50), (0, 100), (50, 100), (100, 200), (150, 201), (200, 210)]
    ranges = [Range(str(number), EPOCH + start, EPOCH + end) for number, (start, end) in enumerate(spans)]
    trace = read_rocpd(str(write_database(tmp_path / "t.db", LITE, [Op("k", EPOCH, EPOCH + 1)], ranges=ranges)))
    assert [int(trace.ops.name[row]) for row in range(6)] == [1, 0, 2, 3, 4, 5]
    assert trace.ops.thread.tolist() == [0, 0, 0, 0, 1, 0]
    assert (trace.ops.rf_id.tolist(), trace.ops.event_index.tolist()) == ([0] * 6, [-1] * 6)


def test_ranges_without_a_process_are_of_the_files(tmp_path: Path) -> None:
    ranges = [Range("a", EPOCH, EPOCH + 5)]
    trace = read_rocpd(str(write_database(tmp_path / "t.db", LITE, [], ranges=ranges, pid=60)))
    assert (trace.ops.process.tolist(), trace.ops.thread.tolist()) == ([60], [0])


def test_a_range_that_lasts_no_time_or_has_no_end_is_a_mark(tmp_path: Path) -> None:
    path = write_database(tmp_path / "t.db", RPD_2, [], ranges=[Range(name, EPOCH, EPOCH + 5) for name in "abc"])
    sql(path, "UPDATE rocpd_api SET end = start WHERE id = 1; UPDATE rocpd_api SET end = NULL WHERE id = 2;")
    trace = read_rocpd(str(path))
    assert ([*trace.ops.name], trace.skipped) == (["c"], {Reason.ROCTX_MARKS: 2})


def test_ranges_of_a_recorded_thread_stay_on_it_even_if_its_number_is_0(tmp_path: Path) -> None:
    ranges = [Range("a", EPOCH, EPOCH + 5, tid=0), Range("b", EPOCH + 2, EPOCH + 9, tid=0)]
    trace = read_rocpd(str(write_database(tmp_path / "t.db", RPD_2, [], ranges=ranges)))
    assert trace.ops.thread.tolist() == [0, 0]
