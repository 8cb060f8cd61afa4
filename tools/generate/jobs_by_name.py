"""The jobs by name, and how to build one."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from . import distributed_jobs as distributed, pipeline_jobs as pipelines, single_device_jobs as single
from .instructions import Group
from .job import Job, Step
from .machine import DEFAULT, Machine
from .nccl import expert_groups, replica_groups, second_world, world
from .program_process import AUTOGRAD, MAIN, SECOND_AUTOGRAD, Process, Size
from .sharded_job import sharded

Program = Callable[[Process], Iterator[None]]
"""Writes one rank's program and yields after each step."""


def _one_group(ranks: int) -> tuple[Group, ...]:
    return (world(ranks),)


def _experts(ranks: int) -> tuple[Group, ...]:
    return world(ranks), *expert_groups(ranks)


def _stages(ranks: int) -> tuple[Group, ...]:
    return world(ranks), *replica_groups(ranks, pipelines.STAGES, pipelines.REPLICAS)


def _replicated_experts(ranks: int) -> tuple[Group, ...]:
    return *_experts(ranks), *replica_groups(ranks, 2, distributed.EXPERTS)


class Preset(NamedTuple):
    """A job's program, its default size, its host threads, and its process groups for a number of ranks."""

    program: Program
    size: Size
    threads: tuple[str, ...] = (MAIN, AUTOGRAD)
    groups: Callable[[int], tuple[Group, ...]] = lambda _: ()
    replicas_of: int = 1
    """How many ranks a replica of the model is spread over."""


PRESETS = {
    "simple": Preset(single.simple, Size()),
    "hostbound": Preset(single.hostbound, Size(layers=8, tokens=64, hidden=64)),
    "event_sync": Preset(single.event_sync, Size(steps=4, layers=8, tokens=1536, hidden=1024)),
    "towers": Preset(single.towers, Size(tokens=1024, hidden=1024), threads=(MAIN, AUTOGRAD, SECOND_AUTOGRAD)),
    "ddp": Preset(distributed.ddp, Size(ranks=2), groups=_one_group),
    "moe": Preset(distributed.moe, Size(ranks=4), groups=_experts),
    "uneven": Preset(distributed.uneven, Size(ranks=4, layers=2), groups=_one_group),
    "pipeline": Preset(pipelines.pipeline, Size(ranks=2), groups=_one_group),
    "halo": Preset(distributed.halo, Size(ranks=4), groups=_one_group),
    "dlrm": Preset(distributed.dlrm, Size(ranks=4), groups=lambda ranks: (world(ranks), second_world(ranks))),
    "sharded": Preset(sharded, Size(ranks=2), groups=_one_group),
    "pipeline_dp": Preset(pipelines.pipeline_dp, Size(ranks=4, layers=6), groups=_stages, replicas_of=pipelines.STAGES),
    "moe_dp": Preset(distributed.moe_dp, Size(ranks=4, layers=3), groups=_replicated_experts, replicas_of=2),
}


def build_job(
    name: str,
    *,
    presets: Mapping[str, Preset] = PRESETS,
    ranks: int | None = None,
    steps: int | None = None,
    layers: int | None = None,
    tokens: int | None = None,
    hidden: int | None = None,
    seed: int = 0,
    machine: Machine = DEFAULT,
) -> Job:
    """Yields a job of PRESETS, or of another table, on a machine, with its own size where none is given.

    Raises ValueError for an unknown name or a size that the job cannot have.
    """
    if name not in presets:
        raise ValueError(f"{name}: no such job, there are {', '.join(presets)}")
    preset = presets[name]
    sizes = {"ranks": ranks, "steps": steps, "layers": layers, "tokens": tokens, "hidden": hidden}
    size = preset.size._replace(**{key: value for key, value in sizes.items() if value is not None})
    if too_small := [f"{key} {value}" for key, value in size._asdict().items() if value < 1]:
        raise ValueError(f"{name}: {', '.join(too_small)}: give 1 or more")
    if preset.size.ranks > 1 and size.ranks < 2:
        raise ValueError(f"{name}: its ranks communicate, give it at least 2")
    if size.ranks % preset.replicas_of:
        raise ValueError(f"{name}: a replica is {preset.replicas_of} ranks, give it a multiple of them")

    def program(rank: int) -> Iterator[Step]:
        process = Process(rank, seed, size, preset.threads, machine)
        for _ in preset.program(process):
            yield process.take()
        yield process.take()

    return Job(name, seed, size.ranks, preset.threads, preset.groups(size.ranks), program, machine)
