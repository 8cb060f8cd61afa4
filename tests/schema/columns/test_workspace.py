"""Large columns in the workspace: they are the same there, no file of theirs has a name, and outputs are the same."""

import mmap
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from execgraph.schema.columns import (
    AttributeTable,
    BytesColumn,
    BytesColumnBuilder,
    Categorical,
    Int64,
    IntegerBuilder,
    JsonRecords,
    Lookup,
    Nesting,
    Table,
    builders,
    workspace,
    workspace_in,
)
from execgraph.tools.commands import trace_convert, trace_link
from hypothesis import given, strategies as st

TEXTS = st.lists(st.sampled_from([b"", b"a", b"bc", b"[1,2]"]), max_size=12)


@pytest.fixture
def all_in_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest column counts as large."""
    monkeypatch.setattr(workspace, "LARGE", 1)
    monkeypatch.setattr(builders, "PIECE", 1)
    monkeypatch.setattr(builders, "TEXT_PIECE", 1)


@given(TEXTS, TEXTS)
def test_a_column_of_texts_is_like_a_list(some: list[bytes], more: list[bytes]) -> None:
    column, both = BytesColumn.of(some), BytesColumn.joined([BytesColumn.of(some), BytesColumn.of(more)])
    assert column == some and both == some + more and both[:] == some + more
    assert [both[row] for row in range(len(both))] == some + more
    backwards = np.arange(len(both))[::-1]
    assert both.at(backwards) == both.take(backwards) == (some + more)[::-1]
    assert both.differ(b"a").tolist() == [text != b"a" for text in some + more]


@pytest.mark.usefixtures("all_in_workspace")
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 9)), max_size=8))
def test_numbers_are_looked_up_as_in_a_dict(pairs: list[tuple[int, int]]) -> None:
    keys, values = np.array(pairs, np.int64).reshape(-1, 2).T
    found, asked = dict(pairs), range(-4, 5)
    with workspace_in(Path(tempfile.gettempdir())):
        numbers = Lookup(keys, values)
        assert numbers.of(np.array(asked)).tolist() == [numbers.get(key) for key in asked]
    assert {key: numbers.get(key) for key in asked if key in numbers} == found


@dataclass(slots=True, repr=False)
class Shapes(Table):
    """Columns of all kinds."""

    number: Int64
    name: Categorical
    text: BytesColumn
    record: JsonRecords[int]


def shapes(pieces: list[list[bytes]]) -> Shapes:
    texts = BytesColumnBuilder()
    for piece in pieces:
        texts.add(piece)
    return Shapes(np.arange(1000), Categorical.of(["mm", "add", "mm"]), texts.column(), JsonRecords.of({3: 7}, int))


@pytest.mark.usefixtures("all_in_workspace")
def test_the_columns_of_a_table_are_the_same_in_the_workspace_and_keep_changes(tmp_path: Path) -> None:
    pieces = [[b"a", b"bc"], [], [b"a", b""]]
    with workspace_in(tmp_path):
        table = shapes(pieces)
        table.number[3] = -1
        assert not [*tmp_path.iterdir()]
    assert is_mapped(table.number) and is_mapped(table.name.codes) and is_mapped(table.text.start)
    assert table.number.tolist() == [0, 1, 2, -1, *range(4, 1000)]
    assert [table.name[row] for row in range(3)] == ["mm", "add", "mm"]
    assert table.text == [b"a", b"bc", b"a", b""] and {**table.record} == {3: 7}


@pytest.mark.usefixtures("all_in_workspace")
def test_a_changed_table_keeps_the_columns_that_did_not_change_where_they_are(tmp_path: Path) -> None:
    with workspace_in(tmp_path):
        table = shapes([[b"a"]])
        changed = replace(table, number=np.zeros(1000, np.int64))
    assert changed.name.codes is table.name.codes and changed.text.start is table.text.start
    assert is_mapped(changed.number) and not changed.number.any()


@pytest.mark.usefixtures("all_in_workspace")
def test_attributes_go_to_the_workspace_one_by_one(tmp_path: Path) -> None:
    with workspace_in(tmp_path):
        attributes = AttributeTable()
        attributes["size"] = np.arange(5)
        attributes.extend([("kind", Categorical.of(["a", "b"]))])
    assert is_mapped(attributes["size"]) and is_mapped(attributes["kind"].codes)
    assert attributes["size"].tolist() == [0, 1, 2, 3, 4] and attributes["kind"][1] == "b"


def test_without_a_folder_or_room_in_it_all_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "LARGE", 1)
    monkeypatch.setattr(builders, "TEXT_PIECE", 1)
    assert not is_mapped(shapes([[b"a"]]).number)
    with workspace_in(tmp_path / "not there"):
        table = shapes([[b"a"], [b"b"]])
    assert not is_mapped(table.number) and table.text == [b"a", b"b"]


def is_mapped(column: npt.NDArray[Any]) -> bool:
    """Whether an array is a view of a file."""
    base: Any = column
    while getattr(base, "base", None) is not None:
        base = base.base
    return isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


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
        monkeypatch.setattr(builders, "PIECE", 1)
        monkeypatch.setattr(builders, "TEXT_PIECE", 1)
    for name in ("linked.json", "graph.et"):
        assert (tmp_path / "memory" / name).read_bytes() == (tmp_path / "disk" / name).read_bytes()
    assert {path.name for path in (tmp_path / "disk").iterdir()} == {"linked.json", "graph.et"}


@given(st.lists(st.lists(st.integers(-(2**62), 2**62), max_size=5), max_size=5), st.booleans())
def test_numbers_come_together_from_pieces(given_pieces: list[list[int]], workspace_too: bool) -> None:
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as folder:
        patched.setattr(builders, "PIECE", 1)
        with workspace_in(Path(folder)) if workspace_too else nullcontext():
            column = IntegerBuilder()
            for piece in given_pieces:
                column.add(np.array(piece, np.int64))
            found = column.column()
            assert found.tolist() == [*chain.from_iterable(given_pieces)]
            found[:] = 0  # a column may be changed


def test_a_table_needs_one_file_for_columns_that_came_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builders, "PIECE", 1)
    open_files = Path("/proc/self/fd")
    if not open_files.is_dir():
        pytest.skip("only Linux shows the open files")
    with workspace_in(tmp_path):
        before = len([*open_files.iterdir()])
        columns = {name: IntegerBuilder() for name in ("parent", "end", "exclusive")}
        for number, column in enumerate(columns.values()):
            column.add(np.full(9, number))
        nesting = Nesting(**{name: column.column() for name, column in columns.items()}, clipped=0)
        del column, columns
        assert len([*open_files.iterdir()]) <= before + 1
    assert nesting.end.tolist() == [1] * 9
