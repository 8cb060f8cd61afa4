"""Merging the traces of a folder, and what is in a merged trace and in those that it was made of."""

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from execgraph.tools.job import merge_for_viewing
from execgraph.tools.trace_files import RankFile, by_rank, find_traces

from support.databases import Api, Op, Range, write_database

ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")
Jobs = Callable[[int], Path]


def ranks_in(folder: Path) -> list[RankFile]:
    return by_rank(find_traces([folder]).devices, {})[0]


def merged(folder: Path, output: Path) -> dict[str, Any]:
    merge_for_viewing(ranks_in(folder), str(output))
    content = output.read_bytes()
    trace: dict[str, Any] = json.loads(gzip.decompress(content) if output.suffix == ".gz" else content)
    return trace


def recorded_activities(folder: Path) -> Counter[tuple[int, int]]:
    """Activities by (rank, device) in the ranks' own files."""
    counts: Counter[tuple[int, int]] = Counter()
    for rank, path in ranks_in(folder):
        counts.update((rank, row["pid"]) for row in rows_of(json.loads(path.read_text())) if row["cat"] in ACTIVITIES)
    return counts


def rows_of(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in trace["traceEvents"] if row["ph"] == "X"]


def process_database(folder: Path, which: str, pid: int) -> Path:
    """A process whose two kernels run on its device 0."""
    ops = [Op("gemm", 1_000, 9_000, caller=1), Op("ncclDevKernel_Generic", 10_000, 19_000 + pid, caller=2, queue=5)]
    api = [Api("hipLaunchKernel", 100, 200, pid, pid), Api("hipExtLaunchKernel", 300, 400, pid, pid)]
    return write_database(folder / f"trace_{pid}.db", which, ops, api, [Range("step", 50, 30_000, pid, pid)], pid)
