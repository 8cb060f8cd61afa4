"""A job as instructions of host threads: open and close ops, work, call the CUDA runtime, hand off to other threads.

Times are integer ns at factor 1. Ops, activities and tensors are shared between the steps of a job, so a step costs
only its instructions, which are made anew on each call.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .machine import DEFAULT, Machine

COMPUTATION, COMMUNICATION, MEMORY, HOST = "computation", "communication", "memory", "host"
ITEM_BYTES = {"float": 4, "long int": 8}


class Tensor(NamedTuple):
    """A tensor by its identity numbers; views have the storage of what they view. `offset` counts elements."""

    id: int
    storage: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: str
    device: str

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


class Opaque(NamedTuple):
    """An argument of which the traces hold only the type."""

    type: str


Value = Tensor | tuple[Tensor, ...] | tuple[int, ...] | bool | int | float | str | Opaque | None


class Group(NamedTuple):
    """A process group as one of its members sees it; `name` is what PyTorch calls it in that process."""

    name: str
    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Collective:
    """The arguments of one collective or send/recv, as `record_param_comms` records them.

    `rank` is the caller's rank in the group, or the peer's for send and recv.
    """

    name: str
    group: Group
    rank: int
    tensors: tuple[Tensor, ...]
    in_elements: int
    out_elements: int
    in_splits: tuple[int, ...] = ()
    out_splits: tuple[int, ...] = ()
    asynchronous: bool = True

    @property
    def is_p2p(self) -> bool:
        """Whether it is a send or a receive."""
        return self.name in ("send", "recv")


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """A host op or, where `annotation`, a user annotation."""

    name: str
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    schema: str = ""
    scope: int = 0
    annotation: bool = False
    collective: Collective | None = None

    @property
    def is_step(self) -> bool:
        """Marks a training step: it owns no time."""
        return self.name.startswith("ProfilerStep#")


@dataclass(frozen=True, slots=True, eq=False)
class Activity:
    """Something a device does: `kind` is its class for scaling, `bytes` the size of a copy or set."""

    name: str
    category: str = "kernel"
    kind: str = COMPUTATION
    bytes: int = 0
    collective: Collective | None = None


class Begin(NamedTuple):
    """Opens an op. `sequence` is its autograd sequence number, `forward_thread` the thread of the differentiated op."""

    op: Op
    sequence: int = -1
    forward_thread: int = 0
    comm_sequence: int = 0


class End(NamedTuple):
    """Closes the innermost open op."""


class HostWork(NamedTuple):
    """Host work of the innermost open op."""

    ns: int


class Call(NamedTuple):
    """A runtime call without effect on any queue."""

    name: str
    ns: int


class Rendezvous(NamedTuple):
    """Kernels with an equal `key` run together on `members` ranks: all end when the last has started and lasted."""

    key: tuple[object, ...]
    members: int


class Launch(NamedTuple):
    """A call that enqueues an activity: the device has it `submit_ns` into the call plus `latency_ns`; after its
    predecessor the activity starts with a gap of `gap_ns`. A blocking call returns `return_ns` after the activity's
    end.
    """

    call: str
    activity: Activity
    stream: int
    device_ns: int
    host_ns: int
    submit_ns: int
    latency_ns: int
    gap_ns: int
    rendezvous: Rendezvous | None = None
    comm_sequence: int = 0
    blocking: bool = False
    return_ns: int = 0


class GraphNode(NamedTuple):
    """An activity of a CUDA graph; it follows the nodes at the positions `after`, or the launch if there are none."""

    activity: Activity
    stream: int
    device_ns: int
    gap_ns: int
    after: tuple[int, ...]


class GraphLaunch(NamedTuple):
    """Enqueues a graph on `stream`: its first nodes follow the stream's tail, later work follows all of it."""

    stream: int
    nodes: tuple[GraphNode, ...]
    host_ns: int
    submit_ns: int
    latency_ns: int


class RecordEvent(NamedTuple):
    """The event stands for everything enqueued on the stream so far."""

    event: int
    stream: int
    ns: int


class WaitEvent(NamedTuple):
    """What is enqueued on the stream later waits for the event as recorded now."""

    stream: int
    event: int
    ns: int


class SynchronizeEvent(NamedTuple):
    """Waits until the event, as recorded now, has happened, and returns `ns` later."""

    event: int
    ns: int


class QueryEvent(NamedTuple):
    """Asks for the event until it has happened, `pause_ns` of work between the calls."""

    event: int
    ns: int
    pause_ns: int


class SynchronizeStream(NamedTuple):
    """Waits until all that was enqueued on the stream has ended, and returns `ns` later."""

    stream: int
    ns: int


class SynchronizeDevice(NamedTuple):
    """Waits until all that was enqueued on any stream has ended, and returns `ns` later."""

    ns: int


class Put(NamedTuple):
    """Gives an item to another host thread; blocks while the queue holds `capacity` items (0: unbounded)."""

    queue: str
    capacity: int = 0


class Get(NamedTuple):
    """Takes an item from a queue; a thread that had to wait runs `wake_ns` after the item came."""

    queue: str
    wake_ns: int


Instruction = (
    Begin
    | End
    | HostWork
    | Call
    | Launch
    | GraphLaunch
    | RecordEvent
    | WaitEvent
    | SynchronizeEvent
    | QueryEvent
    | SynchronizeStream
    | SynchronizeDevice
    | Put
    | Get
)


Step = Sequence[Sequence[Instruction]]
"""One training step of one rank: the instructions of each of its threads, in the order of `Job.threads`."""


@dataclass(frozen=True, slots=True)
class Job:
    """`program(rank)` gives the steps of a rank and the same ones whenever it is asked."""

    name: str
    seed: int
    ranks: int
    threads: tuple[str, ...]
    groups: tuple[Group, ...]
    program: Callable[[int], Iterator[Step]]
    machine: Machine = DEFAULT

    def instructions(self, rank: int) -> list[Iterator[Instruction]]:
        """Yields the instructions of each thread of a rank; a step is made when the first of them needs it."""
        steps = self.program(rank)
        waiting: list[deque[Sequence[Instruction]]] = [deque() for _ in self.threads]

        def of_thread(pending: deque[Sequence[Instruction]]) -> Iterator[Instruction]:
            while True:
                if not pending:
                    step = next(steps, None)
                    if step is None:
                        return
                    for parts, part in zip(waiting, step, strict=True):
                        parts.append(part)
                yield from pending.popleft()

        return [of_thread(pending) for pending in waiting]
