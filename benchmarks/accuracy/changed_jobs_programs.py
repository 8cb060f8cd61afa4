"""Real jobs of PyTorch on a CPU, what is changed in each, and how the change is asked for.

A job is a function that returns an iterator: each `next` does one step. The changed job is the same function with other
parameters. Needs PyTorch.
"""

import math
import threading
import time
import timeit
from collections.abc import Callable, Iterator, Mapping
from queue import Queue
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.profiler import record_function

Steps = Iterator[None]


class Bare(NamedTuple):
    """A factor that is measured without a profiler: how long something takes after a change, by how long before it."""

    seconds: Callable[[Any], float]
    before: Any
    after: Any

    def factor(self) -> float:
        """Measures both in turns, and returns the quotient of the shortest times."""
        turns = [(self.seconds(self.after), self.seconds(self.before)) for _ in range(3)]
        after, before = map(min, zip(*turns, strict=True))
        return float(after / before)


class Change(NamedTuple):
    """A change, the factors that ask for it by what they apply to, and the parameters that make it; if CUDA can."""

    text: str
    scale: Mapping[str, float | Bare]
    parameters: Mapping[str, Any]
    needs_cuda: bool = False


class Job(NamedTuple):
    """A program with its parameters, and changes of them. `settle` steps go by before a block of steps is timed."""

    program: Callable[..., Steps]
    parameters: Mapping[str, Any]
    changes: tuple[Change, ...]
    ranks: int = 1
    settle: int = 2

    def steps(self, change: Change | None = None) -> Steps:
        """Returns the job, changed or not."""
        return self.program(**{**self.parameters, **(change.parameters if change else {})})


# the programs


def _wait(name: str, milliseconds: float) -> None:
    with record_function(name):
        time.sleep(milliseconds / 1000)


def _products(size: int, count: int) -> None:
    matrix = torch.full((size, size), 0.5)
    for _ in range(count):
        torch.mm(matrix, matrix)


def small_ops(sleep_ms: float, ops: int, products: int = 0, size: int = 256) -> Steps:
    """Sleeps, runs many small ops, and some matrix products."""
    small = torch.ones(8)
    while True:
        _wait("sleep", sleep_ms)
        for _ in range(ops):
            small.mul_(1.0)
        _products(size, products)
        yield


def products_of_two_sizes(large: int, small: int) -> Steps:
    """Multiplies a few large matrices (`aten::mm`), and many small ones (`aten::bmm`)."""
    batch = torch.full((1, small, small), 0.1)
    while True:
        _products(large, 4)
        for _ in range(150):
            torch.bmm(batch, batch)
        yield


def layers(widths: tuple[int, ...], log_ms: float) -> Steps:
    """Runs layers one after the other, each within an annotation of its own; a width of 0 leaves a layer out."""
    blocks = [(number, _layer(width)) for number, width in enumerate(widths) if width]
    batch = torch.rand(256, 256)
    while True:
        with torch.no_grad():
            data = batch
            for number, block in blocks:
                with record_function(f"layer {number}"):
                    data = block(data)
        _wait("log", log_ms)
        yield


def _layer(width: int) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(256, width), torch.nn.ReLU(), torch.nn.Linear(width, 256))


def _model(hidden: int) -> Any:
    return torch.nn.Sequential(*[torch.nn.Linear(hidden, hidden) for _ in range(3)])


def accumulation(hidden: int, load_ms: float, log_ms: float) -> Steps:
    """Trains with the gradients of four micro-batches; each is loaded first."""
    model = _model(hidden)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    while True:
        for _ in range(4):
            _wait("load", load_ms)
            model(torch.ones(BATCH, hidden)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        _wait("log", log_ms)
        yield


class Samples:
    """A data set whose samples take a while to load."""

    def __init__(self, load_ms: float) -> None:
        self.load_ms = load_ms

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> Any:
        _wait("load sample", self.load_ms)
        return torch.ones(64)


def loader(load_ms: float, size: int, workers: int) -> Steps:
    """Takes batches of PyTorch's data loader, and multiplies matrices."""
    for _ in torch.utils.data.DataLoader(Samples(load_ms), batch_size=SAMPLES, num_workers=workers):
        _products(size, PRODUCTS)
        yield


def thread_that_prepares(prepare_ms: float, size: int) -> Steps:
    """Takes batches of a thread, which is one batch ahead at most."""
    batches: Queue[Any] = Queue(1)

    def prepare() -> None:
        while True:
            _wait("prepare", prepare_ms)
            batches.put(torch.ones(64, 64).mul_(2))

    threading.Thread(target=prepare, daemon=True).start()
    while True:
        batches.get().sum()
        _products(size, PRODUCTS)
        yield


def thread_that_answers(answer_ms: float, size: int) -> Steps:
    """Asks another thread and waits for its answer, a few times a step, as `.item()` waits for a device."""
    questions: Queue[Any] = Queue()
    answers: Queue[Any] = Queue()

    def answer() -> None:
        while True:
            data = questions.get()
            _wait("answer", answer_ms)
            answers.put(data.mul(2))

    threading.Thread(target=answer, daemon=True).start()
    while True:
        for _ in range(4):
            data = torch.ones(64)
            for _ in range(50):
                data = data.add(1)
            questions.put(data)
            _products(size, 1)
            answers.get().sum()
        yield


def late_rank(late_ms: float, hidden: int) -> Steps:
    """Trains data-parallel over gloo; rank 1 comes late."""
    model = torch.nn.parallel.DistributedDataParallel(_model(hidden))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    while True:
        if dist.get_rank() == 1:
            _wait("late", late_ms)
        optimizer.zero_grad()
        model(torch.ones(BATCH, hidden)).sum().backward()
        optimizer.step()
        yield


def messages(numbers: int, size: int) -> Steps:
    """Multiplies matrices and sums a tensor over the ranks, as for its gradients."""
    data = torch.zeros(numbers)
    while True:
        _products(size, PRODUCTS)
        dist.all_reduce(data)
        yield


def compiled(sleep_ms: float, size: int) -> Steps:
    """Sleeps, and runs a compiled function."""
    matrix = torch.full((size, size), 0.01)
    function = torch.compile(lambda data: torch.relu(data @ matrix + 1).mul(0.01) @ matrix, dynamic=False)
    while True:
        _wait("sleep", sleep_ms)
        for _ in range(4):
            function(matrix)
        yield


# how long something takes bare


def seconds(work: Callable[[], object]) -> float:
    """Returns how long work takes when nothing disturbs it."""
    timer = timeit.Timer(work)
    calls = math.ceil(0.02 / min(timer.repeat(3, 1)))
    return min(timer.repeat(9, calls)) / calls


def product(size: int) -> float:
    """Returns how long a matrix product takes."""
    matrix = torch.full((size, size), 0.5)
    return seconds(lambda: torch.mm(matrix, matrix))


def small_product(size: int) -> float:
    """Returns how long a product of a batch of one takes."""
    batch = torch.full((1, size, size), 0.1)
    return seconds(lambda: torch.bmm(batch, batch))


def layer(width: int) -> float:
    """Returns how long a layer of `layers` takes."""
    block, data = _layer(width).requires_grad_(False), torch.rand(256, 256)
    return seconds(lambda: block(data))


def trained_products(hidden: int) -> float:
    """Returns how long the three products of a trained layer take."""
    data, weight, bias = torch.ones(BATCH, hidden), torch.ones(hidden, hidden), torch.ones(hidden)
    return seconds(lambda: (torch.addmm(bias, data, weight), torch.mm(data, weight), torch.mm(data.T, data)))


def all_reduce(numbers: int) -> float:
    """Returns how long a sum over the ranks takes after products, in the median; the ranks call it equally often."""
    # one after another they take another time: what wakes the threads of a rank is a part of it that does not grow
    data, times = torch.zeros(numbers), list[float]()
    for _ in range(40):
        _products(SIZE, PRODUCTS)
        times.append(timeit.timeit(lambda: dist.all_reduce(data), number=1))
    return median(times)


# the table

SIZE, PRODUCTS, BATCH, SAMPLES = 256, 8, 128, 4
MM, TRAINED, REDUCED = r"aten::mm$", r"aten::(add)?mm$", "gloo:all_reduce"
LARGER, SMALLER = Bare(product, SIZE, 320), Bare(product, SIZE, 192)


def _times(name: str, parameter: str, base: float, *factors: float) -> Iterator[Change]:
    """Yields changes of how long an annotation takes."""
    for factor in factors:
        yield Change(f"{name} ×{factor:g}", {f"^{name}$": factor}, {parameter: factor * base})


def _hidden(base: int, *changed: int) -> Iterator[Change]:
    for hidden in changed:
        yield Change(f"hidden {base} → {hidden}", {TRAINED: Bare(trained_products, base, hidden)}, {"hidden": hidden})


def _both(one: Change, other: Change) -> Change:
    return Change(f"{one.text}, {other.text}", {**one.scale, **other.scale}, {**one.parameters, **other.parameters})


PRODUCTS_LARGER = Change("products 256 → 320", {MM: LARGER}, {"size": 320})
PRODUCTS_SMALLER = Change("products 256 → 192", {MM: SMALLER}, {"size": 192})
LARGE, SMALL = (
    Change(f"{name} 384 → 480" if name == "large" else f"{name} 48 → 80", {op: bare}, {name: bare.after})
    for name, op, bare in (("large", MM, Bare(product, 384, 480)), ("small", "aten::bmm$", Bare(small_product, 48, 80)))
)
WIDTHS = (512,) * 4
[SLEEP_TWICE] = _times("sleep", "sleep_ms", 10, 2)
[PREPARE_HALF] = _times("prepare", "prepare_ms", 25, 0.5)
JOBS: dict[str, Job] = {
    "sleep": Job(
        small_ops, {"sleep_ms": 20, "ops": 1200}, (*_times("sleep", "sleep_ms", 20, 0, 0.5, 1.5, 2, 3),)
    ),
    "mixed": Job(
        small_ops, {"sleep_ms": 10, "ops": 600, "products": 6},
        (
            *_times("sleep", "sleep_ms", 10, 0, 3), PRODUCTS_LARGER, PRODUCTS_SMALLER,
            _both(SLEEP_TWICE, PRODUCTS_LARGER),
        ),
    ),
    "products": Job(
        products_of_two_sizes, {"large": 384, "small": 48},
        (
            LARGE, SMALL, _both(LARGE, SMALL),
            Change("large 384 → 288", {MM: Bare(product, 384, 288)}, {"large": 288}),
            Change("small 48 → 32", {"aten::bmm$": Bare(small_product, 48, 32)}, {"small": 32}),
        ),
    ),
    "layers": Job(
        layers, {"widths": WIDTHS, "log_ms": 3},
        (
            *_times("log", "log_ms", 3, 0, 3),
            Change("without layer 2", {"under:layer 2": 0}, {"widths": (512, 512, 0, 512)}),
            Change("layer 1 wider", {"under:layer 1": Bare(layer, 512, 1024)}, {"widths": (512, 1024, 512, 512)}),
            Change("all layers narrower", {"under:layer": Bare(layer, 512, 256)}, {"widths": (256,) * 4}),
        ),
    ),
    "accumulation": Job(
        accumulation, {"hidden": 256, "load_ms": 2, "log_ms": 5},
        (*_times("load", "load_ms", 2, 0, 3), *_times("log", "log_ms", 5, 0), *_hidden(256, 192, 320)),
    ),
    "loader in process": Job(
        loader, {"load_ms": 3, "size": SIZE, "workers": 0},
        (*_times("load sample", "load_ms", 3, 0, 0.5, 2), PRODUCTS_LARGER, PRODUCTS_SMALLER),
    ),
    "loader with a worker": Job(
        loader, {"load_ms": 6, "size": SIZE, "workers": 1},
        (
            Change("no wait for data", {r"enumerate\(DataLoader\)": 0}, {"load_ms": 0}),
            *(
                Change(f"loading ×{load / 6:.3g}", {r"enumerate\(DataLoader\)": load / 6}, {"load_ms": load})
                for load in (4, 12)
            ),
            PRODUCTS_LARGER, PRODUCTS_SMALLER,
        ),
        settle=5,
    ),
    "thread that prepares": Job(
        thread_that_prepares, {"prepare_ms": 25, "size": SIZE},
        (*_times("prepare", "prepare_ms", 25, 0, 0.5, 2), PRODUCTS_LARGER, _both(PREPARE_HALF, PRODUCTS_LARGER)),
        settle=4,
    ),
    "thread that answers": Job(
        thread_that_answers, {"answer_ms": 5, "size": SIZE},
        (*_times("answer", "answer_ms", 5, 0, 0.5, 2, 3), PRODUCTS_LARGER),
    ),
    "late rank": Job(
        late_rank, {"late_ms": 30, "hidden": 256},
        (*_times("late", "late_ms", 30, 0, 0.33, 0.5, 2), *_hidden(256, 320)), ranks=2,
    ),
    "messages": Job(
        messages, {"numbers": 1_000_000, "size": SIZE},
        (
            *(
                Change(f"messages ×{factor:g}", {REDUCED: Bare(all_reduce, 1_000_000, numbers)}, {"numbers": numbers})
                for factor, numbers in ((0.25, 250_000), (2, 2_000_000), (4, 4_000_000))
            ),
            PRODUCTS_LARGER, PRODUCTS_SMALLER,
        ),
        ranks=2,
    ),
    "compiled": Job(
        compiled, {"sleep_ms": 10, "size": SIZE},
        (*_times("sleep", "sleep_ms", 10, 0, 2, 3), PRODUCTS_LARGER, PRODUCTS_SMALLER),
    ),
}  # fmt: skip
