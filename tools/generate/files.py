"""The files of a run: for each rank a host trace and a device trace, and the truth, in one folder."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ...schema.errors import DataError
from ...schema.io import make_folder
from .device_trace import SyncRecords, write_device_trace
from .host_trace import write_host_trace
from .identity import identify
from .record import Run
from .truth import write_truth

OF_A_RANK = re.compile(r"(host|device)_rank\d+\.json(\.gz)?")


class RankFiles(NamedTuple):
    """The two traces of a rank."""

    host: Path
    device: Path


def write_traces(
    run: Run,
    folder: str | Path,
    *,
    sync_records: bool = True,
    resolved_events: bool = True,
    stacks: int = 0,
    compress: bool = False,
    makespans: Mapping[str, int] | None = None,
) -> list[RankFiles]:
    """Writes the host and device trace of each rank (.gz if compressed) and truth.json; returns paths by rank.

    Without `sync_records` the device trace has no cuda_sync rows; without `resolved_events` these do not know where
    an event was recorded, as from CUDA 12.9 on. With `stacks` it has so many of Python's calls for each op that Python
    called. `makespans` of changed runs go into the truth. Raises DataError if a file cannot be written, or the folder
    holds traces of another job, which would then be mixed with this one.
    """
    target, suffix = Path(folder), ".json.gz" if compress else ".json"
    make_folder(target)
    files = [
        RankFiles(target / f"host_rank{rank.rank}{suffix}", target / f"device_rank{rank.rank}{suffix}")
        for rank in run.ranks
    ]
    written = {path.name for paths in files for path in paths}
    present = sorted(path.name for path in target.iterdir() if OF_A_RANK.fullmatch(path.name))
    if mixed := [name for name in present if name not in written]:
        raise DataError(f"{folder}: holds traces of another job, such as {mixed[0]}; name a new folder")
    for rank, paths in zip(run.ranks, files, strict=True):
        who = identify(run.job, rank.rank)
        write_host_trace(rank, who, str(paths.host))
        write_device_trace(
            rank,
            who,
            run.job.machine,
            str(paths.device),
            sync=SyncRecords(sync_records, resolved_events),
            stacks=stacks,
        )
    write_truth(run, str(target / "truth.json"), makespans or {})
    return files
