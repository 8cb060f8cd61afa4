"""A generated job on nodes of four ranks, whose links within a node are faster than those between nodes."""

from collections.abc import Iterator
from typing import Any

from execgraph.tools.generate import PRESETS, Job, build_job
from execgraph.tools.generate.instructions import Activity, Group
from execgraph.tools.generate.nccl import Communicator
from execgraph.tools.generate.program_process import COMPUTE

NODE, RANKS = 4, 8
WITHIN, ACROSS = (1_000.0, 279.397), (6_000.0, 18.626)
"""ns and GB/s of 2**30 bytes of a link; a step goes over two."""
GEMM = Activity("sgemm")
SIZES = (50_000, 400_000, 3_000_000, 12_000_000)


def groups(ranks: int) -> tuple[Group, ...]:
    """The ranks of each node, and those at one place of all nodes."""
    nodes = [Group("1", "tensor parallel", tuple(range(first, first + NODE))) for first in range(0, ranks, NODE)]
    replicas = [Group("2", "data parallel", tuple(range(first, ranks, NODE))) for first in range(NODE)]
    return (*nodes, *replicas)


def program(process: Any) -> Iterator[None]:
    """Kernels and all-reduces within the node in turn, then all-reduces across nodes, in each of two steps."""
    own = [group for group in groups(process.size.ranks) if process.rank in group.ranks]
    within, across = (
        Communicator(process, group, 24 + number, step_us=2 * ns / 1000, bytes_per_us=gib_s * 2**30 / 1e6)
        for number, (group, (ns, gib_s)) in enumerate(zip(own, (WITHIN, ACROSS), strict=True))
    )
    for _ in range(2):
        for communicator in (within, across):
            for size in SIZES:
                tensor = process.tensor(f"{communicator.stream} {size}", size)
                with process.main.op("aten::mm", (tensor,), (tensor,), own_us=10.0):
                    process.main.launch(GEMM, COMPUTE, 50.0)
                communicator.all_reduce(process.main, tensor).wait(process.main)
        yield


def two_networks() -> Job:
    presets = {"nodes": PRESETS["ddp"]._replace(program=program, groups=groups)}
    return build_job("nodes", presets=presets, ranks=RANKS, steps=2, seed=1)
