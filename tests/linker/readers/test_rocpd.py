"""What is taken from a rocpd database: columns of integers, texts, who wrote it, and which processes it is of.

Ranges of unknown threads on the first of the lanes on which they nest, next to a search through all lanes. Rows of
rocpd databases: their process, zero or absent times, hardware queues, categories, and lanes of ranges.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import execgraph as eg
import numpy as np
import pytest
from execgraph.linker.readers import opened, read_device_trace
from execgraph.linker.readers.database import Database
from execgraph.linker.readers.rocpd import dialect, is_rocpd, processes
from execgraph.schema.columns import ThreadIntervals, nesting_lanes
from execgraph.schema.errors import DataError
from execgraph.schema.reasons import Reason
from hypothesis import given, strategies as st
from support.databases import EPOCH, LITE, RPD_2, RPD_3, Api, Op, Range, rows, sql, write_database

Opened = Callable[[str], Database]
NEEDED = "CREATE TABLE rocpd_op (id); CREATE TABLE rocpd_string (id, string);"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Opened]:
    """The database that a script makes."""
    with ExitStack() as stack:

        def make(script: str) -> Database:
            path = tmp_path / "trace.db"
            with closing(sqlite3.connect(path)) as connection:
                connection.executescript("PRAGMA synchronous = OFF;" + script)
            return stack.enter_context(opened(str(path)))

        yield make


def test_rows_are_in_the_order_of_their_ids_and_what_is_absent_is_minus_one(database: Opened) -> None:
    made = database("CREATE TABLE t (id, a); INSERT INTO t VALUES (2, 20), (1, NULL), (3, '30');")
    assert made.integers("t", "id", "b", "a").tolist() == [[1, -1, -1], [2, -1, 20], [3, -1, 30]]
    assert made.integers("absent", "a", "b").shape == (0, 2)


def test_rows_without_ids_are_in_the_order_of_the_file_and_a_table_may_be_empty(database: Opened) -> None:
    made = database("CREATE TABLE t (a); INSERT INTO t VALUES (2), (1); CREATE TABLE none (a, b);")
    assert made.integers("t", "a").tolist() == [[2], [1]]
    assert made.integers("none", "a", "b").shape == (0, 2)


def test_different_numbers_are_ascending_and_of_the_chosen_rows(database: Opened) -> None:
    made = database("CREATE TABLE t (a, b); INSERT INTO t VALUES (3, 1), (2, 1), (3, 1), (NULL, 1), (1, 0);")
    assert made.different("a", "t") == [1, 2, 3]
    assert made.different("a", "t", "b = 1") == [2, 3]


def test_texts_are_those_asked_for_and_no_longer_than_65536(database: Opened) -> None:
    made = database(
        "CREATE TABLE t (id, string); INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, NULL), (4, hex(zeroblob(40000)));"
        "CREATE TABLE named (a); INSERT INTO named VALUES (1), (2), (3), (4);"
    )
    found = made.texts("t", "string", ("named", "a"), ("absent", "a"), where="a != 2")
    assert (found.keys(), found[1], len(found[4])) == ({1, 4}, "one", 65_536)
    assert made.texts("absent", "string", ("named", "a")) == {}


def test_columns_are_those_of_a_real_table(database: Opened) -> None:
    made = database("CREATE TABLE t (a, b, c GENERATED ALWAYS AS (hex(a))); CREATE VIEW v AS SELECT 1 AS c;")
    assert (made.columns("t"), made.columns("v"), made.tables) == ({"a", "b"}, set(), {"t"})


@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        "SELECT hex(zeroblob(1000000)) FROM t",
        "SELECT load_extension('x')",
        "ATTACH ':memory:' AS other",
        "INSERT INTO t VALUES (1)",
        "PRAGMA query_only = OFF",
        "SELECT 1 FROM t AS x, t AS y, t AS z WHERE x.a + y.a + z.a < 0",
    ],
)
def test_only_tables_are_read_and_not_for_ever(database: Opened, query: str) -> None:
    made = database(f"CREATE TABLE t (a); INSERT INTO t VALUES {', '.join(['(1)'] * 3000)};")
    with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited|interrupted"):
        list(made.read(query))


def test_a_table_with_triggers_and_indexes_is_read_as_any(database: Opened) -> None:
    made = database(
        "CREATE TABLE t (id, a); INSERT INTO t VALUES (1, 5); CREATE INDEX i ON t (hex(zeroblob(a)));"
        "CREATE TRIGGER r AFTER INSERT ON t BEGIN INSERT INTO t VALUES (1, 1); END; CREATE VIEW v AS SELECT * FROM v;"
    )
    assert made.integers("t", "id", "a").tolist() == [[1, 5]]


@pytest.mark.parametrize(
    ("tables", "name", "arguments"),
    [
        ("CREATE TABLE rocpd_ustring (id, string);", RPD_3, "rocpd_ustring"),
        ("CREATE TABLE rocpd_kernelapi (api_id);", LITE, "rocpd_string"),
        ("CREATE TABLE rocpd_kernelapi (api_ptr_id);", RPD_2, "rocpd_string"), ("", RPD_2, "rocpd_string"),
    ],
)  # fmt: skip
def test_the_dialect_is_told_by_tables_and_columns(database: Opened, tables: str, name: str, arguments: str) -> None:
    assert dialect(database(NEEDED + tables)) == (name, arguments)


def test_of_another_database_four_tables_are_named(database: Opened) -> None:
    with pytest.raises(DataError, match=r"\(its tables: a, b, c, d\)"):
        dialect(database("".join(f"CREATE TABLE {name} (id);" for name in "edcba")))


def test_any_table_of_a_profiler_makes_a_rocpd_file_and_a_database_without_tables_says_so(
    database: Opened, tmp_path: Path
) -> None:
    assert not is_rocpd(database(""))
    with closing(sqlite3.connect(tmp_path / "trace.db")) as connection:
        connection.execute("VACUUM")
    with pytest.raises(DataError, match=r"\(its tables: none\)"):
        read_device_trace(str(tmp_path / "trace.db"))
    assert is_rocpd(database("CREATE TABLE other (id); CREATE TABLE rocpd_any (id);"))


CALLS = "CREATE TABLE rocpd_api (id, pid); INSERT INTO rocpd_api VALUES (1, 70), (2, 60), (3, 80);"
LAUNCHES = "CREATE TABLE rocpd_api_ops (api_id, op_id);"
METADATA = "CREATE TABLE rocpd_metadata (tag, value);"


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("", []),
        ("CREATE TABLE rocpd_api (id);", []),
        (CALLS, [60, 70, 80]),
        (CALLS + LAUNCHES, [60, 70, 80]),
        (CALLS + LAUNCHES + "INSERT INTO rocpd_api_ops VALUES (1, 1), (2, 2);", [60, 70]),
        (CALLS + "DELETE FROM rocpd_api WHERE id > 1;" + LAUNCHES, [70]),
        (CALLS + METADATA + "INSERT INTO rocpd_metadata VALUES ('pid', '5'), ('version', '9');", [5]),
        (CALLS + METADATA + "INSERT INTO rocpd_metadata VALUES ('version', '9');", [60, 70, 80]),
        (CALLS + "DELETE FROM rocpd_api WHERE id > 2;" + LAUNCHES + "INSERT INTO rocpd_api_ops VALUES (1, 1);", [70]),
    ],
)
def test_processes_are_those_that_the_file_names_or_that_launched_or_else_all_with_calls(database, script, found):
    assert processes(database(script)) == found


Span = tuple[int, int]


def first_lanes(spans: list[Span]) -> list[int]:
    """The lane of each range: the first one whose open ranges all last at least as long."""
    lanes: list[list[Span]] = []
    found = []
    for begin, end in spans:
        nesting = (at for at, lane in enumerate(lanes) if all(until <= begin or until >= end for _, until in lane))
        lane = next(nesting, len(lanes))
        lanes[lane : lane + 1] = [[*(lanes[lane] if lane < len(lanes) else []), (begin, end)]]
        found.append(lane)
    return found


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), max_size=25))
def test_each_range_is_on_the_first_lane_on_which_it_nests(drawn: list[Span]) -> None:
    spans = sorted(((begin, begin + length) for begin, length in drawn), key=lambda span: (span[0], -span[1]))
    start, end = np.array(spans, np.int64).reshape(-1, 2).T
    assert nesting_lanes(ThreadIntervals(np.zeros_like(start), start, end)).tolist() == first_lanes(spans)


def test_ops_that_no_process_launched_are_of_none_of_several(tmp_path: Path) -> None:
    ops = [Op("a", EPOCH, EPOCH + 5, caller=1), Op("b", EPOCH, EPOCH + 5, caller=2), Op("c", EPOCH, EPOCH + 5)]
    api = [Api("hipLaunchKernel", EPOCH - 9, EPOCH - 5, pid=pid) for pid in (70, 60)]
    trace = read_device_trace(str(write_database(tmp_path / "t.db", RPD_2, ops, api)))
    assert sorted(trace.activities.process.tolist()) == [-1, 60, 70]
    assert trace.skipped == {Reason.OPS_OF_NO_PROCESS: 1}
    assert trace.labels == [(60, "rank 0"), (70, "rank 1")]


@pytest.mark.parametrize("shifted", [0, 1])
def test_launch_links_to_calls_that_name_another_kernel_are_counted_and_said(tmp_path: Path, shifted: int) -> None:
    ops = [Op(f"k{n}", EPOCH + 10 * n, EPOCH + 10 * n + 5, caller=n + 1 - shifted) for n in range(shifted, 4)]
    api = [Api("hipLaunchKernel", EPOCH - 50 + 10 * n, EPOCH - 45 + 10 * n) for n in range(4)]
    path = write_database(tmp_path / "t.db", RPD_2, ops, api)
    with closing(sqlite3.connect(path)) as connection:
        for n in range(4):
            named = f"(SELECT max(id) FROM rocpd_string WHERE string = 'k{n}')"
            connection.execute(f"INSERT INTO rocpd_kernelapi VALUES ({n + 1}, 0, {named})")
        connection.commit()
    trace = eg.link(None, path)
    said = any("2 activities are linked to calls that name another kernel" in note for note in trace.report.notes)
    assert (trace.report.dropped[Reason.LINKS_OF_OTHER_KERNELS], said) == (2 * shifted, bool(shifted))


def test_ops_are_of_their_device_as_kineto_has_them(tmp_path: Path) -> None:
    ops = [Op("a", EPOCH, EPOCH + 5, gpu=3)]
    known = read_device_trace(str(write_database(tmp_path / "known.db", LITE, ops, pid=60)))
    unknown = read_device_trace(str(write_database(tmp_path / "unknown.db", RPD_2, ops)))
    assert (known.activities.process.tolist(), unknown.activities.process.tolist()) == ([3], [3])
    assert (known.merge_marks, known.labels) == ([], [(60, "CPU")])


def test_times_may_be_zero(tmp_path: Path) -> None:
    ops, api, ranges = [Op("k", 0, 1)], [Api("hipFree", 0, 0), Api("hipFree", 3, 2)], [Range("mark", 0, 1)]
    trace = read_device_trace(str(write_database(tmp_path / "t.db", RPD_2, ops, api, ranges)))
    assert [len(table.start) for table in (trace.activities, trace.calls, trace.ops)] == [1, 1, 1]
    assert (trace.skipped, trace.read) == ({Reason.API_ROWS_WITHOUT_END: 1}, 4)


def test_rows_without_a_start_are_counted(tmp_path: Path) -> None:
    ops, api = [Op("k", EPOCH, EPOCH + 1)] * 2, [Api("hipFree", EPOCH, EPOCH + 1)] * 2
    path = write_database(tmp_path / "t.db", RPD_2, ops, api, [Range("mark", EPOCH, EPOCH + 1)])
    sql(path, "UPDATE rocpd_op SET start = NULL WHERE id = 2; UPDATE rocpd_api SET start = NULL WHERE id > 1;")
    trace = read_device_trace(str(path))
    assert [len(table.start) for table in (trace.activities, trace.calls, trace.ops)] == [1, 1, 0]
    assert trace.skipped == {Reason.ZERO_LENGTH_OPS: 1, Reason.API_ROWS_WITHOUT_END: 1, Reason.ROCTX_MARKS: 1}


@pytest.mark.parametrize(
    ("signal", "queue"), [("hwq=5", 5), ("HWQ : 0x1f", 31), ("a hwq=0 b", 0), ("hwq=", 9), ("myhwq=5", 9), ("", 9)]
)
def test_a_hardware_queue_is_a_number_behind_its_word(tmp_path: Path, signal: str, queue: int) -> None:
    path = write_database(tmp_path / "t.db", RPD_2, [Op("k", EPOCH, EPOCH + 1, queue=9)])
    sql(path, f"UPDATE rocpd_op SET completionSignal = '{signal}'")
    assert read_device_trace(str(path)).activities.stream.tolist() == [queue]


@pytest.mark.parametrize(
    ("queues", "ops", "streams"), [(128, 1, 128), (129, 1, 1), (129, 2, 129)], ids=["few", "many", "of several ops"]
)
def test_more_than_128_queues_of_fewer_than_two_ops_number_dispatches(tmp_path, queues, ops, streams):
    rows = [Op("k", EPOCH + n, EPOCH + n + 1, queue=1000 + n % queues) for n in range(queues * ops)]
    other = Op("k", EPOCH, EPOCH + 1, gpu=1, queue=5)
    trace = read_device_trace(str(write_database(tmp_path / "t.db", LITE, [*rows, other])))
    assert len(np.unique(trace.activities.stream[trace.activities.device == 0])) == streams
    assert trace.activities.stream[-1] == 5
    assert trace.skipped == ({Reason.DISPATCH_NUMBERS_AS_QUEUES: 129} if streams == 1 else {})


@pytest.mark.parametrize(
    ("type_", "category"),
    [
        ("CopyHostToDevice", "gpu_memcpy"), ("hipMemcpyAsync", "gpu_memcpy"), ("FillBuffer", "gpu_memset"),
        ("MEMSET", "gpu_memset"), ("Task", "kernel"), ("dispatch", "kernel"),
    ],
)  # fmt: skip
def test_the_category_is_that_of_the_type(tmp_path: Path, type_: str, category: str) -> None:
    path = write_database(tmp_path / "t.db", RPD_2, [Op("k", EPOCH, EPOCH + 1, type=type_)])
    assert [row[1] for row in rows(read_device_trace(str(path)))] == [category]


def test_ops_of_no_length_leave_the_others_their_categories(tmp_path: Path) -> None:
    ops = [Op("k", EPOCH, EPOCH), Op("c", EPOCH, EPOCH + 1, type="CopyHostToDevice"), Op("k", EPOCH + 2, EPOCH + 3)]
    found = read_device_trace(str(write_database(tmp_path / "t.db", RPD_2, ops))).activities
    assert [*found.category] == ["gpu_memcpy", "kernel"]


def test_ranges_without_a_process_are_of_the_files(tmp_path: Path) -> None:
    ranges = [Range("a", EPOCH, EPOCH + 5)]
    trace = read_device_trace(str(write_database(tmp_path / "t.db", LITE, [], ranges=ranges, pid=60)))
    assert (trace.ops.process.tolist(), trace.ops.thread.tolist()) == ([60], [0])


def test_a_range_that_lasts_no_time_or_has_no_end_is_a_mark(tmp_path: Path) -> None:
    path = write_database(tmp_path / "t.db", RPD_2, [], ranges=[Range(name, EPOCH, EPOCH + 5) for name in "abc"])
    sql(path, "UPDATE rocpd_api SET end = start WHERE id = 1; UPDATE rocpd_api SET end = NULL WHERE id = 2;")
    trace = read_device_trace(str(path))
    assert ([*trace.ops.name], trace.skipped) == (["c"], {Reason.ROCTX_MARKS: 2})


def test_ranges_of_a_recorded_thread_stay_on_it_even_if_its_number_is_0(tmp_path: Path) -> None:
    ranges = [Range("a", EPOCH, EPOCH + 5, tid=0), Range("b", EPOCH + 2, EPOCH + 9, tid=0)]
    trace = read_device_trace(str(write_database(tmp_path / "t.db", RPD_2, [], ranges=ranges)))
    assert trace.ops.thread.tolist() == [0, 0]


def test_of_two_traced_processes_the_one_that_launched_is_that_of_the_file(tmp_path: Path) -> None:
    ops, api = [Op("k", EPOCH, EPOCH + 5, caller=1)], [Api("hipLaunchKernel", EPOCH - 9, EPOCH - 5, pid=70)]
    path = write_database(tmp_path / "t.db", LITE, ops, api, pid=60)
    sql(path, "INSERT INTO rocpd_metadata (tag, value) VALUES ('pid', '70')")
    trace = read_device_trace(str(path))
    assert (trace.labels, trace.activities.correlation.tolist()) == ([(70, "CPU")], [1])
