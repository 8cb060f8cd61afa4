"""PyTorch, for every test of capturing."""

import pytest


@pytest.fixture
def torch():
    return pytest.importorskip("torch", minversion="2.4", reason="host and device ops have no common id before 2.4")
