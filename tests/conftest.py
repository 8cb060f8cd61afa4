"""What several tests share: the small captures of tests/data and, where given, a folder of larger real traces."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# how long an example takes says more about what else the machine does
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of captures that belongs to the project."""
    return DATA


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """The folder that EXECGRAPH_TRACES names; tests of larger real traces skip without it."""
    folder = os.environ.get("EXECGRAPH_TRACES")
    if not folder:
        pytest.skip("set EXECGRAPH_TRACES to a folder of real traces to run this")
    return Path(folder)
