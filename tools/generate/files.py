"""The files of a run: for each rank a host trace and a device trace, and the truth, in one folder.

truth.json says what had to wait for what, by the semantics of CUDA and not by reading the traces:

    {"job", "seed", "machine" (unless it is the default one), "makespan_ns", "makespans_ns": {scaling: ns},
     "ranks": [{"rank", "makespan_ns", "events",
        "activities":  [[correlation, index, rf_id, stream, start_ns, duration_ns], ...],
        "event_waits": [[[correlation, index], [correlation, index]], ...],
        "graph_order": as event_waits,
        "host_waits":  [[correlation of the call, [correlation, index]], ...],
        "handoffs":  [[tid, given_ns, tid, taken_ns, waited], ...]}]}

An activity is known by the correlation of its launch and its index among that launch's activities by start. `rf_id` is
that of the innermost op around the launch, 0 for none. `event_waits` and `graph_order` join activities of different
streams, `graph_order` by a CUDA graph, which no trace records. Times are ns from the start of the run, which the traces
put at baseTimeNanoseconds + 1000 * the first `ts` of kind "Trace"; activities may be by the device's clock, or lost.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ...schema.errors import DataError
from ...schema.io import make_folder, open_output, without_link, write_items
from ..replay import Changes
from .device_trace import device_head, device_rows, write_device_trace
from .host_trace import write_host_trace
from .job import NONE, Job
from .jobs import build_job
from .machine import DEFAULT, draw_machine
from .record import RankRun, Run, correlation, record_function
from .simulation import simulate

OF_A_RANK = re.compile(r"(host|device)_rank\d+\.json(\.gz)?")
MB = 1_000_000


def _write_truth(run: Run, path: Path, makespans: Mapping[str, int]) -> None:
    """Writes truth.json in pieces; `makespans` are those of changed jobs."""
    machine = run.job.machine
    head: dict[str, object] = {"job": run.job.name, "seed": run.job.seed}
    head |= {"machine": asdict(machine)} if machine != DEFAULT else {}
    head |= {"makespan_ns": run.makespan_ns, "makespans_ns": dict(makespans)}
    with open_output(str(path)) as file:
        file.write((json.dumps(head)[:-1] + ', "ranks": [').encode())
        for rank in run.ranks:
            start, end = rank.period()
            of_rank = {"rank": rank.rank, "makespan_ns": end - start, "events": rank.events}
            file.write(((",\n" if rank.rank else "\n") + json.dumps(of_rank)[:-1]).encode())
            for name, rows in _truth_of(rank):
                file.write(f', "{name}": ['.encode())
                write_items(file, map(json.dumps, rows))
                file.write(b"]")
            file.write(b"}")
        file.write(b"\n]}\n")


def _truth_of(rank: RankRun) -> Iterator[tuple[str, Iterable[object]]]:
    """Yields the tables of a rank. Activities are known by the correlation of their launch, and their number there."""
    activities, ops, tids = rank.activities, rank.calls.op, rank.tids
    keys: list[tuple[int, int]] = [(0, 0)] * len(activities)
    call, index = NONE, 0
    for row in sorted(range(len(keys)), key=lambda row: (activities.call[row], activities.start[row], row)):
        index = index + 1 if activities.call[row] == call else 0
        call = activities.call[row]
        keys[row] = correlation(call), index
    around = (record_function(ops[call]) if ops[call] != NONE else 0 for call in activities.call)
    lasted = (end - start for start, end in zip(activities.start, activities.end, strict=True))
    columns = zip(keys, around, activities.stream, activities.start, lasted, strict=True)
    yield "activities", ((*key, *more) for key, *more in columns)
    for name, edges in (("event_waits", rank.event_waits), ("graph_order", rank.graph_order)):
        yield name, ((keys[source], keys[target]) for source, target in zip(*edges.columns(), strict=True))
    yield "host_waits", ((correlation(call), keys[row]) for call, row in zip(*rank.host_waits.columns(), strict=True))
    handoffs = zip(*rank.handoffs.columns(), strict=True)
    given = ((tids[giver], ns, tids[taker], taken, bool(waits)) for giver, ns, taker, taken, waits in handoffs)
    yield "handoffs", given


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

    The `makespans` of changed runs go into the truth. Without `resolved_events` cuda_sync rows do not know where an
    event was recorded, as from CUDA 12.9 on. `stacks` is how many of Python's calls ops have.

    Raises DataError if a file cannot be written, or the folder holds traces of another job.
    """
    target, ending = Path(folder), ".json.gz" if compress else ".json"
    make_folder(target)
    names = [f"rank{rank.rank}" for rank in run.ranks]
    files = [RankFiles(target / f"host_{name}{ending}", target / f"device_{name}{ending}") for name in names]
    written = {path.name for paths in files for path in paths}
    present = sorted(path.name for path in target.iterdir() if OF_A_RANK.fullmatch(path.name))
    if mixed := [name for name in present if name not in written]:
        raise DataError(f"{folder}: holds traces of another job, such as {mixed[0]}; name a new folder")
    for path in (*chain.from_iterable(files), target / "truth.json"):
        without_link(path)
    for rank, paths in zip(run.ranks, files, strict=True):
        write_host_trace(rank, str(paths.host))
        head = device_head(rank, paths.device.name, stacks)
        write_device_trace(str(paths.device), head, device_rows(rank, sync_records, resolved_events, stacks))
    _write_truth(run, target / "truth.json", makespans or {})
    return files


def sized_job(
    name: str,
    *,
    ranks: int | None = None,
    steps: int | None = None,
    layers: int | None = None,
    size_mb: float | None = None,
    seed: int = 0,
    machine_seed: int | None = None,
    stacks: int = 0,
) -> Job:
    """Returns the job of this name and size on an undisturbed machine, or one that is drawn with a seed.

    `size_mb` is about how many megabytes of uncompressed traces a rank has, which sets the steps; `stacks` are as of
    `write_traces`. Raises ValueError where there is no such job, or not of this size.
    """
    machine = DEFAULT if machine_seed is None else draw_machine(machine_seed)
    of_steps = partial(build_job, name, ranks=ranks, layers=layers, seed=seed, machine=machine)
    if size_mb is None:
        return of_steps(steps=steps)
    sizes = []
    for count in (2, 4):
        with TemporaryDirectory(prefix="execgraph-generate-") as folder:
            first_rank = write_traces(simulate(of_steps(steps=count)), folder, stacks=stacks)[0]
            sizes.append(sum(path.stat().st_size for path in first_rank))
    two, four = sizes
    return of_steps(steps=max(1, round(2 + 2 * (size_mb * MB - two) / (four - two))))


def makespans_of(job: Job, changes: Mapping[str, Changes]) -> dict[str, int]:
    """Returns how long the job takes with each of these changes. Raises ValueError for one that applies to nothing."""
    return {name: simulate(job, change, refuse_unused=True).makespan_ns for name, change in changes.items()}
