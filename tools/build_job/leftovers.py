"""What earlier builds left in a folder, to be removed while no other build works there."""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from .build_rank import RankTask
from .build_report import FAILED, BuildReport, RankSummary, content_of
from .goal_job import GOAL_FILE

LOCK, WAITING = ".building.lock", ".building"
"""The file by which one build at a time works in a folder, and the folder for graphs that have to wait."""
GRAPH = r"graph\.\d+\.et"
OUTPUT = re.compile(rf"{GRAPH}|report\.json|comm_groups\.json|{re.escape(GOAL_FILE)}")
HALF_WRITTEN = re.compile(rf"\.columns\..*|\.({OUTPUT.pattern})\.[0-9a-f]{{8}}\.partial")


def remove_half_written(folder: Path) -> None:
    """Removes what builds that were killed had begun to write; their other folder is emptied where it is used."""
    for path in folder.iterdir():
        if HALF_WRITTEN.fullmatch(path.name):
            with suppress(OSError):
                path.unlink()


def remove_stale(folder: Path, earlier: BuildReport | None, names: Collection[str]) -> Iterator[str]:
    """Removes the graphs that the earlier build wrote and whose names are not among the job's `names`; says so of each.

    Reports are from anywhere: what one lists is only removed when it is named like a graph and holds what the report says.
    """
    for rank in earlier.ranks if earlier else ():
        name = rank.graph.file if rank.graph else ""
        path = folder / name
        if name not in names and re.fullmatch(GRAPH, name) and path.is_file():
            is_known = content_of(path, name) == rank.graph
            if is_known:
                path.unlink()
            became = "removed" if is_known else "left, as something else has written it since"
            yield f"{name}: rank {rank.rank} of an earlier build, which is not in this job; {became}"


def remove_failed(tasks: Mapping[int, RankTask], summaries: Mapping[int, RankSummary]) -> Iterator[str]:
    """Removes the graphs that stand where those of ranks would that failed; says so of each."""
    for rank, summary in summaries.items():
        graph = tasks[rank].graph
        if summary.status == FAILED and graph.is_file():
            graph.unlink()
            yield f"{graph.name}: rank {rank} failed; removed"
