"""Jobs of one NVIDIA GPU, training and inference: record_gpu.py made the captures in tests/data/gpu of them."""

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import cycle
from pathlib import Path

import torch
from execgraph.tools.capture import capture
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

DEVICE = os.environ.get("EXECGRAPH_DEVICE", "cuda")  # on a CPU the jobs are smaller, to try them
WIDTH, HEADS, LENGTH, LAYERS = (512, 8, 256, 4) if DEVICE == "cuda" else (128, 8, 32, 2)
MEASURED_STEPS, REPEATS = 20, 5
ALL_FAULTS = "loader", "reads", "pageable"

Step = Callable[[], object]
Batches = Callable[[], Tensor]


class Block(nn.Module):
    """Causal attention and a two-layer perceptron, each with a residual connection."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.outputs = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Returns what attention and perceptron add to their inputs."""
        batch, length, width = x.shape
        parts = self.inputs(self.before(x)).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.outputs(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.perceptron(self.between(x))


def blocks(layers: int = LAYERS, width: int = WIDTH) -> nn.Module:
    """Returns blocks of attention and perceptron."""
    return nn.Sequential(*(Block(width) for _ in range(layers))).to(DEVICE)


def training(
    model: nn.Module, make_batch: Batches, *, dtype: torch.dtype | None = None, momentum: bool = False, **how: bool
) -> Callable[[], Tensor]:
    """Returns a step of training, with `dtype` under autocast; AdamW, unless with momentum, updates `how` it says."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, 0.01, 0.9) if momentum else torch.optim.AdamW(parameters, 1e-4, **how)

    def step() -> Tensor:
        optimizer.zero_grad()
        with torch.autocast(DEVICE, dtype) if dtype else nullcontext():
            loss = model(make_batch()).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def sequences(batch: int, width: int = WIDTH) -> Batches:
    """Returns what makes a batch of sequences."""
    return lambda: torch.randn(batch, LENGTH, width, device=DEVICE)


def pictures(batch: int) -> Batches:
    """Returns what makes a batch of pictures."""
    return lambda: torch.randn(batch, 3, 128, 128, device=DEVICE).to(memory_format=torch.channels_last)


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
    with capture(folder, **{"wait": 5, "together": True} | options) as recorder:  # type: ignore[arg-type]
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


def on_tensor_cores() -> Step:
    """Training in single precision with TF32."""
    torch.backends.cuda.matmul.allow_tf32 = True
    return training(blocks(), sequences(32))


def narrow(batch: int = 2) -> Step:
    """Four narrow blocks with SGD: their kernels are short, launching them takes longer."""
    return training(blocks(width=128), sequences(batch, 128), momentum=True)


def residual() -> nn.Module:
    """Returns a residual network of 18 layers."""
    from torchvision.models import resnet18

    return resnet18(num_classes=10).to(DEVICE).to(memory_format=torch.channels_last)


def with_inductors_graphs(batch: int = 8) -> Step:
    """Compiled with mode="reduce-overhead": inductor replays CUDA graphs."""
    model = torch.compile(blocks(), mode="reduce-overhead")
    step = training(model, sequences(batch), dtype=torch.bfloat16)

    def marked() -> None:
        torch.compiler.cudagraph_mark_step_begin()
        step()

    return marked


def replayed(batch: int = 2) -> Step:
    """The narrow blocks, whose step is captured once in a CUDA graph and replayed."""
    model, x = blocks(width=128), torch.randn(batch, LENGTH, 128, device=DEVICE)
    step = training(model, lambda: x, momentum=True)
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
        x.normal_()
        graph.replay()

    return replay


def synchronised(batch: int = 2, *, reads: bool = True) -> Step:
    """The narrow blocks with clipped gradients; loss and norm are read in every step, which waits for the GPU."""
    model, make_batch = blocks(width=128), sequences(batch, 128)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9)

    def step() -> None:
        optimizer.zero_grad()
        loss = model(make_batch()).square().mean()
        loss.backward()
        if reads and loss.item() > 1e9:
            raise ValueError("diverged")
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=reads)
        optimizer.step()

    return step


def device_only(folder: Path) -> None:
    """The narrow blocks, recorded by the profiler alone, without a host trace."""
    step = narrow()
    for _ in range(20):
        step()
    folder.mkdir(parents=True, exist_ok=True)
    with torch.profiler.profile(record_shapes=True) as profiler:
        for number in range(3):
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                step()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(folder / "device_rank0.json.gz"))


def streams() -> Step:
    """Batches copied ahead on one stream, two branches on two streams, waits for events, streams and the device."""
    left, right, head = blocks(1), blocks(1), nn.Linear(WIDTH, 1).to(DEVICE)
    copying, beside = torch.cuda.Stream(), torch.cuda.Stream()
    pinned = torch.randn(32, LENGTH, WIDTH).pin_memory()
    ready: list[tuple[Tensor, torch.cuda.Event]] = []
    optimizer = torch.optim.SGD([*left.parameters(), *right.parameters(), *head.parameters()], 0.01)

    def prefetch() -> None:
        with torch.cuda.stream(copying):
            batch = pinned.to(DEVICE, non_blocking=True)
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
    return step


class SlowItems(torch.utils.data.Dataset[Tensor]):
    """Items that take the CPU `seconds` each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Tensor:
        busy(self._seconds)
        return torch.full((LENGTH, WIDTH), float(index % 7))


def busy(seconds: float) -> None:
    """Keeps Python at work."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def loading(seconds: float, workers: int = 2, *, batch: int = 16, pinned: bool = False) -> Step:
    """Training on batches that workers load, or the loop itself, from pageable memory or pinned by a thread."""
    ahead, items = 1 if workers else None, SlowItems(seconds)
    loader = torch.utils.data.DataLoader(items, batch, num_workers=workers, prefetch_factor=ahead, pin_memory=pinned)
    batches = iter(loader)
    train = training(blocks(2), lambda: next(batches).to(DEVICE, non_blocking=pinned))
    return lambda: train().item()


def copying(batch: int = 8, *, pinned: bool) -> Step:
    """Training on batches (of 64 MB) in the host's memory; to copy them from pageable memory takes longest."""
    model = nn.Sequential(nn.Linear(8192, 64), *blocks(2, 64)).to(DEVICE)  # type: ignore[misc]
    batches = [torch.randn(batch, LENGTH, 8192) for _ in range(3)]
    turns = cycle([x.pin_memory() for x in batches] if pinned else batches)
    return training(model, lambda: next(turns).to(DEVICE, non_blocking=pinned), momentum=True)


def augmenting(seconds: float) -> Step:
    """The narrow blocks, with so much of Python's own work before each step."""
    step = narrow()

    def augmented() -> None:
        with torch.profiler.record_function("augment"):
            busy(seconds)
        step()

    return augmented


def optimizing(batch: int = 2, **how: bool) -> Step:
    """Training of eight narrow blocks, whose parameters AdamW updates so."""
    return training(blocks(8, 128), sequences(batch, 128), **how)


def with_faults(*faults: str, batch: int = 16) -> Step:
    """Training of four blocks with some faults: a slow loader, the mean of every block read, pageable memory."""
    model = blocks()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    items = SlowItems(0.0015 if "loader" in faults else 0.0)
    is_pinned, means = "pageable" not in faults, []
    loader = torch.utils.data.DataLoader(items, batch, num_workers=2, prefetch_factor=1, pin_memory=is_pinned)
    batches = iter(loader)

    def step() -> None:
        with torch.profiler.record_function("get batch"):
            x = next(batches).to(DEVICE, non_blocking=is_pinned)
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16):
            for block in model:  # type: ignore[attr-defined]
                x = block(x)
                if "reads" in faults:
                    means.append(x.mean().item())
        x.float().square().mean().backward()
        optimizer.step()

    return step


def gpt2() -> nn.Module:
    """Returns a small GPT-2."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=4, vocab_size=8192)).to(DEVICE)


def language_model() -> Step:
    """Training of GPT-2 with four layers, under autocast to bfloat16."""
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def step() -> None:
        tokens = torch.randint(8192, (8, 512), device=DEVICE)
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def decoding() -> Step:
    """Generating one token at a time with a cache, by the same model in bfloat16: four tokens a step, batch 4."""
    model = gpt2().bfloat16().eval()
    tokens = torch.randint(8192, (4, 64), device=DEVICE)

    @torch.inference_mode()
    def step() -> None:
        next_tokens, cache = tokens, None
        for _ in range(4):
            output = model(next_tokens, past_key_values=cache, use_cache=True)
            cache, next_tokens = output.past_key_values, output.logits[:, -1:].argmax(-1)
        next_tokens.cpu()

    return step


def communicating() -> Step:
    """DistributedDataParallel and other collectives."""
    step = training(DistributedDataParallel(blocks(2)), sequences(8), dtype=torch.bfloat16)

    def with_collectives() -> None:
        step()
        tensor = torch.ones(1 << 20, device=DEVICE)
        work = torch.distributed.all_reduce(tensor, async_op=True)
        beside = torch.ones(1 << 20, device=DEVICE).exp_()
        work.wait()
        tensor.add_(beside)
        torch.distributed.all_gather_into_tensor(torch.empty_like(tensor), tensor)
        torch.distributed.reduce_scatter_tensor(torch.empty_like(tensor), tensor)
        torch.distributed.all_to_all_single(torch.empty_like(tensor), tensor)
        torch.distributed.broadcast(tensor, 0)

    return with_collectives


def sharding() -> Step:
    """Fully sharded data parallelism (FSDP2)."""
    from torch.distributed.fsdp import fully_shard

    model = blocks(2)
    for block in model:  # type: ignore[attr-defined]
        fully_shard(block)
    fully_shard(model)
    return training(model, sequences(8), dtype=torch.bfloat16)
