"""Records the captures in tests/data/gpu, a host and a device trace per rank.

    pip install torch torchvision transformers -e . && python -m benchmarks.programs.record_gpu [NAME ...]

records all jobs, or the named ones, anew into tests/data/gpu/NAME/, each in a process of its own. Beside them
measured.json says how long a step took without a profiler, in microseconds: the truth for what a change brings.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

from .gpu_jobs import (
    ALL_FAULTS,
    Step,
    augmenting,
    blocks,
    communicating,
    copying,
    decoding,
    device_only,
    language_model,
    loading,
    narrow,
    on_tensor_cores,
    optimizing,
    pictures,
    record,
    replayed,
    residual,
    sequences,
    sharding,
    streams,
    synchronised,
    training,
    with_faults,
    with_inductors_graphs,
)

FOLDER = Path(__file__).parents[2] / "tests" / "data" / "gpu"
Sample = Callable[[Path], None]


def recorded(prepare: Callable[[], Step], **options: object) -> Sample:
    """Returns what records the steps that are prepared so, or only measures them."""
    return lambda folder: record(prepare(), folder, **options)  # type: ignore[arg-type]


def alone(sample: Sample) -> Sample:
    """Returns the sample through NCCL, in a group of one rank."""

    def in_group(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as meeting_point:
            torch.distributed.init_process_group("nccl", f"file://{meeting_point}/ranks", rank=0, world_size=1)
            sample(folder)
            torch.distributed.destroy_process_group()

    return in_group


def gloo(folder: Path) -> None:
    """Two processes that share the GPU and reduce their gradients through gloo."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as meeting_point:
        torch.multiprocessing.spawn(gloo_rank, (f"file://{meeting_point}/ranks", folder), nprocs=2)


def gloo_rank(rank: int, meeting_point: str, folder: Path) -> None:
    """Records one of two ranks over gloo."""
    torch.distributed.init_process_group("gloo", meeting_point, rank=rank, world_size=2)
    model = DistributedDataParallel(blocks(1))
    record(training(model, sequences(4), momentum=True), folder)
    torch.distributed.destroy_process_group()


BF16 = torch.bfloat16
SAMPLES: dict[str, Sample] = {
    # four blocks of attention; the batch is 8 and all is in single precision, unless the name tells otherwise
    "attention_fp32": recorded(lambda: training(blocks(), sequences(8))),
    "attention_fp32_batch32": recorded(lambda: training(blocks(), sequences(32))),
    "attention_tf32_batch32": recorded(on_tensor_cores, is_recorded=False),
    "attention_bf16": recorded(lambda: training(blocks(), sequences(8), dtype=BF16)),
    # here the GPU takes longer than the host
    "attention_bf16_batch128": recorded(lambda: training(blocks(), sequences(128), dtype=BF16)),
    "attention_modules": recorded(lambda: training(blocks(2), sequences(8), dtype=BF16), modules=True, active=1),
    "attention_memory": recorded(lambda: training(blocks(2), sequences(8), dtype=BF16), memory=True),
    "convolutions_batch128": recorded(lambda: training(residual(), pictures(128), dtype=BF16, momentum=True)),
    "convolutions_batch512": recorded(lambda: training(residual(), pictures(512), dtype=BF16, momentum=True)),
    "convolutions_fp32": recorded(lambda: training(residual(), pictures(128), momentum=True)),
    # by inductor with Triton
    "compiled": recorded(lambda: training(torch.compile(blocks()), sequences(8), dtype=BF16)),
    "compiled_graphs": recorded(with_inductors_graphs),
    "small": recorded(narrow),
    "small_graph": recorded(replayed),
    "small_synchronised": recorded(synchronised),
    "small_device_only": device_only,
    "streams": recorded(streams),
    # two workers load slower than the GPU trains, or faster; or the loop loads each batch itself
    "loader_slow": recorded(lambda: loading(0.002), modules=True),
    "loader_fast": recorded(lambda: loading(0.0), modules=True),
    "loader_in_process": recorded(lambda: loading(0.0003, workers=0), active=1),
    "loader_in_process_ahead": recorded(lambda: loading(0.0003), is_recorded=False),
    "loader_pinned": recorded(lambda: loading(0.002, pinned=True), active=1),
    "loader_pinned_fast": recorded(lambda: loading(0.0, pinned=True), is_recorded=False),
    "copies_pageable": recorded(lambda: copying(pinned=False), active=1),
    "copies_pinned": recorded(lambda: copying(pinned=True), is_recorded=False),
    "python_work": recorded(lambda: augmenting(0.004), active=1),
    # one parameter after the other, or all at once
    "optimizer_loop": recorded(lambda: optimizing(foreach=False), active=1),
    "optimizer_fused": recorded(lambda: optimizing(fused=True), is_recorded=False),
    "faults": recorded(lambda: with_faults(*ALL_FAULTS), modules=True, active=1),
    # what mending one of them brings, and all
    "faults_loader": recorded(lambda: with_faults("reads", "pageable"), is_recorded=False),
    "faults_reads": recorded(lambda: with_faults("loader", "pageable"), is_recorded=False),
    "faults_pageable": recorded(lambda: with_faults("loader", "reads"), is_recorded=False),
    "faults_none": recorded(with_faults, is_recorded=False),
    "language_model": recorded(language_model),
    "decoding": recorded(decoding, active=1),
    "nccl": alone(recorded(communicating)),
    "sharded": alone(recorded(sharding)),
    "gloo": gloo,
}


def main() -> None:
    """Records the named jobs, each in a process of its own."""
    names = sys.argv[1:] or list(SAMPLES)
    if len(names) == 1:
        torch.manual_seed(0)
        shutil.rmtree(FOLDER / names[0], ignore_errors=True)
        SAMPLES[names[0]](FOLDER / names[0])
        return
    times = FOLDER / "measured.json"
    measured_us = json.loads(times.read_text()) if times.exists() else {}
    for name in names:
        begin = time.monotonic()
        run = subprocess.run(
            [sys.executable, "-m", "benchmarks.programs.record_gpu", name], capture_output=True, text=True
        )
        lines = [line.split() for line in run.stdout.splitlines() if line.startswith("MEASURED ")]
        for _, sample, *values in lines[:1]:
            measured_us[sample] = dict(zip(("median", "least", "most"), map(float, values), strict=True))
        print(name, run.returncode, f"{time.monotonic() - begin:.1f} s", run.stderr[-1500:] if run.returncode else "")
    FOLDER.mkdir(exist_ok=True)
    times.write_text(json.dumps(measured_us, indent=1) + "\n")


if __name__ == "__main__":
    main()
