"""Jobs of many ranks, from traces to joint replay: built without a complaint, and replayed as measured."""

from pathlib import Path

import pytest
from execgraph.schema.graph import ExecutionGraph
from execgraph.tools.job import BuildOptions, build
from execgraph.tools.replay import replay_ranks, start_error
from support.generated import TOGETHER, built_job, here

UNEQUAL = {"pipeline", "pipeline_dp"}
"""Its stages have unequal work, which is noted."""


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("job", TOGETHER)
def test_a_job_is_built_and_replayed(job: str, ranks: int) -> None:
    report, graphs, makespan_ns = built_job(job, ranks)
    assert (report.disagreements, report.all_failures) == ([], [])
    assert job in UNEQUAL or report.all_notes == []
    replayed = replay_ranks(graphs)
    assert replayed.makespan_ns == pytest.approx(makespan_ns, rel=0.003)
    assert replayed.measured_ns == pytest.approx(makespan_ns, rel=0.003)


def test_four_of_eight_ranks_of_a_real_job_replay_as_they_ran(real_traces: Path, tmp_path: Path) -> None:
    """Their windows begin up to 7 ms apart."""
    report = build(real_traces / "dlrm_8gpu", tmp_path, BuildOptions(), here).report
    assert report.disagreements == []
    assert report.absences[:2] == ["4 of 8 ranks are absent: 4-7", "4 of 8 members of the group 0-7 are absent"]
    replayed = replay_ranks([ExecutionGraph.read(str(tmp_path / f"graph.{rank}.et")) for rank in range(4)])
    assert abs(replayed.error_pct or 0) < 0.1
    assert start_error(replayed).p95 < 20
