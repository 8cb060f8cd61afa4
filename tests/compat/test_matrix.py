"""Every cell of the matrix in docs/formats.md: a feature, in traces of a version or a vendor."""

import pytest
from support.folders import ROOT
from support.matrix import CELLS, FEATURES, Cell, run_of, table

PAGE = ROOT / "docs" / "formats.md"


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in CELLS])
def test_cell(cell: Cell) -> None:
    source = cell.source
    if source.device is not None and not source.device.exists():
        pytest.skip("set EXECGRAPH_TRACES to a folder of real traces to run this")
    FEATURES[cell.feature](run_of(source, with_host=cell.feature != "device trace alone"))


def test_the_matrix_is_current() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), "put the output of tests/support/matrix.py into docs/formats.md"


def test_no_two_cells_have_one_name() -> None:
    assert len({cell.name for cell in CELLS}) == len(CELLS)
