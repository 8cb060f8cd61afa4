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
from collections.abc import Callable
from pathlib import Path

import torch
from execgraph.tools.capture import capture
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

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


def attention(folder: Path) -> None:
    """Two steps of two blocks of attention and perceptron with SGD."""
    model = nn.Sequential(Block(), Block())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with capture(folder) as recorder:
        for _ in range(STEPS):
            train_step(model, optimizer, batch())
            recorder.step()


def ddp(folder: Path) -> None:
    """Two processes that train one block together, gradients reduced through gloo."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as meeting_point:
        torch.multiprocessing.spawn(ddp_rank, (folder, f"file://{meeting_point}/ranks"), nprocs=2)


def ddp_rank(rank: int, folder: Path, meeting_point: str) -> None:
    prepare()
    torch.distributed.init_process_group("gloo", meeting_point, rank=rank, world_size=2)
    model = DistributedDataParallel(Block())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with capture(folder) as recorder:
        for _ in range(STEPS):
            train_step(model, optimizer, batch())
            recorder.step()
    torch.distributed.destroy_process_group()


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
    with capture(folder) as recorder:
        for _ in range(STEPS):
            train_step(model, optimizer, batches.get())
            recorder.step()
    done.set()
    for thread in beside:
        thread.join()


def compiled(folder: Path) -> None:
    """Two steps of one block compiled by inductor."""
    eager = Block()
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.01)
    model = torch.compile(eager)
    with capture(folder) as recorder:
        for _ in range(STEPS):
            train_step(model, optimizer, batch())
            recorder.step()


def one_step(folder: Path) -> None:
    """One step of one block, under an annotation of its own."""
    model = Block()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with capture(folder, active=1) as recorder:
        for _ in range(STEPS):
            with torch.profiler.record_function("## train ##"):
                train_step(model, optimizer, batch())
            recorder.step()


RECORDED = (attention, ddp, threads, compiled, one_step)
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
