"""The jobs of programs/gpu_jobs.py, which one GPU runs, with larger batches and repairs: what `--device` measures.

On a CPU the same jobs are smaller, and what needs CUDA is left out. Needs PyTorch.
"""

import importlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from .changed_jobs_programs import Bare, Change, Job, Steps
from .changed_jobs_timing import FINDING, synchronise

PROFILED_STEPS = 3
Step = Callable[[], object]
Make = Callable[..., Any]
"""What makes a step."""

SMALL_KERNELS, WAITS, DATA, PAGEABLE, TENSOR_CORES = (
    {f"{FINDING}{what}": 0.0}
    for what in ("SMALL_KERNELS", "HOST_WAITS", "DATA_LOADER", "PAGEABLE_COPIES", "NO_TENSOR_CORES")
)
"""The findings whose gain is asked for."""


def jobs(device: str) -> tuple[dict[str, Job], list[str]]:
    """Returns the jobs on a device, cuda or cpu, by name, and what cannot be made there."""
    os.environ["EXECGRAPH_DEVICE"] = device
    made, left_out = dict[str, Job](), list[str]()
    for name, job in _jobs(importlib.import_module("benchmarks.programs.gpu_jobs"), device):
        kept = tuple(change for change in job.changes if device == "cuda" or not change.needs_cuda)
        left_out += [f"{name}: {change.text}" for change in job.changes if change not in kept]
        if kept:
            made[name] = job._replace(changes=kept)
    return made, left_out


def _jobs(recorded: Any, device: str) -> Iterator[tuple[str, Job]]:
    """Yields every job: first those with larger batches, then those to repair, with one batch and with another."""
    for name, make, batches in _of_batches(recorded):
        larger = (Change(f"batch {batches[0]} → {batch}", {}, {"batch": batch}) for batch in batches[1:])
        yield (
            name,
            _job(make, {"batch": batches[0]}, *(_by_work(make, batches[0], change, device) for change in larger)),
        )
    for turn in range(2):
        for name, make, pair, parameters, changes in _to_repair(recorded):
            yield f"{name}, batch {pair[turn]}", _job(make, {"batch": pair[turn], **parameters}, *changes)
        name, make, pair = "single precision", partial(_single_precision, recorded), (32, 8)
        tf32 = Change("TF32", TENSOR_CORES, {"tf32": True}, needs_cuda=True)
        by_work = _by_work(make, pair[turn], tf32._replace(text="TF32, by its kernels"), device)
        yield f"{name}, batch {pair[turn]}", _job(make, {"batch": pair[turn]}, tf32, by_work)


def _job(make: Make, parameters: Mapping[str, Any], *changes: Change) -> Job:
    return Job(partial(_repeated, make), parameters, changes, settle=5)


def _repeated(make: Make, **parameters: Any) -> Steps:
    step = make(**parameters)
    while True:
        step()
        yield


def _of_batches(recorded: Any) -> Iterator[tuple[str, Make, tuple[int, ...]]]:
    """Yields jobs by name with their batch, and larger ones."""

    def attention(batch: int, **options: Any) -> Any:
        return recorded.training(recorded.blocks(), recorded.sequences(batch), **options)

    def convolutions(batch: int) -> Any:
        pictures, bf16 = recorded.pictures(batch), torch.bfloat16
        return recorded.training(recorded.residual(), pictures, dtype=bf16, momentum=True)

    yield "attention bf16", partial(attention, dtype=torch.bfloat16), (8, 32, 128)
    yield "attention fp32", attention, (8, 16, 32)
    yield "convolutions", convolutions, (128, 256, 512)


def _to_repair(recorded: Any) -> Iterator[tuple[str, Make, tuple[int, int], dict[str, Any], list[Change]]]:
    """Yields jobs by name with two batches, their parameters, and what repairs them."""

    def narrow(batch: int, *, graph: bool = False) -> Any:
        return recorded.replayed(batch) if graph else recorded.narrow(batch)

    def compiled(batch: int, *, graphs: bool = False) -> Any:
        if graphs:
            return recorded.with_inductors_graphs(batch)
        model, bf16 = torch.compile(recorded.blocks()), torch.bfloat16
        return recorded.training(model, recorded.sequences(batch), dtype=bf16)

    def faults(batch: int, kept: tuple[str, ...] = recorded.ALL_FAULTS) -> Any:
        return recorded.with_faults(*kept, batch=batch)

    def without(fault: str) -> dict[str, Any]:
        return {"kept": tuple(kept for kept in recorded.ALL_FAULTS if kept != fault)}

    cuda = {"needs_cuda": True}
    fast = [Change("samples take no time", DATA, {"seconds": 0.0})]
    yield "small kernels", narrow, (2, 8), {}, [Change("CUDA graph", SMALL_KERNELS, {"graph": True}, **cuda)]
    reads = Change("nothing read", WAITS, {"reads": False}, **cuda)
    yield "reads", recorded.synchronised, (2, 8), {}, [reads]
    yield "loader", recorded.loading, (16, 32), {"seconds": 0.002}, fast
    ahead = [Change("two workers", DATA, {"workers": 2})]
    yield "loader in process", recorded.loading, (16, 32), {"seconds": 0.0003, "workers": 0}, ahead
    pinned = [change._replace(needs_cuda=True) for change in fast]
    yield "loader that pins", recorded.loading, (16, 32), {"seconds": 0.002, "pinned": True}, pinned
    pageable = [Change("pinned memory", PAGEABLE, {"pinned": True}, **cuda)]
    yield "copies", recorded.copying, (8, 4), {"pinned": False}, pageable
    fused = [Change("fused", SMALL_KERNELS, {"foreach": None, "fused": True}, **cuda)]
    yield "optimizer loop", recorded.optimizing, (2, 8), {"foreach": False}, fused
    mended = (("loader", DATA), ("reads", WAITS), ("pageable", PAGEABLE))
    yield (
        "faults",
        faults,
        (16, 32),
        {},
        [Change(f"without {name}", asked, without(name), **cuda) for name, asked in mended],
    )
    yield "compiled", compiled, (8, 32), {}, [Change("CUDA graphs", SMALL_KERNELS, {"graphs": True}, **cuda)]


def _single_precision(recorded: Any, batch: int, *, tf32: bool = False) -> Step:
    step = recorded.training(recorded.blocks(), recorded.sequences(batch))

    def with_products() -> None:
        torch.backends.cuda.matmul.allow_tf32 = tf32  # of the process, in which both forms take turns
        step()

    return with_products


def _by_work(make: Make, batch: int, change: Change, device: str) -> Change:
    """Returns the change asked by how much longer all kernels together take with it; on a CPU, all ops."""
    work, selector = ("kernel", "class:computation") if device == "cuda" else ("cpu_op", "aten::")
    before, after = partial(make, batch=batch), partial(make, **{"batch": batch, **change.parameters})
    return change._replace(scale={selector: Bare(partial(_work_s, work), before, after)})


def _work_s(category: str, make: Step) -> float:
    """Returns how long what is of a category takes in steps of a job that a profiler records."""
    step = _made(make)
    for _ in range(2):
        step()
    synchronise()
    with torch.profiler.profile() as profiler:
        for _ in range(PROFILED_STEPS):
            step()
        synchronise()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(trace))
        rows = json.loads(trace.read_text())["traceEvents"]
    return sum(float(row["dur"]) for row in rows if row.get("cat") == category) / 1e6


_made = cache(lambda make: make())
