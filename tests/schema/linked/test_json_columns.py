"""Columns become the JSON objects that their rows are."""

import json
from decimal import Decimal

import numpy as np
from execgraph.schema.columns import Spans
from execgraph.schema.linked import nanoseconds
from execgraph.schema.linked.json_columns import (
    Member,
    SparseMember,
    integers,
    lists,
    microsecond_spans,
    objects,
    strings,
)
from hypothesis import given, strategies as st

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
ROWS = st.lists(st.tuples(INT64, st.text(), st.none() | INT64), min_size=1, max_size=20)


def column(values: list[int]) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.array(values, np.int64)


def parsed(text: bytes) -> list[dict[str, object]]:
    return list(json.loads(b"[" + text + b"]"))


@given(ROWS)
def test_each_row_is_an_object_of_the_members_that_it_has(rows: list[tuple[int, str, int | None]]) -> None:
    given_rows = [row for row, (_, _, value) in enumerate(rows) if value is not None]
    members = [
        Member("id", [integers(column([number for number, _, _ in rows]))]),
        Member("name", [strings(name for _, name, _ in rows)]),
        Member("some", [integers(column([value for _, _, value in rows if value is not None]))], column(given_rows)),
    ]
    expected = [
        {"id": number, "name": name} | ({} if value is None else {"some": value}) for number, name, value in rows
    ]
    assert parsed(objects(members, len(rows))) == expected


@given(st.lists(st.integers(-(1 << 60), 1 << 60), min_size=1))
def test_times_are_exact_microseconds_without_needless_zeros(times: list[int]) -> None:
    written = json.loads(
        b"[" + objects([Member("ts", microsecond_spans(column(times)))], len(times)) + b"]", parse_float=Decimal
    )
    stamps = [Decimal(node["ts"]) for node in written]
    assert nanoseconds(stamps).tolist() == times
    assert all(not str(stamp).endswith("0") for stamp in stamps if "." in str(stamp))


def test_values_of_one_row_become_its_list_in_their_order() -> None:
    member = lists("sync_dep", column([4, 1, 4, 4]), column([30, -10, 20, 30]))
    assert parsed(objects([member.within(slice(4, 5))], 1)) == [{"sync_dep": [30, 20, 30]}]
    assert parsed(objects([member.within(slice(1, 2))], 1)) == [{"sync_dep": [-10]}]


def test_a_block_has_its_own_part_of_a_sparse_member() -> None:
    member = SparseMember("odd", [Spans.of([b"1", b"3", b"5"])], column([1, 3, 5]))
    everywhere = Member("id", [integers(column([2, 3, 4]))])
    assert parsed(objects([everywhere, member.within(slice(2, 5))], 3)) == [{"id": 2}, {"id": 3, "odd": 3}, {"id": 4}]
