"""Records the captures in gpu/: training and inference on one NVIDIA GPU, a host and a device trace per rank.

    pip install torch torchvision transformers && pip install -e . && python tests/data/record_gpu.py [NAME ...]

records them all, or the named ones, anew into tests/data/gpu/NAME/, each in a process of its own. Beside them
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
from contextlib import nullcontext
from inspect import isfunction, signature
from pathlib import Path

import torch
from execgraph.tools.capture import capture
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

FOLDER = Path(__file__).parent / "gpu"
WIDTH, HEADS, LENGTH, LAYERS = 512, 8, 256, 4
MEASURED_STEPS, REPEATS = 20, 5

Step = Callable[[], object]


class Block(nn.Module):
    """Causal attention and a two-layer perceptron, each with a residual connection."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.outputs = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.inputs(self.before(x)).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.outputs(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.perceptron(self.between(x))


def blocks(layers: int = LAYERS, width: int = WIDTH) -> nn.Module:
    return nn.Sequential(*(Block(width) for _ in range(layers))).cuda()


def training(
    model: nn.Module, make_batch: Callable[[], Tensor], *, dtype: torch.dtype | None = None, momentum: bool = False
) -> Step:
    """Returns one step of training on a batch that is made on the GPU; with `dtype` under autocast."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, 0.01, 0.9) if momentum else torch.optim.AdamW(parameters, 1e-4)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype) if dtype else nullcontext():
            loss = model(make_batch()).float().square().mean()
        loss.backward()
        optimizer.step()

    return step


def sequences(batch: int, width: int = WIDTH) -> Callable[[], Tensor]:
    return lambda: torch.randn(batch, LENGTH, width, device="cuda")


def pictures(batch: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(batch, 3, 128, 128, device="cuda").to(memory_format=torch.channels_last)


def record(step: Step, folder: Path, *, is_recorded: bool = True, **options: object) -> None:
    """Measures the step without a profiler, then records it unless only its length is wanted."""
    for _ in range(5):
        step()
    wall_us = [measured(step) for _ in range(REPEATS)]
    print(
        f"MEASURED {folder.name} {sorted(wall_us)[REPEATS // 2]:.1f} {min(wall_us):.1f} {max(wall_us):.1f}", flush=True
    )
    if not is_recorded:
        return
    with capture(folder, **{"wait": 5} | options) as recorder:  # type: ignore[arg-type]
        for _ in range(8):
            step()
            recorder.step()
        torch.cuda.synchronize()


def measured(step: Step) -> float:
    """Returns the mean time of steps one after the other, in microseconds."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(MEASURED_STEPS):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / MEASURED_STEPS * 1e6


def attention_fp32(folder: Path) -> None:
    """Training of four blocks of attention, batch 8, single precision."""
    record(training(blocks(), sequences(8)), folder)


def attention_fp32_batch32(folder: Path) -> None:
    """The same with batch 32."""
    record(training(blocks(), sequences(32)), folder)


def attention_tf32_batch32(folder: Path) -> None:
    """The same on tensor cores; only measured."""
    torch.backends.cuda.matmul.allow_tf32 = True
    record(training(blocks(), sequences(32)), folder, is_recorded=False)


def attention_bf16(folder: Path) -> None:
    """The same as attention_fp32 under autocast to bfloat16."""
    record(training(blocks(), sequences(8), dtype=torch.bfloat16), folder)


def attention_bf16_batch128(folder: Path) -> None:
    """The same with batch 128: the GPU takes longer than the host."""
    record(training(blocks(), sequences(128), dtype=torch.bfloat16), folder)


def attention_modules(folder: Path) -> None:
    """The same as attention_bf16 with two blocks, recorded with modules and stacks."""
    record(training(blocks(2), sequences(8), dtype=torch.bfloat16), folder, modules=True, active=1)


def attention_memory(folder: Path) -> None:
    """The same as attention_bf16 with two blocks, recorded with allocations."""
    record(training(blocks(2), sequences(8), dtype=torch.bfloat16), folder, memory=True)


def residual() -> nn.Module:
    from torchvision.models import resnet18

    return resnet18(num_classes=10).cuda().to(memory_format=torch.channels_last)


def convolutions_batch128(folder: Path) -> None:
    """Training of torchvision's resnet18 with SGD, batch 128 of 128 x 128 pixels, under autocast to bfloat16."""
    record(training(residual(), pictures(128), dtype=torch.bfloat16, momentum=True), folder)


def convolutions_batch512(folder: Path) -> None:
    """The same with batch 512."""
    record(training(residual(), pictures(512), dtype=torch.bfloat16, momentum=True), folder)


def convolutions_fp32(folder: Path) -> None:
    """convolutions_batch128 in single precision."""
    record(training(residual(), pictures(128), momentum=True), folder)


def compiled(folder: Path) -> None:
    """The same as attention_bf16, compiled by torch.compile (inductor, Triton)."""
    record(training(torch.compile(blocks()), sequences(8), dtype=torch.bfloat16), folder)


def compiled_graphs(folder: Path) -> None:
    """The same, compiled with mode="reduce-overhead": inductor replays CUDA graphs."""
    model = torch.compile(blocks(), mode="reduce-overhead")
    step = training(model, sequences(8), dtype=torch.bfloat16)

    def marked() -> None:
        torch.compiler.cudagraph_mark_step_begin()
        step()

    record(marked, folder)


def small(folder: Path) -> None:
    """Training of four narrow blocks, batch 2, with SGD: its kernels are short, launching them takes longer."""
    record(training(blocks(width=128), sequences(2, 128), momentum=True), folder)


def small_graph(folder: Path) -> None:
    """The same, whose step is captured once in a CUDA graph and replayed."""
    model, batch = blocks(width=128), torch.randn(2, LENGTH, 128, device="cuda")
    step = training(model, lambda: batch, momentum=True)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay() -> None:
        batch.normal_()
        graph.replay()

    record(replay, folder)


def small_synchronised(folder: Path) -> None:
    """The same as small, whose loss is read in every step, which waits for the GPU."""
    model, make_batch = blocks(width=128), sequences(2, 128)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9)

    def step() -> None:
        optimizer.zero_grad()
        loss = model(make_batch()).square().mean()
        loss.backward()
        if loss.item() > 1e9:
            raise ValueError("diverged")
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()

    record(step, folder)


def small_device_only(folder: Path) -> None:
    """small, recorded by the profiler alone, without a host trace."""
    step = training(blocks(width=128), sequences(2, 128), momentum=True)
    for _ in range(20):
        step()
    folder.mkdir(parents=True, exist_ok=True)
    with torch.profiler.profile(record_shapes=True) as profiler:
        for number in range(3):
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                step()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(folder / "device_rank0.json.gz"))


def streams(folder: Path) -> None:
    """Batches copied ahead on one stream, two branches on two streams, waits for events, streams and the device."""
    left, right, head = blocks(1), blocks(1), nn.Linear(WIDTH, 1).cuda()
    copying, beside = torch.cuda.Stream(), torch.cuda.Stream()
    pinned = torch.randn(32, LENGTH, WIDTH).pin_memory()
    ready: list[tuple[Tensor, torch.cuda.Event]] = []
    optimizer = torch.optim.SGD([*left.parameters(), *right.parameters(), *head.parameters()], 0.01)

    def prefetch() -> None:
        with torch.cuda.stream(copying):
            batch = pinned.to("cuda", non_blocking=True)
            ready.append((batch, copying.record_event()))

    def step() -> None:
        optimizer.zero_grad()
        batch, copied = ready.pop()
        current = torch.cuda.current_stream()
        current.wait_event(copied)
        batch.record_stream(current)
        prefetch()
        beside.wait_stream(current)
        first = left(batch)
        with torch.cuda.stream(beside):
            second = right(batch)
        current.wait_stream(beside)
        loss = head(first + second).square().mean()
        loss.backward()
        done = torch.cuda.Event()
        optimizer.step()
        done.record()
        total = loss.to("cpu", non_blocking=True)
        done.synchronize()
        copying.synchronize()
        torch.cuda.synchronize()
        total.add_(1)

    prefetch()
    record(step, folder)


class SlowItems(torch.utils.data.Dataset[Tensor]):
    """Items that take the CPU `seconds` each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Tensor:
        end = time.perf_counter() + self._seconds
        while time.perf_counter() < end:
            pass
        return torch.full((LENGTH, WIDTH), float(index % 7))


def loading(folder: Path, seconds: float, workers: int = 2, *, pinned: bool = False, **options: object) -> None:
    model = blocks(2)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    ahead, items = 1 if workers else None, SlowItems(seconds)
    loader = torch.utils.data.DataLoader(items, 16, num_workers=workers, prefetch_factor=ahead, pin_memory=pinned)
    batches = iter(loader)

    def step() -> None:
        batch = next(batches).to("cuda", non_blocking=pinned)
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()

    record(step, folder, **options)


def loader_slow(folder: Path) -> None:
    """Training on batches that two workers load slower than the GPU trains, copied from pageable memory."""
    loading(folder, 0.002, modules=True)


def loader_fast(folder: Path) -> None:
    """The same, when loading is fast."""
    loading(folder, 0.0, modules=True)


def loader_in_process(folder: Path) -> None:
    """The same, when the loop loads each batch itself."""
    loading(folder, 0.0003, workers=0, active=1)


def loader_in_process_ahead(folder: Path) -> None:
    """The same items loaded by two workers; only measured."""
    loading(folder, 0.0003, is_recorded=False)


def loader_pinned(folder: Path) -> None:
    """Training on batches that two workers load slower than the GPU trains, and a thread pins."""
    loading(folder, 0.002, pinned=True, active=1)


def loader_pinned_fast(folder: Path) -> None:
    """The same, when loading is fast; only measured."""
    loading(folder, 0.0, pinned=True, is_recorded=False)


def copying(folder: Path, *, pinned: bool, **options: object) -> None:
    """Training on batches of 64 MB that lie in the host's memory."""
    model = nn.Sequential(nn.Linear(8192, 64), *blocks(2, 64)).cuda()  # type: ignore[misc]
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    batches = [torch.randn(8, LENGTH, 8192) for _ in range(3)]
    batches = [batch.pin_memory() for batch in batches] if pinned else batches
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        batch = batches[count % 3].to("cuda", non_blocking=pinned)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    record(step, folder, **options)


def copies_pageable(folder: Path) -> None:
    """Training on batches that are copied from pageable memory, which takes longer than the rest of the step."""
    copying(folder, pinned=False, active=1)


def copies_pinned(folder: Path) -> None:
    """The same from pinned memory, without waiting; only measured."""
    copying(folder, pinned=True, is_recorded=False)


def augmenting(folder: Path, seconds: float, **options: object) -> None:
    """Training with so much of Python's own work before each step."""
    step = training(blocks(width=128), sequences(2, 128), momentum=True)

    def augmented() -> None:
        with torch.profiler.record_function("augment"):
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                pass
        step()

    record(augmented, folder, **options)


def python_work(folder: Path) -> None:
    """small, with 4 ms of Python's own work before each step."""
    augmenting(folder, 0.004, active=1)


def optimizing(folder: Path, *, fused: bool, **options: object) -> None:
    """Training of a narrow model of many parameters."""
    model, make_batch = blocks(8, 128), sequences(2, 128)
    how = {"fused": True} if fused else {"foreach": False}
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, **how)  # type: ignore[arg-type]

    def step() -> None:
        optimizer.zero_grad()
        model(make_batch()).square().mean().backward()
        optimizer.step()

    record(step, folder, **options)


def optimizer_loop(folder: Path) -> None:
    """Training of eight narrow blocks, whose parameters AdamW updates one after the other."""
    optimizing(folder, fused=False, active=1)


def optimizer_fused(folder: Path) -> None:
    """The same with the fused optimizer; only measured."""
    optimizing(folder, fused=True, is_recorded=False)


def with_faults(folder: Path, *faults: str, **options: object) -> None:
    """Training of four blocks with some faults: a slow loader, the mean of every block read, pageable memory."""
    model = blocks()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    items = SlowItems(0.0015 if "loader" in faults else 0.0)
    is_pinned, means = "pageable" not in faults, []
    loader = torch.utils.data.DataLoader(items, 16, num_workers=2, prefetch_factor=1, pin_memory=is_pinned)
    batches = iter(loader)

    def step() -> None:
        with torch.profiler.record_function("get batch"):
            x = next(batches).to("cuda", non_blocking=is_pinned)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            for block in model:  # type: ignore[attr-defined]
                x = block(x)
                if "reads" in faults:
                    means.append(x.mean().item())
        x.float().square().mean().backward()
        optimizer.step()

    record(step, folder, **options)


def faults(folder: Path) -> None:
    """Training with all three faults: a slow loader, the mean of each block read, pageable memory."""
    with_faults(folder, "loader", "reads", "pageable", modules=True, active=1)


def faults_loader(folder: Path) -> None:
    """The same when the loader is mended; only measured, as the next three."""
    with_faults(folder, "reads", "pageable", is_recorded=False)


def faults_reads(folder: Path) -> None:
    """The same when the reads are gone."""
    with_faults(folder, "loader", "pageable", is_recorded=False)


def faults_pageable(folder: Path) -> None:
    """The same when memory is pinned."""
    with_faults(folder, "loader", "reads", is_recorded=False)


def faults_none(folder: Path) -> None:
    """The same without any of the faults."""
    with_faults(folder, is_recorded=False)


def language_model(folder: Path) -> None:
    """Training of transformers' GPT-2 with four layers, under autocast to bfloat16."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=4, vocab_size=8192)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def step() -> None:
        tokens = torch.randint(8192, (8, 512), device="cuda")
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    record(step, folder)


def decoding(folder: Path) -> None:
    """Generating one token at a time with a cache, by the same model in bfloat16: four tokens a step, batch 4."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=4, vocab_size=8192)).cuda().bfloat16().eval()
    tokens = torch.randint(8192, (4, 64), device="cuda")

    @torch.inference_mode()
    def step() -> None:
        next_tokens, cache = tokens, None
        for _ in range(4):
            output = model(next_tokens, past_key_values=cache, use_cache=True)
            cache, next_tokens = output.past_key_values, output.logits[:, -1:].argmax(-1)
        next_tokens.cpu()

    record(step, folder, active=1)


def nccl(folder: Path) -> None:
    """DistributedDataParallel and other collectives through NCCL in a group of one rank."""
    alone("nccl", folder, nccl_rank)


def nccl_rank(folder: Path) -> None:
    model = DistributedDataParallel(blocks(2))
    step = training(model, sequences(8), dtype=torch.bfloat16)

    def communicating() -> None:
        step()
        tensor = torch.ones(1 << 20, device="cuda")
        work = torch.distributed.all_reduce(tensor, async_op=True)
        beside = torch.ones(1 << 20, device="cuda").exp_()
        work.wait()
        tensor.add_(beside)
        torch.distributed.all_gather_into_tensor(torch.empty_like(tensor), tensor)
        torch.distributed.reduce_scatter_tensor(torch.empty_like(tensor), tensor)
        torch.distributed.all_to_all_single(torch.empty_like(tensor), tensor)
        torch.distributed.broadcast(tensor, 0)

    record(communicating, folder)


def sharded(folder: Path) -> None:
    """Fully sharded data parallelism (FSDP2) through NCCL in a group of one rank."""
    alone("nccl", folder, sharded_rank)


def sharded_rank(folder: Path) -> None:
    from torch.distributed.fsdp import fully_shard

    model = blocks(2)
    for block in model:  # type: ignore[attr-defined]
        fully_shard(block)
    fully_shard(model)
    record(training(model, sequences(8), dtype=torch.bfloat16), folder)


def alone(backend: str, folder: Path, program: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory() as meeting_point:
        torch.distributed.init_process_group(backend, f"file://{meeting_point}/ranks", rank=0, world_size=1)
        program(folder)
        torch.distributed.destroy_process_group()


def gloo(folder: Path) -> None:
    """Two processes that share the GPU and reduce their gradients through gloo."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as meeting_point:
        torch.multiprocessing.spawn(gloo_rank, (f"file://{meeting_point}/ranks", folder), nprocs=2)


def gloo_rank(rank: int, meeting_point: str, folder: Path) -> None:
    torch.distributed.init_process_group("gloo", meeting_point, rank=rank, world_size=2)
    model = DistributedDataParallel(blocks(1))
    record(training(model, sequences(4), momentum=True), folder)
    torch.distributed.destroy_process_group()


SAMPLES: dict[str, Callable[[Path], None]] = {
    name: sample
    for name, sample in [*globals().items()]
    if isfunction(sample) and [*signature(sample).parameters] == ["folder"] and not name.endswith("_rank")
}
"""The functions above that take a folder alone, but for those that run as a rank."""


def main() -> None:
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
        run = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True)
        lines = [line.split() for line in run.stdout.splitlines() if line.startswith("MEASURED ")]
        for _, sample, *values in lines[:1]:
            measured_us[sample] = dict(zip(("median", "least", "most"), map(float, values), strict=True))
        print(name, run.returncode, f"{time.monotonic() - begin:.1f} s", run.stderr[-1500:] if run.returncode else "")
    FOLDER.mkdir(exist_ok=True)
    times.write_text(json.dumps(measured_us, indent=1) + "\n")


if __name__ == "__main__":
    main()
