"""The jobs by name: those of trace-generate, those that only developers need, and random programs."""

from execgraph.tools.generate import (
    AUTOGRAD,
    DEFAULT,
    MAIN,
    PRESETS,
    Job,
    Machine,
    Preset,
    Size,
    build_job as build,
    world,
)

from . import random_jobs, single_device_jobs as single, stream_jobs

RANDOM = "random"
"""The job that is another one for every seed."""
JOBS = PRESETS | {
    "prefetch": Preset(single.prefetch, Size(steps=4)),
    "graph": Preset(single.graph, Size(steps=4)),
    "loader": Preset(single.loader, Size(steps=4), threads=(MAIN, AUTOGRAD, single.LOADER)),
    "critical_path": Preset(single.critical_path, Size(), threads=(MAIN,)),
    "streams": Preset(stream_jobs.streams, Size(tokens=512, hidden=512), threads=(MAIN,)),
    "polling": Preset(stream_jobs.polling, Size(steps=4, tokens=1024, hidden=1024)),
    "pageable": Preset(stream_jobs.pageable, Size(steps=4, tokens=1024, hidden=1024)),
    "queue": Preset(stream_jobs.queue, Size(), threads=(MAIN,)),
    RANDOM: Preset(
        random_jobs.random_program, Size(steps=4), groups=lambda ranks: (world(ranks),) if ranks > 1 else ()
    ),
}
NAMED = (
    *("simple", "hostbound", "prefetch", "event_sync", "graph", "loader", "critical_path", "streams"),
    *("polling", "pageable", "towers", "queue", "ddp", "moe", "uneven", "pipeline", "halo", "dlrm"),
    *("sharded", "pipeline_dp", "moe_dp"),
)
"""Jobs that are the same but for durations, whatever the seed. A job's number draws the machines it is measured on: new
ones go last.
"""


def ranks_of(name: str, seed: int) -> int:
    """Returns how many ranks a job has unless told otherwise."""
    return random_jobs.ranks_of(seed) if name == RANDOM else JOBS[name].size.ranks


def build_job(
    name: str, *, seed: int = 0, ranks: int | None = None, machine: Machine = DEFAULT, **size: int | None
) -> Job:
    """Returns a job of JOBS on a machine, with its own size where none is given.

    Raises ValueError for an unknown name or a size that the job cannot have.
    """
    if ranks is None and name in JOBS:
        ranks = ranks_of(name, seed)
    return build(name, presets=JOBS, seed=seed, ranks=ranks, machine=machine, **size)
