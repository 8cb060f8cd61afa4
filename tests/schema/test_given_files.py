"""Paths are told from objects, and an argument of the wrong kind is named."""

import io
from pathlib import Path

import pytest
from execgraph.schema.given_files import is_file, is_path, path_of


def test_text_and_paths_are_files_and_nothing_else_is() -> None:
    assert is_path("graph.0.et") and is_path(Path("graph.0.et"))
    assert not is_path(None) and not is_path(["graph.0.et"])


def test_an_open_file_is_read_from_where_it_stands_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "host_rank3.json").write_bytes(b"skipped {}")
    with (tmp_path / "host_rank3.json").open("rb") as stream:
        stream.seek(8)
        with path_of(stream) as path:
            assert (Path(path).name, Path(path).read_bytes()) == ("host_rank3.json", b"{}")
    assert not Path(path).exists()


def test_a_file_without_a_name_is_read_too_and_one_that_is_open_as_text_is_refused() -> None:
    assert is_file(io.BytesIO()) and not is_file([])
    with path_of(io.BytesIO(b"{}")) as path:
        assert Path(path).read_bytes() == b"{}"
    with pytest.raises(TypeError, match="open it with mode 'rb'"), path_of(io.StringIO()):  # type: ignore[arg-type]
        pass
    with pytest.raises(TypeError, match="is wanted, not int"), path_of(3):  # type: ignore[arg-type]
        pass
