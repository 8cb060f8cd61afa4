"""Writes one rank's program: what its host threads do, its tensors, and the autograd tape of the step.

Durations are drawn around their mean from the rank's own random numbers, so equal seeds give equal programs.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import NamedTuple

from ...schema.linked import USER_SCOPE
from .instructions import Launch, begin, call, end, get, put, record_event, synchronize, wait_event, work
from .job import ITEM_BYTES, MEMORY, NONE, Activity, Collective, Instruction, Job, Op, Tensor, Values
from .machine import Machine, log_uniform
from .record import CONTEXT_SYNC, DEVICES_PER_NODE, EVENT_SYNC, STREAM_SYNC
from .simulation import Rendezvous

OPTIONS = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
GROUP, REDUCE_OP, WORK = (f"__torch__.torch.classes.c10d.{name}" for name in ("ProcessGroup", "ReduceOp", "Work"))
SCHEMAS = {
    name.partition("(")[0].partition(".")[0]: name
    for name in (
        "aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()",
        "aten::_local_scalar_dense(Tensor self) -> Scalar",
        "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
        "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
        "aten::matmul(Tensor self, Tensor other) -> Tensor",
        "aten::narrow_copy(Tensor self, int dim, SymInt start, SymInt length) -> Tensor",
        "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
        "aten::cat(Tensor[] tensors, int dim=0) -> Tensor",
        "aten::clamp_min(Tensor self, Scalar min) -> Tensor",
        "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
        "aten::detach(Tensor(a) self) -> Tensor(a)",
        "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, "
        "bool sparse=False) -> Tensor",
        "aten::embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx, "
        "bool scale_grad_by_freq) -> Tensor",
        f"aten::empty_strided(SymInt[] size, SymInt[] stride, *, {OPTIONS}) -> Tensor",
        "aten::fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)",
        "aten::index_select(Tensor self, int dim, Tensor index) -> Tensor",
        "aten::item(Tensor self) -> Scalar",
        "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
        "aten::mm(Tensor self, Tensor mat2) -> Tensor",
        "aten::mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
        "aten::mse_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction) -> Tensor",
        "aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
        "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor",
        f"aten::ones_like(Tensor self, *, {OPTIONS}, MemoryFormat? memory_format=None) -> Tensor",
        "aten::relu(Tensor self) -> Tensor",
        "aten::stack(Tensor[] tensors, int dim=0) -> Tensor",
        "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        "aten::t(Tensor(a) self) -> Tensor(a)",
        "aten::threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor",
        f"c10d::_allgather_base_(Tensor output_tensor, Tensor input_tensor, {GROUP} process_group, bool async_op=True, "
        f"int timeout=-1) -> (Tensor, {WORK})",
        f"c10d::_reduce_scatter_base_(Tensor output_tensor, Tensor input_tensor, {GROUP} process_group, "
        f"{REDUCE_OP} reduce_op, bool async_op=True, int timeout=-1) -> (Tensor, {WORK})",
        f"c10d::allreduce_(Tensor[] tensors, {GROUP} process_group, {REDUCE_OP} reduce_op, Tensor? sparse_indices, "
        f"bool async_op=True, int timeout=-1) -> (Tensor[], {WORK})",
        f"c10d::alltoall_base_(Tensor output, Tensor input, {GROUP} process_group, int[] output_split_sizes, "
        f"int[] input_split_sizes, bool async_op=True, int timeout=-1) -> {WORK}",
        f"c10d::recv_(Tensor[] tensors, {GROUP} process_group, int src, int tag) -> {WORK}",
        f"c10d::send(Tensor[] tensors, {GROUP} process_group, int dst, int tag) -> {WORK}",
    )
}
DEVICE_TO_HOST = Activity("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", MEMORY, 4)
COMPUTE = 7
"""The default stream, as CUPTI numbers it."""
MAIN, AUTOGRAD, SECOND_AUTOGRAD = "main", "autograd", "autograd of a second device"
EARLY_START = 0.1
"""The share of launches that reach the device before the call has returned."""


class Script:
    """The program of a thread; ops equal in name and arguments are one object. `events` numbers CUDA events by name."""

    def __init__(self, random: Random, stalls: Random, events: dict[str, int], machine: Machine) -> None:
        self.instructions: list[Instruction] = []
        self.random, self._stalls, self._machine = random, stalls, machine
        self._ops: dict[tuple[object, ...], Op] = {}
        self._events = events

    def take(self) -> list[Instruction]:
        """Returns what was written since the last call."""
        instructions, self.instructions = self.instructions, []
        return instructions

    @contextlib.contextmanager
    def op(
        self,
        name: str,
        inputs: Values = (),
        outputs: Values = (),
        *,
        scope: int = 0,
        sequence: int = -1,
        forward_thread: int = 0,
        collective: Collective | None = None,
        comm_sequence: int = 0,
        own_us: float = 4.0,
    ) -> Iterator[None]:
        """Runs an op whose children are written inside; `own_us` of its own work lie around them."""
        key = (name, inputs, outputs, collective)
        op = self._ops.get(key)
        if op is None:
            annotation = scope == USER_SCOPE
            op = self._ops[key] = Op(name, inputs, outputs, SCHEMAS.get(name, ""), scope, annotation, collective)
        self.instructions.append(partial(begin, op, sequence, forward_thread, comm_sequence))
        self.work(own_us * 0.7)
        yield
        self.work(own_us * 0.3)
        self.instructions.append(end)

    def annotation(self, name: str, own_us: float = 2.0) -> contextlib.AbstractContextManager[None]:
        """Returns a user annotation around what is written within it."""
        return self.op(name, scope=USER_SCOPE, own_us=own_us)

    def leaf(self, name: str, inputs: Values = (), outputs: Values = (), us: float = 3.0) -> None:
        """Runs an op that does nothing on the device."""
        with self.op(name, inputs, outputs, own_us=us):
            pass

    def work(self, us: float) -> None:
        """Host work of about `us`, and sometimes a stall behind it."""
        ns, stalls = self.draw_ns(us * 1000), self._machine.stalls
        if stalls.per_thousand and self._stalls.random() < stalls.per_thousand / 1000:
            ns += round(1000 * log_uniform(self._stalls, stalls.shortest_us, stalls.longest_us))
        self.instructions.append(partial(work, ns))

    def draw_ns(self, ns: float, spread: float | None = None) -> int:
        """Returns a duration near `ns`, with the spread of host work unless another one is given."""
        share = self._machine.host_spread if spread is None else spread
        return max(1, round(ns * self.random.uniform(1 - share, 1 + share)))

    def draw_latency_ns(self, factor: float = 1.0) -> int:
        """Returns how long a launch is on its way to the device, times a factor."""
        return self.draw_ns(self._machine.latency_ns * factor, self._machine.latency_spread)

    def kernel(
        self, op: str, inputs: Values, outputs: Values, activity: Activity, us: float, stream: int, own_us: float = 8.0
    ) -> None:
        """Runs an op that launches one kernel."""
        with self.op(op, inputs, outputs, own_us=own_us):
            self.launch(activity, stream, us)

    def launch(self, activity: Activity, stream: int, device_us: float, call: str = "cudaLaunchKernel") -> Launch:
        """Launches an activity of about `device_us`."""
        return self._launch(activity, stream, self.draw_ns(device_us * 1000, 0.03), call)

    def copy(self, activity: Activity, stream: int, device_us: float, blocking: bool = False) -> None:
        """Launches a copy; a blocking copy blocks its thread until it has ended, as a copy to pageable memory does."""
        launch = self.launch(activity, stream, device_us, "cudaMemcpyAsync")
        return_ns = self._draw_return_ns(3)
        launch.return_ns = return_ns if blocking else None

    def rendezvous(
        self, activity: Activity, stream: int, device_ns: int, rendezvous: Rendezvous, comm_sequence: int
    ) -> None:
        """Launches a kernel that runs together with others; its duration has to be the same on all ranks."""
        launch = self._launch(activity, stream, device_ns, "cudaLaunchKernelExC")
        launch.rendezvous, launch.comm_sequence = rendezvous, comm_sequence

    def _launch(self, activity: Activity, stream: int, device_ns: int, call: str) -> Launch:
        host = self.draw_ns(5000)
        submit = round(host * 0.5) if self.random.random() < EARLY_START else host
        latency, gap = self.draw_latency_ns(), self.draw_ns(self._machine.gap_ns, self._machine.gap_spread)
        launch = Launch(call, activity, stream, device_ns, host, submit, latency, gap)
        self.instructions.append(launch)
        return launch

    def call(self, name: str, us: float = 1.0) -> None:
        """Makes a runtime call that neither launches nor waits."""
        self.instructions.append(partial(call, name, self.draw_ns(us * 1000)))

    def event(self, name: str) -> int:
        """Returns the number of an event."""
        return self._events.setdefault(name, len(self._events) + 1)

    def record(self, event: str, stream: int) -> None:
        """Records the event on the stream."""
        self.instructions.append(partial(record_event, self.event(event), stream, self.draw_ns(1500)))

    def wait(self, stream: int, event: str) -> None:
        """Makes the stream wait for the event."""
        self.instructions.append(partial(wait_event, stream, self.event(event), self.draw_ns(1200)))

    def synchronize_event(self, event: str) -> None:
        """Waits on the host for the event."""
        self.instructions.append(partial(synchronize, EVENT_SYNC, NONE, self.event(event), self._draw_return_ns(2.5)))

    def synchronize_stream(self, stream: int) -> None:
        """Waits on the host for the stream."""
        self.instructions.append(partial(synchronize, STREAM_SYNC, stream, NONE, self._draw_return_ns(2.5)))

    def synchronize_device(self) -> None:
        """Waits on the host for all streams."""
        self.instructions.append(partial(synchronize, CONTEXT_SYNC, NONE, NONE, self._draw_return_ns(4)))

    def _draw_return_ns(self, us: float) -> int:
        """Returns how long a call that waited takes to return."""
        return self.draw_ns(us * 1000 * self._machine.return_factor)

    def put(self, queue: str, capacity: int = 0) -> None:
        """Puts an item into a queue of threads, and waits where there are more than `capacity` then (0: never)."""
        self.instructions.append(partial(put, queue, capacity))

    def get(self, queue: str, wake_us: float = 8.0) -> None:
        """Takes an item out of a queue of threads; a thread that had to wait goes on about `wake_us` after it came."""
        self.instructions.append(partial(get, queue, self.draw_ns(wake_us * 1000)))


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
    inputs: Values
    body: Callable[[Script], None]
    hook: Callable[[Script], None] | None = None


class Process:
    """The parts of a rank's program share its random numbers, events, tensors by name, and communication counters.

    `compute` is the stream of layers from now on, `sequence` the autograd sequence number of the next differentiable
    op. `parameters` are those of the step, each with its gradient; where gradients are reduced in buckets, the
    optimizer takes their `views`. Backward ends with the waits `at_end`, of one communication stream after the other.
    """

    def __init__(self, job: Job, rank: int, size: Size) -> None:
        self.rank, self.size, self.seed, self.machine = rank, size, job.seed, job.machine
        self.groups = job.groups_of(rank)
        self.random = Random(f"{job.seed}/{rank}")
        stalls, events = Random(f"{job.seed}/{rank}/stalls"), dict[str, int]()
        self.scripts = {thread: Script(self.random, stalls, events, job.machine) for thread in job.threads}
        self.main = self.scripts[MAIN]
        self.compute, self.sequence = COMPUTE, 0
        self.tape: list[Node] = []
        self.parameters: list[tuple[Tensor, Tensor]] = []
        self.views: dict[Tensor, Tensor] = {}
        self.at_end: list[tuple[int, Callable[[Script], None]]] = []
        self._tensors: dict[str, Tensor] = {}
        self._storages = 0
        self._communications = Counter[tuple[object, ...]]()

    def take(self) -> tuple[list[Instruction], ...]:
        """Returns the step as it was written since the last call; the parameters are told anew in each step."""
        self.parameters = []
        return tuple(script.take() for script in self.scripts.values())

    def tensor(self, name: str, *shape: int, dtype: str = "float", device: str | None = None) -> Tensor:
        """Returns the tensor of that name, allocated when it is first asked for, on the rank's device by default."""
        if name not in self._tensors:
            self._storages += 1
            where = f"cuda:{self.rank % DEVICES_PER_NODE}" if device is None else device
            number = len(self._tensors)
            self._tensors[name] = Tensor(number, self._storages, shape, _contiguous(shape), 0, dtype, where)
        return self._tensors[name]

    def view(
        self, name: str, of: Tensor, *shape: int, strides: tuple[int, ...] | None = None, offset: int = 0
    ) -> Tensor:
        """Returns a tensor on the storage of another one."""
        if name not in self._tensors:
            order = _contiguous(shape) if strides is None else strides
            self._tensors[name] = of._replace(id=len(self._tensors), shape=shape, strides=order, offset=offset)
        return self._tensors[name]

    def gradient(self, of: Tensor) -> Tensor:
        """Returns the gradient of a tensor, of the same shape."""
        return self.tensor(f"gradient of {of.id}", *of.shape)

    def differentiable(self, name: str, inputs: Values, body: Callable[[Script], None]) -> None:
        """Puts the backward node of an op on the tape."""
        self.tape.append(Node(name, self.sequence, inputs, body))
        self.sequence += 1

    def next_communication(self, channel: tuple[object, ...]) -> int:
        """Numbers the communications of a group, or the messages from one rank to another, from 1."""
        self._communications[channel] += 1
        return self._communications[channel]


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis:]) for axis in range(1, len(shape) + 1))


def gemm_us(rows: int, columns: int, inner: int) -> float:
    """Returns how long an A100 takes for a product of a rows × inner and an inner × columns matrix."""
    return max(2.5, 2.0 * rows * columns * inner / 120e6)


def stream_us(*tensors: Tensor) -> float:
    """Returns how long a kernel takes there that reads or writes each of the tensors once."""
    return max(1.6, sum(size_bytes(tensor) for tensor in tensors) / 1.4e6)


def size_bytes(tensor: Tensor) -> int:
    """Returns how many bytes its elements take."""
    return tensor.numel * ITEM_BYTES[tensor.dtype]
