"""Large columns may be on disk: they are the same there, no file of theirs ever has a name, and what is written is the same."""

from pathlib import Path

import numpy as np
import pytest
from execgraph.schema.columns import Strings, TextPieces, Texts, columns_in, let_go, on_disk, settled
from execgraph.tools.commands import trace_convert, trace_link
from hypothesis import given
from hypothesis import strategies as st

TEXTS = st.lists(st.sampled_from([b"", b"a", b"bc", b"[1,2]"]), max_size=12)


@pytest.fixture
def all_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest column counts as large."""
    monkeypatch.setattr(on_disk, "LARGE", 1)
    monkeypatch.setattr(on_disk, "PIECE", 1)


@given(TEXTS, TEXTS)
def test_a_column_of_texts_is_like_a_list(some: list[bytes], more: list[bytes]) -> None:
    column, both = Texts.of(some), Texts.joined([Texts.of(some), Texts.of(more)])
    assert column == some and both == some + more and both[:] == some + more
    assert [both[row] for row in range(len(both))] == some + more
    backwards = np.arange(len(both))[::-1]
    assert both.at(backwards) == both.take(backwards) == (some + more)[::-1]
    assert both.differ(b"a").tolist() == [text != b"a" for text in some + more]


@pytest.mark.usefixtures("all_on_disk")
def test_columns_on_disk_are_the_same_and_keep_changes(tmp_path: Path) -> None:
    numbers, names = np.arange(1000), Strings.of(["mm", "add", "mm"])
    pieces = [[b"a", b"bc"], [], [b"a", b""]]
    with columns_in(tmp_path):
        column, strings, texts = settled(numbers), settled(names), TextPieces()
        for piece in pieces:
            texts.add(piece)
        column[3] = -1
        let_go()
        assert not [*tmp_path.iterdir()]
    assert column is not numbers and column.tolist() == [0, 1, 2, -1, *range(4, 1000)]
    assert [strings[row] for row in range(3)] == ["mm", "add", "mm"]
    assert texts.column() == [b"a", b"bc", b"a", b""]


@pytest.mark.usefixtures("all_on_disk")
def test_without_a_folder_or_room_in_it_all_stays_in_memory(tmp_path: Path) -> None:
    numbers = np.arange(1000)
    assert settled(numbers) is numbers
    with columns_in(tmp_path / "not there"):
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
        monkeypatch.setattr(on_disk, "LARGE", 1)
        monkeypatch.setattr(on_disk, "PIECE", 1)
    for name in ("linked.json", "graph.et"):
        assert (tmp_path / "memory" / name).read_bytes() == (tmp_path / "disk" / name).read_bytes()
    assert {path.name for path in (tmp_path / "disk").iterdir()} == {"linked.json", "graph.et"}
