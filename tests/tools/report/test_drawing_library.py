"""The scripts that draw charts are bundled once, and again where they cannot be kept."""

from pathlib import Path

import pytest
from support.reports import needs_page


@needs_page
def test_scripts_are_bundled_once_and_again_where_they_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vl_convert
    from execgraph.tools.report.drawing_library import drawing_library

    bundled: list[str] = []
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda script: bundled.append(script) or "drawn")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    assert [drawing_library(), drawing_library()] == ["drawn", "drawn"] and len(bundled) == 1
    [kept] = tmp_path.rglob("*.js")
    kept.write_text("alert(1)")
    assert drawing_library() == "drawn" and kept.read_text() == "drawn"
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert drawing_library() == "drawn" and len(bundled) == 3
