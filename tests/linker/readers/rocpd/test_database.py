"""What is taken from a rocpd database: columns of integers, texts, who wrote it, and which processes it is of."""

import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from execgraph.linker.readers import dialect, is_rocpd, opened, processes
from execgraph.linker.readers.rocpd_database import Database
from execgraph.schema.errors import DataError
from support.databases import LITE, RPD_2, RPD_3

Opened = Callable[[str], Database]
NEEDED = "CREATE TABLE rocpd_op (id); CREATE TABLE rocpd_string (id, string);"


def numbers(count: int) -> str:
    return f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"


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


# columns


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
    )
    found = made.strings("t", "1, 3, 4")
    assert (found.keys(), found[1], len(found[4])) == ({1, 4}, "one", 65_536)
    assert made.strings("absent", "1") == {}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="sqlite3 of Python 3.10 sets no limits")
def test_a_value_of_more_than_16_mib_is_damage(database: Opened) -> None:
    most = 1 << 24
    made = database(
        f"CREATE TABLE t (a, b); INSERT INTO t VALUES (1, zeroblob({most - 100})), (2, zeroblob({most + 1}));"
    )
    [[(value,)]] = made.read("SELECT b FROM t WHERE a = 1")
    assert value == bytes(most - 100)
    with pytest.raises(sqlite3.DataError, match="too big"):
        list(made.read("SELECT b FROM t WHERE a = 2"))


def test_more_rows_than_the_file_has_bytes_are_damage(database: Opened) -> None:
    made = database(f"CREATE TABLE t (a); {numbers(1000)} INSERT INTO t SELECT i FROM n;")
    size, pairs = Path(made.path).stat().st_size, "SELECT 1 FROM t AS first, t AS second LIMIT"
    assert sum(map(len, made.read(f"{pairs} {size}"))) == size
    with pytest.raises(DataError, match="it has more rows than bytes"):
        list(made.read(f"{pairs} {size + 1}"))


def test_long_tables_come_in_pieces_of_65536_rows(database: Opened) -> None:
    made = database(f"CREATE TABLE t (a); {numbers(70_000)} INSERT INTO t SELECT i FROM n;")
    assert [len(rows) for rows in made.read("SELECT a FROM t")] == [65_536, 70_000 - 65_536]
    assert made.integers("t", "a")[-1].tolist() == [70_000]


def test_columns_are_those_of_a_real_table(database: Opened) -> None:
    made = database("CREATE TABLE t (a, b); CREATE VIEW v AS SELECT 1 AS c;")
    assert (made.columns("t"), made.columns("v"), made.tables) == ({"a", "b"}, set(), {"t"})


# what a file must not do


@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        "SELECT hex(zeroblob(1000000)) FROM t",
        "SELECT load_extension('x')",
        "ATTACH ':memory:' AS other",
        "INSERT INTO t VALUES (1)",
        "PRAGMA query_only = OFF",
    ],
)
def test_only_tables_are_read(database: Opened, query: str) -> None:
    made = database("CREATE TABLE t (a);")
    with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited"):
        list(made.read(query))


def test_what_takes_more_steps_than_its_size_explains_is_stopped(database: Opened) -> None:
    made = database(f"CREATE TABLE t (a); {numbers(3000)} INSERT INTO t SELECT i FROM n;")
    begin = time.process_time()
    with pytest.raises(DataError, match="takes more steps than its size explains"):
        list(made.read("SELECT 1 FROM t AS x, t AS y, t AS z WHERE x.a + y.a + z.a < 0"))
    assert time.process_time() - begin < 5
    assert len(made.integers("t", "a")) == 3000


@pytest.mark.parametrize("kind", ["VIRTUAL", "STORED"])
def test_columns_that_are_computed_are_refused(database: Opened, kind: str) -> None:
    columns = f"id INTEGER, string TEXT GENERATED ALWAYS AS (hex(zeroblob(id))) {kind}"
    made = database(f"CREATE TABLE t ({columns}); INSERT INTO t (id) VALUES (1);")
    for read in (lambda: made.strings("t", "1"), lambda: made.integers("t", "id")):
        with pytest.raises(DataError, match="the column string of t is computed"):
            read()


def test_a_text_that_all_rows_have_without_holding_it_is_damage(database: Opened) -> None:
    rows = f"CREATE TABLE t (id); {numbers(10_000)} INSERT INTO t SELECT i FROM n;"
    made = database(f"{rows} ALTER TABLE t ADD COLUMN string TEXT DEFAULT '{'a' * 60_000}';")
    with pytest.raises(DataError, match="it has more text than bytes"):
        made.strings("t", "SELECT id FROM t")
    assert len(made.strings("t", "1")[1]) == 60_000


def test_a_view_in_the_place_of_a_table_is_named(database: Opened) -> None:
    endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, i AS pid FROM n"
    with pytest.raises(DataError, match="rocpd_api is a view, where profilers write a table"):
        dialect(database(f"{NEEDED} CREATE VIEW rocpd_api AS {endless};"))


def test_a_table_with_triggers_and_indexes_is_read_as_any(database: Opened) -> None:
    made = database(
        "CREATE TABLE t (id, a); INSERT INTO t VALUES (1, 5); CREATE INDEX i ON t (hex(zeroblob(a)));"
        "CREATE TRIGGER r AFTER INSERT ON t BEGIN INSERT INTO t VALUES (1, 1); END; CREATE VIEW v AS SELECT * FROM v;"
    )
    assert made.integers("t", "id", "a").tolist() == [[1, 5]]


# who wrote it


@pytest.mark.parametrize(
    ("tables", "name", "arguments"),
    [
        ("CREATE TABLE rocpd_ustring (id, string);", RPD_3, "rocpd_ustring"),
        ("CREATE TABLE rocpd_kernelapi (api_id);", LITE, "rocpd_string"),
        ("CREATE TABLE rocpd_kernelapi (api_ptr_id);", RPD_2, "rocpd_string"),
        ("", RPD_2, "rocpd_string"),
    ],
)
def test_the_dialect_is_told_by_tables_and_columns(database: Opened, tables: str, name: str, arguments: str) -> None:
    assert dialect(database(NEEDED + tables)) == (name, arguments)


def test_of_another_database_four_tables_are_named(database: Opened) -> None:
    with pytest.raises(DataError, match=r"\(its tables: a, b, c, d\)"):
        dialect(database("".join(f"CREATE TABLE {name} (id);" for name in "edcba")))


def test_a_database_without_tables_says_so(database: Opened) -> None:
    made = database("")
    assert not is_rocpd(made)
    with pytest.raises(DataError, match=r"\(its tables: none\)"):
        dialect(made)


def test_any_table_of_a_profiler_makes_a_rocpd_file(database: Opened) -> None:
    assert is_rocpd(database("CREATE TABLE other (id); CREATE TABLE rocpd_any (id);"))


# whose it is


CALLS = "CREATE TABLE rocpd_api (id, pid); INSERT INTO rocpd_api VALUES (1, 70), (2, 60), (3, 80);"
LAUNCHES = "CREATE TABLE rocpd_api_ops (api_id, op_id);"


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("", []),
        ("CREATE TABLE rocpd_api (id);", []),
        (CALLS, [60, 70, 80]),
        (CALLS + LAUNCHES, [60, 70, 80]),
        (CALLS + LAUNCHES + "INSERT INTO rocpd_api_ops VALUES (1, 1), (2, 2);", [60, 70]),
        (CALLS + "DELETE FROM rocpd_api WHERE id > 1;" + LAUNCHES, [70]),
        (CALLS + "DELETE FROM rocpd_api WHERE id > 2;" + LAUNCHES + "INSERT INTO rocpd_api_ops VALUES (1, 1);", [70]),
    ],
)
def test_processes_are_those_that_launched_or_else_all_with_calls(
    database: Opened, script: str, found: list[int]
) -> None:
    assert processes(database(script)) == found


def test_the_file_itself_knows_better_whose_it_is(database: Opened) -> None:
    said = "CREATE TABLE rocpd_metadata (tag, value); INSERT INTO rocpd_metadata VALUES ('pid', '5'), ('version', '9');"
    assert processes(database(CALLS + said)) == [5]


def test_metadata_without_a_process_says_nothing(database: Opened) -> None:
    said = "CREATE TABLE rocpd_metadata (tag, value); INSERT INTO rocpd_metadata VALUES ('version', '9');"
    assert processes(database(CALLS + said)) == [60, 70, 80]
