"""Random work of a program: ops with ops inside them, the kernels that they launch, and Python around them."""

from collections.abc import Sequence
from typing import NamedTuple

from execgraph.tools.generate import COMPUTE, Activity, Script, Tensor, layers

from .random_draft import Draft, Part, Rank

OPS = (
    ("aten::mm", layers.GEMM),
    ("aten::sum", layers.REDUCE),
    ("aten::clamp_min", layers.CLAMP),
    ("aten::add", layers.ADD),
)
AROUND = ("aten::linear", "aten::mean", "aten::relu", "aten::add_")
"""Ops around those that launch."""


class Nest(NamedTuple):
    """An op with ops inside, and the kernels that it launches after them."""

    name: str
    own_us: float
    kernels: tuple[tuple[Activity, float], ...]
    inner: "tuple[Nest, ...]"

    def write(self, script: Script, stream: int, reads: Tensor, writes: Tensor) -> None:
        """Writes the op with all inside; each op reads and writes the same tensors."""
        # what an in-place op writes is its first argument
        inputs = (writes, reads) if self.name.endswith("_") else (reads, writes)
        with script.op(self.name, inputs, (writes,), own_us=self.own_us):
            for nest in self.inner:
                nest.write(script, stream, reads, writes)
            for kernel, us in self.kernels:
                script.launch(kernel, stream, us)


def draw_nest(draft: Draft, depth: int, launches: bool = True) -> Nest:
    """Returns an op `depth` levels deep; where it launches the innermost ones have a kernel or more."""
    random = draft.random
    name, kernel = random.choice(OPS)
    if depth == 1:
        kernels = tuple((kernel, draft.kernel_us()) for _ in range(random.randint(1, 3) if launches else 0))
        return Nest(name if launches else "aten::view", draft.host_us(), kernels, ())
    inner = tuple(draw_nest(draft, depth - 1, launches) for _ in range(random.choice((1, 1, 2))))
    also = ((kernel, draft.kernel_us()),) if launches and random.random() < 0.2 else ()
    return Nest(random.choice(AROUND), draft.host_us(), also, inner)


def work_on(draft: Draft, stream: int, source: int | None = None) -> Part:
    """Returns an op whose kernels read `source`, or else any result that the stream may read, and write a result."""
    nest, idle, number = draw_nest(draft, draft.random.randint(1, 3)), draft.host_us() / 3, draft.number()
    if source is None:
        source = draft.random.choice(draft.readable[stream] or [number])
    draft.readable[stream].append(number)
    draft.latest[stream], draft.in_use = number, stream

    def write(rank: Rank, script: Script) -> None:
        script.work(idle)
        nest.write(script, stream, rank.result(source), rank.result(number))

    return write


def device_ops(draft: Draft) -> Part:
    """Returns one or two ops, each with its kernels on one stream."""
    return _all_of([work_on(draft, draft.stream()) for _ in range(draft.random.randint(1, 2))])


def host_ops(draft: Draft) -> Part:
    """Returns ops that launch nothing, and Python around them."""
    nest, idle, number = draw_nest(draft, draft.random.randint(1, 3), launches=False), draft.host_us(), draft.number()

    def write(rank: Rank, script: Script) -> None:
        script.work(idle)
        nest.write(script, COMPUTE, rank.result(number), rank.result(number))

    return write


def _all_of(parts: Sequence[Part]) -> Part:
    def write(rank: Rank, script: Script) -> None:
        for part in parts:
            part(rank, script)

    return write


def perhaps_work(draft: Draft) -> Part:
    """Returns what the host does between recording an event and waiting for it."""
    return _all_of([draft.random.choice((device_ops, host_ops))(draft) for _ in range(draft.random.randint(0, 2))])
