"""Writes the GOAL file of a job from the graphs of all ranks, when all of them were built."""

from pathlib import Path

from ...converter.targets import write_goal
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph
from .build_report import BUILT, BuildReport

GOAL_FILE = "job.goal"


def write_goal_job(folder: Path, report: BuildReport) -> None:
    """Writes `folder`/job.goal and puts into the report what it holds; without all graphs there is no such file, and the report says so."""
    path = folder / GOAL_FILE
    files = [str(folder / rank.graph.file) for rank in report.ranks if rank.status == BUILT and rank.graph]
    try:
        if len(files) < len(report.ranks):
            raise DataError("it needs the graphs of all ranks; see what failed")
        report.goal = write_goal(
            str(path), len(files), lambda place: ExecutionGraph.read(files[place], tensors=False), report.options.goal
        )
    except DataError as error:
        path.unlink(missing_ok=True)
        report.failures.append(f"{GOAL_FILE} is not written: {error}")
