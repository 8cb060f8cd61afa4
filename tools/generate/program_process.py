"""One rank while its program is written: its threads' scripts, its tensors, and the autograd tape of the step."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from .instructions import COMMUNICATION, ITEM_BYTES, Activity, Collective, Instruction, Tensor, Value
from .machine import Machine
from .script import Script

COMPUTE = 7
"""The default stream, as CUPTI numbers it."""

MAIN, AUTOGRAD, SECOND_AUTOGRAD = "main", "autograd", "autograd of a second device"
FORWARD_THREAD = 1
RING = "ncclDevKernel_{}(ncclDevKernelArgsStorage<4096ul>)"
COLLECTIVE_KERNELS = {
    "allreduce": RING.format("AllReduce_Sum_f32_RING_LL"),
    "_allgather_base": RING.format("AllGather_RING_LL"),
    "_reduce_scatter_base": RING.format("ReduceScatter_Sum_f32_RING_LL"),
    "send": RING.format("SendRecv"),
}


class Size(NamedTuple):
    """How large a job is: `tokens` rows go through layers of `hidden` by `hidden`."""

    ranks: int = 1
    steps: int = 2
    layers: int = 4
    tokens: int = 2048
    hidden: int = 2048


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the autograd graph: name, number of its forward op (-1: none), input, action, and the hook after it."""

    name: str
    sequence: int
    inputs: tuple[Value, ...]
    body: Callable[[Script], None]
    hook: Callable[[Script], None] | None = None


class Process:
    """The parts of a rank's program share its random numbers, events, tensors by name, and communication counters."""

    def __init__(self, rank: int, seed: int, size: Size, threads: tuple[str, ...], machine: Machine) -> None:
        self.rank, self.seed, self.size, self.machine = rank, seed, size, machine
        self.random = Random(f"{seed}/{rank}")
        stalls = Random(f"{seed}/{rank}/stalls")
        events: dict[str, int] = {}
        self.scripts = {thread: Script(self.random, stalls, events, machine) for thread in threads}
        self.main = self.scripts[MAIN]
        self.compute = COMPUTE
        """The stream on which layers run from now on, and their backward."""
        self.tape: list[Node] = []
        self.parameters: list[tuple[Tensor, Tensor]] = []
        self._tensors: dict[str, Tensor] = {}
        self._storages = 0
        self._sequence = 0
        self._communications: dict[tuple[object, ...], int] = {}
        self._collectives: dict[tuple[object, ...], tuple[Collective, Activity]] = {}

    @property
    def device(self) -> str:
        """The device of the rank, of 8 in a machine."""
        return f"cuda:{self.rank % 8}"

    def take(self) -> tuple[list[Instruction], ...]:
        """Returns the step as it was written since the last call; the parameters are told anew in each step."""
        self.parameters = []
        return tuple(script.take() for script in self.scripts.values())

    # tensors

    def tensor(self, name: str, *shape: int, dtype: str = "float", device: str | None = None) -> Tensor:
        """Returns the tensor of that name, allocated when it is first asked for."""
        existing = self._tensors.get(name)
        if existing is None:
            self._storages += 1
            where = self.device if device is None else device
            strides = _contiguous(shape)
            existing = Tensor(len(self._tensors), self._storages, shape, strides, 0, dtype, where)
            self._tensors[name] = existing
        return existing

    def view(
        self, name: str, of: Tensor, *shape: int, strides: tuple[int, ...] | None = None, offset: int = 0
    ) -> Tensor:
        """Returns a tensor on the storage of another one."""
        existing = self._tensors.get(name)
        if existing is None:
            order = _contiguous(shape) if strides is None else strides
            existing = of._replace(id=len(self._tensors), shape=shape, strides=order, offset=offset)
            self._tensors[name] = existing
        return existing

    def gradient(self, of: Tensor) -> Tensor:
        """Returns the gradient of a tensor, of the same shape."""
        return self.tensor(f"gradient of {of.id}", *of.shape)

    # counters

    @property
    def sequence(self) -> int:
        """The autograd sequence number that the next differentiable op takes."""
        return self._sequence

    def differentiable(self, name: str, inputs: tuple[Value, ...], body: Callable[[Script], None]) -> int:
        """Puts the backward node of an op on the tape and returns its sequence number."""
        self.tape.append(Node(name, self._sequence, inputs, body))
        self._sequence += 1
        return self._sequence - 1

    def next_communication(self, channel: tuple[object, ...]) -> int:
        """Numbers the communications of a group, or the messages from one rank to another, from 1."""
        self._communications[channel] = self._communications.get(channel, 0) + 1
        return self._communications[channel]

    def collective(self, collective: Collective) -> tuple[Collective, Activity]:
        """Returns the one object that stands for equal collectives in all steps, and its kernel."""
        key = collective.name, collective.group, collective.rank, collective.tensors
        if key not in self._collectives:
            name = COLLECTIVE_KERNELS.get(collective.name, COLLECTIVE_KERNELS["send"])
            self._collectives[key] = collective, Activity(name, kind=COMMUNICATION, collective=collective)
        return self._collectives[key]


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


# how long a device of the size of an A100 takes


def gemm_us(rows: int, columns: int, inner: int) -> float:
    """Returns a product of a rows × inner and an inner × columns matrix."""
    return max(2.5, 2.0 * rows * columns * inner / 120e6)


def stream_us(tensors: tuple[Tensor, ...]) -> float:
    """Returns a kernel that reads or writes each of the tensors once."""
    return max(1.6, sum(size_bytes(tensor) for tensor in tensors) / 1.4e6)


def size_bytes(tensor: Tensor) -> int:
    """Returns how many bytes its elements take."""
    return tensor.numel * ITEM_BYTES[tensor.dtype]
