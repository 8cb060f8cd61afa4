"""Large columns may be on disk: they are the same there, no file of theirs ever has a name, and what is written is the same."""

import tempfile
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.schema.columns import (
    Lookup,
    NumberPieces,
    Sparse,
    Strings,
    TextPieces,
    Texts,
    pieces,
    workspace,
    workspace_in,
)
from execgraph.tools.commands import trace_convert, trace_link
from hypothesis import given, strategies as st

TEXTS = st.lists(st.sampled_from([b"", b"a", b"bc", b"[1,2]"]), max_size=12)


@pytest.fixture
def all_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest column counts as large."""
    monkeypatch.setattr(workspace, "LARGE", 1)
    monkeypatch.setattr(pieces, "PIECE", 1)
    monkeypatch.setattr(pieces, "TEXT_PIECE", 1)


@given(TEXTS, TEXTS)
def test_a_column_of_texts_is_like_a_list(some: list[bytes], more: list[bytes]) -> None:
    column, both = Texts.of(some), Texts.joined([Texts.of(some), Texts.of(more)])
    assert column == some and both == some + more and both[:] == some + more
    assert [both[row] for row in range(len(both))] == some + more
    backwards = np.arange(len(both))[::-1]
    assert both.at(backwards) == both.take(backwards) == (some + more)[::-1]
    assert both.differ(b"a").tolist() == [text != b"a" for text in some + more]


@pytest.mark.usefixtures("all_workspace")
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 9)), max_size=8))
def test_numbers_are_looked_up_as_in_a_dict(pairs: list[tuple[int, int]]) -> None:
    keys, values = np.array(pairs, np.int64).reshape(-1, 2).T
    found, asked = dict(pairs), range(-4, 5)
    with workspace_in(Path(tempfile.gettempdir())):
        numbers = Lookup(keys, values)
        assert numbers.of(np.array(asked)).tolist() == [numbers.get(key) for key in asked]
    assert {key: numbers.get(key) for key in asked if key in numbers} == found


@pytest.mark.usefixtures("all_workspace")
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_a_filled_column_is_of_one_value_and_keeps_changes(kind: type, tmp_path: Path) -> None:
    count = 3 * workspace.ROWS_AT_ONCE // 2
    with workspace_in(tmp_path):
        column = filled(count, -1, kind)
        column[5] = 3
        let_go()
    assert column.dtype == kind and len(column) == count and column[5] == 3 and (np.delete(column, 5) == -1).all()
    assert [*in_blocks(count)] == [
        slice(0, workspace.ROWS_AT_ONCE),
        slice(workspace.ROWS_AT_ONCE, 2 * workspace.ROWS_AT_ONCE),
    ]


@pytest.mark.usefixtures("all_workspace")
def test_columns_workspace_are_the_same_and_keep_changes(tmp_path: Path) -> None:
    numbers, names = np.arange(1000), Strings.of(["mm", "add", "mm"])
    pieces = [[b"a", b"bc"], [], [b"a", b""]]
    with workspace_in(tmp_path):
        column, strings, texts = settled(numbers), settled(names), TextPieces()
        for piece in pieces:
            texts.add(piece)
        column[3] = -1
        let_go()
        assert not [*tmp_path.iterdir()]
    assert column is not numbers and column.tolist() == [0, 1, 2, -1, *range(4, 1000)]
    assert [strings[row] for row in range(3)] == ["mm", "add", "mm"]
    assert texts.column() == [b"a", b"bc", b"a", b""]


@pytest.mark.usefixtures("all_workspace")
def test_without_a_folder_or_room_in_it_all_stays_in_memory(tmp_path: Path) -> None:
    numbers = np.arange(1000)
    assert settled(numbers) is numbers
    with workspace_in(tmp_path / "not there"):
        texts = TextPieces()
        texts.add([b"a"])
        texts.add([b"b"])
        assert settled(numbers) is numbers and texts.column() == [b"a", b"b"]


def test_what_is_written_does_not_depend_on_where_columns_are(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, device = (str(data / "training" / f"{kind}_rank0.json.gz") for kind in ("host", "device"))
    for folder in (tmp_path / "memory", tmp_path / "disk"):
        folder.mkdir()
        linked, graph = str(folder / "linked.json"), str(folder / "graph.et")
        with pytest.raises(SystemExit, match="0"):
            trace_link.main(["--host-trace", host, "--device-trace", device, "--output", linked, "--quiet"])
        with pytest.raises(SystemExit, match="0"):
            trace_convert.main(["--input", linked, "--output", graph, "--quiet"])
        monkeypatch.setattr(workspace, "LARGE", 1)
        monkeypatch.setattr(pieces, "PIECE", 1)
        monkeypatch.setattr(pieces, "TEXT_PIECE", 1)
    for name in ("linked.json", "graph.et"):
        assert (tmp_path / "memory" / name).read_bytes() == (tmp_path / "disk" / name).read_bytes()
    assert {path.name for path in (tmp_path / "disk").iterdir()} == {"linked.json", "graph.et"}


@given(st.lists(st.lists(st.integers(-(2**62), 2**62), max_size=5), max_size=5), st.booleans())
def test_numbers_come_together_from_pieces(given_pieces: list[list[int]], workspace_too: bool) -> None:
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as folder:
        patched.setattr(pieces, "PIECE", 1)
        with workspace_in(Path(folder)) if workspace_too else nullcontext():
            column = NumberPieces()
            for piece in given_pieces:
                column.add(np.array(piece, np.int64))
            found = settled(column.column())
            assert found.tolist() == column.column().tolist() == [*chain.from_iterable(given_pieces)]
            found[:] = 0  # a column may be changed


def test_a_settled_record_needs_one_file_for_columns_that_came_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE", 1)
    open_files = Path("/proc/self/fd")
    if not open_files.is_dir():
        pytest.skip("only Linux shows the open files")
    with workspace_in(tmp_path):
        before = len([*open_files.iterdir()])
        columns = [NumberPieces() for _ in range(20)]
        for number, column in enumerate(columns):
            column.add(np.full(9, number))
        record = settled({str(number): column.column() for number, column in enumerate(columns)})
        del column, columns
        assert len([*open_files.iterdir()]) <= before + 1
    assert [values.tolist() for values in record.values()] == [[number] * 9 for number in range(20)]


def test_records_of_some_rows_are_as_they_were_given() -> None:
    records = {2: {"a": [1, 2.5]}, 7: {"b": "text", "large": 1 << 70}}
    sparse = Sparse.of(records, dict[str, Any])
    assert sparse == records and 3 not in sparse and sparse.get(8) is None
    kept = np.ones(9, np.bool_)
    kept[[0, 2]] = False
    assert sparse.take(kept) == {5: records[7]}
