"""Records the captures in this folder: small CPU training runs, each a host and a device trace per rank.

    pip install torch==2.13.0 numpy && pip install -e . && python tests/data/record.py [NAME ...]

records them all, or the named ones, anew into tests/data/NAME/. `compiled` needs a C++ compiler. `one_step` goes into
tests/data/torch_VERSION/, so that it can be recorded with each version of PyTorch.
"""

import os
import queue
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from execgraph.tools.capture import capture
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, LENGTH, BATCH = 32, 4, 16, 4
STEPS = 5


class Block(nn.Module):
    """Attention and a two-layer perceptron, each with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.perceptron = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return x + self.perceptron(x)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Tensor) -> None:
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()


def batch() -> Tensor:
    return torch.randn(BATCH, LENGTH, WIDTH)


def record(folder: Path, model: nn.Module, *, momentum: float = 0.0, modules: bool = False) -> None:
    """Records two steps of training with SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=momentum)
    with capture(folder, together=True, wait=1, modules=modules) as recorder:
        for _ in range(STEPS):
            train_step(model, optimizer, torch.randn(BATCH, 3, 8, 8) if isinstance(model, Picture) else batch())
            recorder.step()


def attention(folder: Path) -> None:
    """Two blocks of attention and perceptron."""
    record(folder, nn.Sequential(Block(), Block()), momentum=0.9)


def ddp(folder: Path) -> None:
    """Two processes that train one block together, gradients reduced through gloo."""
    together(ddp_rank, folder)


def together(program: Callable[..., None], *arguments: object) -> None:
    """Runs a program in two processes that communicate through gloo."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as meeting_point:
        torch.multiprocessing.spawn(in_group, (f"file://{meeting_point}/ranks", program, *arguments), nprocs=2)


def in_group(rank: int, meeting_point: str, program: Callable[..., None], *arguments: object) -> None:
    prepare()
    torch.distributed.init_process_group("gloo", meeting_point, rank=rank, world_size=2)
    program(rank, *arguments)
    torch.distributed.destroy_process_group()


def ddp_rank(rank: int, folder: Path) -> None:
    record(folder, DistributedDataParallel(Block()))


def gloo_slow(folder: Path) -> None:
    """A job whose second process takes 0.1 s to load each batch."""
    together(loading_rank, folder, 0.1)


def gloo_fast(folder: Path) -> None:
    """The same job, when loading takes 0.02 s."""
    together(loading_rank, folder, 0.02)


def loading_rank(rank: int, folder: Path, seconds: float) -> None:
    """Training with gradients reduced, and other communication, waited for at once or later; rank 1 loads slowly."""
    model = DistributedDataParallel(nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with capture(folder, together=True, wait=1, active=3) as recorder:
        for _ in range(STEPS):
            with torch.profiler.record_function("load batch"):
                time.sleep(seconds * rank)
            train_step(model, optimizer, batch())
            communicate(rank, torch.ones(WIDTH))
            recorder.step()


def communicate(rank: int, tensor: Tensor) -> None:
    """A sum that is waited for after work beside it, copies of everybody's, and a message."""
    summing = torch.distributed.all_reduce(tensor, async_op=True)
    beside = torch.ones(WIDTH).exp().sum()
    summing.wait()
    tensor.div_(beside)
    torch.distributed.all_gather([torch.empty(WIDTH) for _ in range(2)], tensor)
    if rank:
        torch.distributed.send(tensor, 0)
    else:
        torch.distributed.recv(tensor, 1)


def threads(folder: Path) -> None:
    """A thread that loads the batches, a thread that averages the weights beside, and the main thread that trains."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches: queue.Queue[Tensor] = queue.Queue(maxsize=1)
    done = threading.Event()

    def load() -> None:
        while not done.is_set():
            try:
                batches.put(batch().flatten(0, 1).clamp(-1, 1), timeout=0.01)
            except queue.Full:
                continue

    def average() -> None:
        means = [parameter.detach().clone() for parameter in model.parameters()]
        while not done.wait(0.001):
            for mean, parameter in zip(means, model.parameters(), strict=True):
                mean.lerp_(parameter.detach(), 0.1)

    beside = [threading.Thread(target=load), threading.Thread(target=average)]
    for thread in beside:
        thread.start()
    with capture(folder, together=True, wait=1) as recorder:
        for _ in range(STEPS):
            train_step(model, optimizer, batches.get())
            recorder.step()
    done.set()
    for thread in beside:
        thread.join()


def compiled(folder: Path) -> None:
    """One block compiled by inductor."""
    record(folder, torch.compile(Block()))


def one_step(folder: Path) -> None:
    """One step of one block, under an annotation of its own."""
    model = Block()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with capture(folder, together=True, wait=1, active=1) as recorder:
        for _ in range(STEPS):
            with torch.profiler.record_function("## train ##"):
                train_step(model, optimizer, batch())
            recorder.step()


class Picture(nn.Module):
    """Convolutions and a block of attention, whose activations are computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        convolution = nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.ReLU())
        self.stem = nn.Sequential(nn.Conv2d(3, WIDTH, 3, padding=1), convolution, nn.Flatten(2))
        self.block = Block()
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        words = self.stem(x).transpose(1, 2)
        return self.head(checkpoint(self.block, words, use_reentrant=False))


def modules(folder: Path) -> None:
    """Convolutions and attention, with Python's calls."""
    record(folder, Picture(), modules=True)


RECORDED = (attention, ddp, gloo_slow, gloo_fast, threads, compiled, modules, one_step)
SAMPLES: dict[str, Callable[[Path], None]] = {sample.__name__: sample for sample in RECORDED}


def prepare() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)


def main() -> None:
    prepare()
    for name in sys.argv[1:] or SAMPLES:
        place = name if name != one_step.__name__ else f"torch_{torch.__version__.partition('+')[0]}"
        folder = Path(__file__).parent / place
        shutil.rmtree(folder, ignore_errors=True)
        SAMPLES[name](folder)


if __name__ == "__main__":
    main()
