"""Collectives and messages as PyTorch's NCCL back end runs them, on a stream of their own, and what uses them.

A ring of n ranks takes 2(n - 1) steps for an all-reduce, n - 1 for an all-gather or a reduce-scatter, each with a
latency; the messages of an all-to-all go at once. On top comes the time of nccl-tests' share of the bytes.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .job import COMMUNICATION, Activity, Collective, Group, Opaque, Tensor, Values
from .layers import ADD, CAT, SCALE, Hooks, OnGradient, no_hooks
from .script import COMPUTE, Process, Script, size_bytes, stream_us
from .simulation import Rendezvous

BYTES_PER_US = 80_000
STEP_US = 6.0
"""Of a ring."""
MESSAGE_US = 12.0
"""Before the first byte of a message arrives, and of all those of an all-to-all."""


class _Call(NamedTuple):
    """How PyTorch runs a collective: its op, the annotation around its launch, and its kernel."""

    op: str
    annotation: str
    kernel: str = "SendRecv"


CALLS = {
    "allreduce": _Call("c10d::allreduce_", "nccl:all_reduce", "AllReduce_Sum_f32_RING_LL"),
    "_allgather_base": _Call("c10d::_allgather_base_", "nccl:_all_gather_base", "AllGather_RING_LL"),
    "_reduce_scatter_base": _Call(
        "c10d::_reduce_scatter_base_", "nccl:_reduce_scatter_base", "ReduceScatter_Sum_f32_RING_LL"
    ),
    "all_to_allv": _Call("c10d::alltoall_base_", "nccl:all_to_all"),
    "send": _Call("c10d::send", "nccl:send"),
    "recv": _Call("c10d::recv_", "nccl:recv"),
}
EVENTS_IN_USE = 64
"""Events are pooled: after so many collectives the first one's event is recorded anew."""
OBJECT = Opaque("Object")
NO_GROUP = Group("", "", ())
Rows = tuple[int, ...]
"""Rows of a tensor for, or from, each member of a group."""
REPLICAS_STREAM = 32
LAYERS_PER_BUCKET = 2


def world(ranks: int, name: str = "0", description: str = "default_pg") -> Group:
    """Returns the default process group, or another one of all ranks, with a sequence of its own."""
    return Group(name, description, tuple(range(ranks)))


def replica_groups(ranks: int, of: int, description: str) -> tuple[Group, ...]:
    """Returns the ranks at the same position of each `of` ranks; every process calls its own one "2"."""
    return tuple(Group("2", description, tuple(range(first, ranks, of))) for first in range(of))


def expert_groups(ranks: int) -> tuple[Group, ...]:
    """Neighbouring ranks in pairs; every process calls its own one "1"."""
    return tuple(Group("1", "experts", tuple(range(first, min(first + 2, ranks)))) for first in range(0, ranks, 2))


class Work(NamedTuple):
    """A collective from its launch on, as c10d hands it out; `done` is the event behind it."""

    process: Process
    sequence: int
    done: str

    def wait(self, script: Script) -> None:
        """What the compute stream is given from now on waits for the collective; the host does not."""
        waited = Collective("wait", NO_GROUP, self.process.rank, ())
        with script.op("record_param_comms", collective=waited, comm_sequence=self.sequence):
            script.wait(COMPUTE, self.done)


@dataclass(frozen=True, slots=True)
class Communicator:
    """A process group in one process, the stream on which its collectives run, and the network between its ranks."""

    process: Process
    group: Group
    stream: int
    step_us: float = STEP_US
    bytes_per_us: float = BYTES_PER_US

    def all_reduce(self, script: Script, tensor: Tensor) -> Work:
        """c10d::allreduce_, in place; each rank sends and receives 2 (n-1)/n of the tensor."""
        inputs, outputs = ((tensor,), OBJECT, OBJECT, None, True, -1), ((tensor,), OBJECT)
        collective = Collective("allreduce", self.group, self.group_rank, (tensor,))
        return self._begin(script, collective, inputs, outputs, self._around_ring(tensor, 2))

    def all_gather(self, script: Script, whole: Tensor, shard: Tensor) -> Work:
        """c10d::_allgather_base_: every rank gets the shards of all, each sends and receives (n-1)/n of the whole."""
        collective = Collective("_allgather_base", self.group, self.group_rank, (shard, whole))
        inputs, outputs = (whole, shard, OBJECT, True, -1), (whole, OBJECT)
        return self._begin(script, collective, inputs, outputs, self._around_ring(whole))

    def reduce_scatter(self, script: Script, shard: Tensor, whole: Tensor) -> Work:
        """c10d::_reduce_scatter_base_: every rank gets its shard of the sum and moves (n-1)/n of the whole."""
        collective = Collective("_reduce_scatter_base", self.group, self.group_rank, (whole, shard))
        inputs, outputs = (shard, whole, OBJECT, OBJECT, True, -1), (shard, OBJECT)
        return self._begin(script, collective, inputs, outputs, self._around_ring(whole))

    def all_to_all(self, script: Script, received: Tensor, sent: Tensor, rows: tuple[Rows, Rows] = ((), ())) -> Work:
        """c10d::alltoall_base_: `rows` are those sent to each member and received of each, by default equally many."""
        ranks = len(self.group.ranks)
        sides = [*zip(rows, (sent, received), strict=True)]
        sent_rows, received_rows = (recorded or (tensor.shape[0] // ranks,) * ranks for recorded, tensor in sides)
        in_splits, out_splits = (
            tuple(count * tensor.numel // max(tensor.shape[0], 1) for count in recorded)
            or (tensor.numel // ranks,) * ranks
            for recorded, tensor in sides
        )
        collective = Collective("all_to_allv", self.group, self.group_rank, (sent, received), in_splits, out_splits)
        inputs = (received, sent, OBJECT, received_rows, sent_rows, True, -1)
        to_others = 1 - in_splits[self.group_rank] / max(sent.numel, 1)
        return self._begin(script, collective, inputs, (OBJECT,), self._ns(MESSAGE_US, to_others * size_bytes(sent)))

    def message(self, script: Script, name: str, tensor: Tensor, peer: int) -> Work:
        """Sends a tensor to a rank, numbered as in the job, or with the name `recv` receives one from it."""
        message = Collective(name, self.group, self.group.ranks.index(peer), (tensor,))
        ns = self._ns(MESSAGE_US, size_bytes(tensor))
        return self._begin(script, message, ((tensor,), OBJECT, peer, 0), (OBJECT,), ns)

    def swap(self, script: Script, sent: Tensor, received: Tensor, peer: int) -> Work:
        """dist.batch_isend_irecv: a message to the peer and one from it, given one by one and run as one kernel."""
        process = self.process
        between = (self.group, "swap", *sorted((process.rank, peer)))
        rendezvous = Rendezvous((*between, process.next_communication(between)), 2)
        sequence = process.next_communication((self.group, "messages"))
        work = Work(process, sequence, f"swapped {self.stream} {sequence % EVENTS_IN_USE}")
        for name, tensor in (("send", sent), ("recv", received)):
            message = Collective(name, self.group, self.group.ranks.index(peer), (tensor,))
            with self._call(script, message, ((tensor,), OBJECT, peer, 0), (OBJECT,), sequence):
                pass
        with script.annotation("nccl:coalesced"):
            self._follow_compute(script)
            ns = self._ns(MESSAGE_US, max(size_bytes(sent), size_bytes(received)))
            # no record is around the kernel of messages that were launched together
            script.rendezvous(_kernel("send"), self.stream, ns, rendezvous, sequence)
            script.record(work.done, self.stream)
        return work

    def _begin(self, script: Script, collective: Collective, inputs: Values, outputs: Values, ns: int) -> Work:
        """Begins a collective in its op; it takes `ns` once all members have come."""
        process, group, name = self.process, self.group, collective.name
        if collective.is_p2p:
            # sender and receiver meet; a process numbers all its messages in a group, so the two sides of one seldom
            # have the same number
            peer = group.ranks[collective.rank]
            way = (group, process.rank, peer) if name == "send" else (group, peer, process.rank)
            rendezvous = Rendezvous((*way, process.next_communication(way)), 2)
            sequence = process.next_communication((group, "messages"))
        else:
            sequence = process.next_communication((group,))
            rendezvous = Rendezvous((group, sequence), len(group.ranks))
        work = Work(process, sequence, f"done {self.stream} {sequence % EVENTS_IN_USE}")
        with self._call(script, collective, inputs, outputs, sequence):
            self._follow_compute(script)
            with script.annotation(CALLS[name].annotation):
                script.rendezvous(_kernel(name, collective), self.stream, ns, rendezvous, sequence)
            script.record(work.done, self.stream)
        return work

    @contextlib.contextmanager
    def _call(
        self, script: Script, collective: Collective, inputs: Values, outputs: Values, sequence: int
    ) -> Iterator[None]:
        """Runs the op of a collective, and its record, around what is written inside."""
        tensors, own_us = collective.tensors, 12.0 if collective.is_p2p else 15.0
        with (
            script.op(CALLS[collective.name].op, inputs, outputs, own_us=own_us),
            script.op("record_param_comms", tensors[:1], tensors[-1:], collective=collective, comm_sequence=sequence),
        ):
            script.call("cudaStreamIsCapturing")
            yield

    def _follow_compute(self, script: Script) -> None:
        """Makes the communication stream wait for what the compute stream has been given so far."""
        ready = f"ready {self.stream}"
        script.record(ready, COMPUTE)
        script.wait(self.stream, ready)

    def _ns(self, latency_us: float, moved: float) -> int:
        """Returns how long it takes to move so many bytes."""
        return round(1000 * (latency_us + moved / self.bytes_per_us))

    @property
    def group_rank(self) -> int:
        """This process's position in the group."""
        return self.group.ranks.index(self.process.rank)

    def _around_ring(self, whole: Tensor, times: int = 1) -> int:
        ranks = len(self.group.ranks)
        return self._ns(times * (self.step_us * (ranks - 1)), times * ((ranks - 1) / ranks) * size_bytes(whole))


def _kernel(name: str, collective: Collective | None = None) -> Activity:
    kernel = f"ncclDevKernel_{CALLS[name].kernel}(ncclDevKernelArgsStorage<4096ul>)"
    return Activity(kernel, kind=COMMUNICATION, collective=collective)


def exchange(
    process: Process, communicator: Communicator, name: str, sent: Tensor, rows: tuple[Rows, ...] = ()
) -> Callable[[], Tensor]:
    """Begins a differentiable all-to-all; returns what waits for it and gives the tensor received.

    `rows` are those that each member sends to each, by default equally many.
    """
    own = communicator.group_rank
    there, back = (rows[own], tuple(row[own] for row in rows)) if rows else ((), ())
    received = process.tensor(f"{name}.received", sum(back) if rows else sent.shape[0], *sent.shape[1:])
    returned = process.tensor(f"{name}.returned", *sent.shape)
    in_backward: list[Work] = []

    def begin_backward(script: Script) -> None:
        in_backward.append(communicator.all_to_all(script, returned, process.gradient(received), (back, there)))

    def end_backward(script: Script) -> None:
        in_backward.pop().wait(script)
        # the autograd engine adds up where a tensor was used twice
        gradient = process.gradient(sent)
        us = stream_us(gradient, returned, gradient)
        script.kernel("aten::add_", (gradient, returned, 1), (gradient,), ADD, us, COMPUTE)

    with process.main.op("All2All_Req", (sent,), (received,), sequence=process.sequence):
        process.differentiable("All2All_ReqBackward", (process.gradient(sent),), end_backward)
        forth = communicator.all_to_all(process.main, received, sent, (there, back))

    def wait() -> Tensor:
        with process.main.op("All2All_Wait", (received,), (received,), sequence=process.sequence):
            process.differentiable("All2All_WaitBackward", (process.gradient(received),), begin_backward)
            forth.wait(process.main)
        return received

    return wait


def buckets(communicator: Communicator, inputs: list[int]) -> Hooks:
    """Returns the hooks of gradient buckets, of LAYERS_PER_BUCKET layers from `inputs` each, all-reduced when full."""
    process, filled = communicator.process, dict[int, int]()

    def hook_of(layer: int) -> OnGradient:
        bucket = layer // LAYERS_PER_BUCKET
        members = inputs[bucket * LAYERS_PER_BUCKET : (bucket + 1) * LAYERS_PER_BUCKET]
        size = sum((width + 1) * process.size.hidden for width in members)
        flat = process.tensor(f"bucket {communicator.stream} {bucket}", size)

        def on_gradient(script: Script, parameter: Tensor, gradient: Tensor) -> None:
            name, offset = f"bucket view {parameter.id}", filled.get(bucket, 0)
            filled[bucket] = offset + parameter.numel
            view = process.views[parameter] = process.view(name, flat, *parameter.shape, offset=offset)
            with script.op("torch::distributed::reducer::mul_out", (view, gradient, 0.5), (view,)):
                script.kernel("aten::mul", (gradient, 0.5, view), (view,), SCALE, stream_us(gradient, view), COMPUTE)
            if filled[bucket] == flat.numel:
                del filled[bucket]
                process.at_end.append((communicator.stream, communicator.all_reduce(script, flat).wait))

        return on_gradient

    return hook_of


def replica_buckets(process: Process, layers: int) -> Hooks:
    """Returns the hooks of buckets that a rank shares with its replicas, its last group, if it has some."""
    communicator = Communicator(process, process.groups[-1], REPLICAS_STREAM)
    has_replicas = len(communicator.group.ranks) > 1
    return buckets(communicator, [process.size.hidden] * layers) if has_replicas else no_hooks


class Shards:
    """The parameters of each layer, padded to whole shards, with this rank's shard and the gradients of both."""

    def __init__(self, communicator: Communicator, shapes: list[tuple[int, int]]) -> None:
        self._communicator = communicator
        process, ranks = communicator.process, len(communicator.group.ranks)
        self.units: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for layer, (inputs, outputs) in enumerate(shapes):
            shard_size = -(-(inputs + 1) * outputs // ranks)
            full = process.tensor(f"unit {layer}", shard_size * ranks)
            process.view(f"layers.{layer}.weight", full, outputs, inputs)
            process.view(f"layers.{layer}.bias", full, outputs, offset=inputs * outputs)
            shard = process.tensor(f"shard {layer}", shard_size)
            gradients = process.tensor(f"gradients {layer}", shard_size * ranks)
            self.units.append((full, shard, gradients, process.tensor(f"shard of gradients {layer}", shard_size)))
        self._gathering: dict[int, Work] = {}
        self._filled: dict[int, list[Tensor]] = {}

    def use(self, script: Script, layer: int, following: int) -> None:
        """What is computed from now on has the layer; the one that is used next is on its way."""
        for number in (layer, following):
            if 0 <= number < len(self.units) and number not in self._gathering:
                whole, shard, *_ = self.units[number]
                self._gathering[number] = self._communicator.all_gather(script, whole, shard)
        self._gathering.pop(layer).wait(script)

    def on_gradient(self, layer: int) -> OnGradient:
        """Returns the hook for a layer's parameters: with the gradients of both, they are reduced and scattered."""
        communicator, (*_, gradients, shard) = self._communicator, self.units[layer]

        def hook(script: Script, parameter: Tensor, gradient: Tensor) -> None:
            self._filled.setdefault(layer, []).append(gradient)
            if len(self._filled[layer]) < 2:
                return
            parts = tuple(self._filled.pop(layer))
            us = stream_us(*parts, gradients)
            script.kernel("aten::cat", (parts, 0), (gradients,), CAT, us, COMPUTE, own_us=10.0)
            work = communicator.reduce_scatter(script, shard, gradients)
            communicator.process.at_end.append((communicator.stream, work.wait))

        return hook
