"""A job has as many steps as give traces of the size that is asked for."""

from functools import partial
from pathlib import Path

import pytest
from execgraph.tools.generate import build_job, simulate, sized_job, write_traces


def test_traces_are_about_as_large_as_asked_for(tmp_path: Path) -> None:
    job = sized_job(lambda steps: build_job("ddp", ranks=2, layers=2, steps=steps), 1)
    first_rank = write_traces(simulate(job), tmp_path)[0]
    assert sum(path.stat().st_size for path in first_rank) == pytest.approx(1_000_000, rel=0.2)


def test_rows_of_python_calls_count_so_there_are_fewer_steps() -> None:
    job = partial(build_job, "ddp", ranks=2, layers=2)
    with_stacks = sized_job(lambda steps: job(steps=steps), 2, stacks=100)
    without = sized_job(lambda steps: job(steps=steps), 2)
    assert len(simulate(with_stacks).ranks[0].activities) < len(simulate(without).ranks[0].activities)
