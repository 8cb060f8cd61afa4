"""Small sound files of every kind that a command reads, made in a folder, for cases that change one of them.

A job of two ranks; the same rank as a rocpd database; and of the first rank all that is made of it.
"""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

from builder import LAYOUTS, TraceBuilder
from databases import DIALECTS, Api, Op, Range, write_database
from execgraph.tools.generate import build_job, simulate, write_traces

GENERATED = ("ddp", "pageable", "moe")


def write_pair(folder: Path, random: Random) -> None:
    """host_rank0.json, device_rank0.json and the same of rank 1: played in the layout of a version, or generated."""
    if random.random() < 0.5:
        files = [file for rank in (0, 1) for file in _played_files(random.choice([*LAYOUTS]), rank)]
    else:
        files = _generated_files(random.choice(GENERATED))
    for name, content in files:
        (folder / name).write_bytes(content)


Files = list[tuple[str, bytes]]


@cache
def _played_files(torch: str, rank: int) -> Files:
    return _written(lambda folder: played(torch, rank).write(folder))


@cache
def _generated_files(job: str) -> Files:
    return _written(lambda folder: write_traces(simulate(build_job(job, ranks=2, steps=1, layers=1, seed=1)), folder))


def _written(write: Callable[[Path], object]) -> Files:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return [(path.name, path.read_bytes()) for path in sorted(Path(folder).iterdir())]


def played(torch: str, rank: int) -> TraceBuilder:
    """Ops with tensors, copies, waits of both sides, a graph, a backward pass on its own thread, collectives and messages, modules."""
    t = TraceBuilder(torch, rank=rank, world_size=2, pid=1000 + rank)
    group = t.group([0, 1], name="0")
    a, b, c = t.tensor((4, 8)), t.tensor((8, 4)), t.tensor((4, 4))
    with t.annotation("ProfilerStep#3"), t.python("train.py(3): step"), t.module("Linear_0"):
        t.memcpy("HtoD", 7, 3)
        with t.op(
            "aten::mm", inputs=[a, b], outputs=[c], seq_id=1, schema="aten::mm(Tensor self, Tensor mat2) -> Tensor"
        ):
            t.work(2)
            t.launch("sgemm", 7, 20)
        t.graph_launch([("first", 7, 5), ("second", 20, 5)])
        with t.annotation("## backward ##"):
            with (
                t.thread(9, start=t.now + 1),
                t.op("autograd::engine::evaluate_function: MmBackward0", seq_id=1, fw_thread=1),
            ):
                t.work(2)
                t.launch("dgemm", 7, 10)
            t.join_thread(9)
        done = t.collective("allreduce", group=group, tensors=[c])
        t.wait_collective(done)
        t.collective("alltoall_base", group=group, tensors=[c, a], in_split=[1, 3], out_split=[2, 2])
        t.collective("send" if rank == 0 else "recv", group=group, tensors=[a], peer=1 - rank)
        event = t.record_event(stream=20)
        t.wait_event(event, stream=7)
        t.event_synchronize(event)
        t.memset(7)
        t.memcpy("DtoH", 7, 3)
        t.device_synchronize()
    return t


def write_rocpd(path: Path, random: Random) -> None:
    """A database of any dialect."""
    ops = [
        Op("gemm", 100, 400, caller=1),
        Op("copy", 450, 500, queue=2, type="CopyDeviceToHost", caller=2, hwq=3),
        Op("other", 600, 700),
    ]
    api = [Api("hipLaunchKernel", 50, 60), Api("hipMemcpyAsync", 70, 80), Api("hipDeviceSynchronize", 90, 510)]
    write_database(path, random.choice(DIALECTS), ops, api, [Range("step", 0, 1000)])
