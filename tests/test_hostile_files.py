"""Files that strangers wrote to do harm, through all commands: read, or refused in a line; `make fuzz` runs many more."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "fuzz"))

from commands import KINDS, SHARES, case_of, check

SEED = int(os.environ.get("EXECGRAPH_FUZZ_SEED", "20"))
CASES = 300
TOGETHER = 30


@pytest.mark.parametrize("first", range(0, CASES, TOGETHER))
def test_changed_files_are_read_or_refused(first: int, tmp_path: Path) -> None:
    for number in range(first, first + TOGETHER):
        folder = tmp_path / str(number)
        folder.mkdir()
        check(case_of(SEED, number), folder)


def test_every_kind_of_file_has_its_share() -> None:
    assert {*SHARES} == {*KINDS}
