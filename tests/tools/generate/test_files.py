"""The traces of a job are alone in their folder."""

from pathlib import Path

import pytest
from execgraph.schema.errors import DataError
from execgraph.tools.generate import build_job, simulate, write_traces


def test_traces_of_another_job_are_not_mixed_with_this_one(tmp_path: Path) -> None:
    pair = simulate(build_job("ddp", ranks=2, layers=1, steps=1))
    write_traces(simulate(build_job("ddp", ranks=3, layers=1, steps=1)), tmp_path)
    with pytest.raises(DataError, match=r"holds traces of another job, such as device_rank2\.json; name a new folder"):
        write_traces(pair, tmp_path)
    with pytest.raises(DataError, match="holds traces of another job"):
        write_traces(pair, tmp_path, compress=True)


def test_the_same_job_is_written_again(tmp_path: Path) -> None:
    run = simulate(build_job("ddp", ranks=2, layers=1, steps=1))
    assert write_traces(run, tmp_path) == write_traces(run, tmp_path)
