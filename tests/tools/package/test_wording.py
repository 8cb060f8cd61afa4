"""Errors name arguments of Python in place of options of commands."""

from pathlib import Path

import pytest
from execgraph import DataError, link, read_device_trace
from execgraph.wording import IN_PYTHON, in_python

FOLDER = Path("tests/data/training")


def test_an_error_names_the_argument_that_helps(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="allow_mismatch=True links them all the same") as raised:
        link(FOLDER / "host_rank0.json.gz", FOLDER / "device_rank1.json.gz")
    assert "--" not in str(raised.value)
    (tmp_path / "device.json").write_text('{"traceEvents": [{"ph": "X", "ts": 1, "dur": 2')
    with pytest.raises(DataError, match="leave strict out"):
        read_device_trace(tmp_path / "device.json", strict=True)


def test_no_replacement_leaves_an_option_of_a_command() -> None:
    assert [text for text in IN_PYTHON.values() if "--" in text or "trace-" in text] == []
    assert in_python("build them") == "build them"
