"""What earlier builds left in a folder, and what takes its place, while no other build works there.

Everything that a build makes waits in a folder of its own until all of it is there. Then the earlier report goes, and
the new one comes last: a build that is stopped before leaves the earlier one, a build that is stopped meanwhile no
report, so that the next one begins anew.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...schema.arguments import GOAL
from ...schema.io import put_in_place
from .build_report import FAILED, BuildReport, is_unchanged
from .goal_job import GOAL_FILE

LOCK, WAITING = ".building.lock", ".building"
"""The file by which one build at a time works in a folder, and the folder for what has to wait."""
REPORT = "report.json"
GROUPS = "comm_groups.json"
GRAPH = r"graph\.\d+\.et"
OUTPUT = re.compile(rf"{GRAPH}|report\.json|comm_groups\.json|{re.escape(GOAL_FILE)}")
HALF_WRITTEN = re.compile(rf"\.columns\..*|\.({OUTPUT.pattern})\.[0-9a-f]{{8}}\.partial")


def remove_half_written(folder: Path) -> None:
    """Removes what builds that were killed had begun to write; their other folder is emptied where it is used."""
    for path in folder.iterdir():
        if HALF_WRITTEN.fullmatch(path.name):
            with suppress(OSError):
                path.unlink()


def changed_since(report: BuildReport | None, target: Path) -> list[str]:
    """Returns sentences on changed or missing files that the graphs of the earlier build depend on."""
    if report is None:
        return []
    names = [] if report.is_genuine else [REPORT]
    if report.groups and not is_unchanged(target / GROUPS, report.groups):
        names.append(GROUPS)
    return [f"{name} is not what the earlier build wrote: all ranks are built again" for name in names]


def put_all_in_place(made: Path, folder: Path, report: BuildReport) -> None:
    """Moves what the report lists from `made` to `folder`, the report itself last."""
    (folder / REPORT).unlink(missing_ok=True)
    for name in (*graph_names(report), GROUPS, GOAL_FILE, REPORT):
        if (made / name).exists():
            put_in_place(made / name, folder / name)


def graph_names(report: BuildReport) -> list[str]:
    """Returns the names of the graphs that a report lists."""
    return [rank.graph.file for rank in report.ranks if rank.graph]


def remove_stale(folder: Path, earlier: BuildReport | None, report: BuildReport, graphs: dict[int, Path]) -> list[str]:
    """Removes what this build did not write; `graphs` are the paths by rank. Returns a sentence per removed graph."""
    removed = [
        *_of_another_job(folder, earlier, report, {path.name for path in graphs.values()}),
        *_removed_ranks(folder, earlier, {path.name for path in graphs.values()}),
        *_failed_ranks(report, graphs),
    ]
    if report.groups is None and earlier and is_unchanged(folder / GROUPS, earlier.groups):
        (folder / GROUPS).unlink()
    if report.options.target == GOAL and report.goal is None:
        (folder / GOAL_FILE).unlink(missing_ok=True)
    return removed


def _of_another_job(folder: Path, earlier: BuildReport | None, report: BuildReport, names: set[str]) -> Iterator[str]:
    """Yields a sentence on graphs in the folder that were made of other traces, or of which no report tells."""
    if earlier is None:
        there = sorted(path.name for path in folder.iterdir() if re.fullmatch(GRAPH, path.name))
        if there:
            replaced = len(names.intersection(there))
            yield f"{_some(there)}: in the folder without a report of their build; {replaced} replaced, {len(there) - replaced} left"
        return
    before, now = (
        {rank.device.blake2b: rank.device.file for rank in of.ranks if rank.device.blake2b} for of in (earlier, report)
    )
    if before and now and not before.keys() & now.keys():
        yield f"the folder held a job of other traces, {_some([*before.values()])}; it is replaced"


def _some(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _removed_ranks(folder: Path, earlier: BuildReport | None, names: set[str]) -> Iterator[str]:
    """Removes the graphs that the earlier build wrote and whose names are not among the job's.

    Reports are from anywhere: what one lists is only removed when it is named like a graph and holds what the report
    says.
    """
    for rank in earlier.ranks if earlier else ():
        name = rank.graph.file if rank.graph else ""
        path = folder / name
        if name not in names and re.fullmatch(GRAPH, name) and path.is_file():
            is_known = is_unchanged(path, rank.graph)
            if is_known:
                path.unlink()
            became = "removed" if is_known else "left, as something else has written it since"
            yield f"{name}: rank {rank.rank} of an earlier build, which is not in this job; {became}"


def _failed_ranks(report: BuildReport, graphs: dict[int, Path]) -> Iterator[str]:
    """Removes earlier graphs of ranks that failed now."""
    for rank in report.ranks:
        graph = graphs[rank.rank]
        if rank.status == FAILED and graph.is_file():
            graph.unlink()
            yield f"{graph.name}: rank {rank.rank} failed; removed"
