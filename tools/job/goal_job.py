"""Writes the GOAL file of a job from the graphs of all ranks, when all of them were built."""

from pathlib import Path

from ...converter.targets import write_goal
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph
from .build_report import BUILT, BuildReport

GOAL_FILE = "job.goal"


def write_goal_job(made: Path, folder: Path, report: BuildReport) -> None:
    """Writes `made`/job.goal if all ranks have graphs, in `made` or (up to date) in `folder`; adds to the report."""
    names = [rank.graph.file for rank in report.ranks if rank.status == BUILT and rank.graph]
    if len(names) < len(report.ranks):
        report.notes.append(f"{GOAL_FILE} is not written: it needs the graphs of all ranks; see what failed")
        return
    files = [str((made if (made / name).exists() else folder) / name) for name in names]
    try:
        report.goal = write_goal(
            str(made / GOAL_FILE),
            len(files),
            lambda index: ExecutionGraph.read(files[index], tensors=False),
            report.options.goal,
            start_offsets=report.options.start_offsets,
            excess_time=report.options.excess_time,
        )
    except DataError as error:
        report.failures.append(f"{GOAL_FILE} is not written: {str(error).replace(str(made), str(folder))}")
