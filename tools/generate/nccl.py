"""Collectives and messages as PyTorch's NCCL back end runs them, on a stream of their own, ordered by events; and
DistributedDataParallel's reducer, which all-reduces gradients a bucket at a time while backward goes on.

The network: a ring of n ranks takes 2(n - 1) steps for an all-reduce and n - 1 for an all-gather or a reduce-scatter,
each with a latency of its own; the messages of an all-to-all go at once. On top comes the time of the bytes that a rank
puts on its link: nccl-tests' share of the size, (n - 1)/n and for an all-reduce twice that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .instructions import COMMUNICATION, Activity, Collective, Group, Opaque, Rendezvous, Tensor, Value
from .layers import OnGradient
from .script import COLLECTIVE_KERNELS, COMPUTE, Process, Script, size_bytes, stream_us

BYTES_PER_US = 80_000
STEP_US = 6.0
"""Of a ring."""
MESSAGE_US = 12.0
"""Before the first byte of a message arrives, and of all those of an all-to-all."""
ANNOTATIONS = {
    "allreduce": "nccl:all_reduce",
    "_allgather_base": "nccl:_all_gather_base",
    "_reduce_scatter_base": "nccl:_reduce_scatter_base",
    "all_to_allv": "nccl:all_to_all",
    "send": "nccl:send",
    "recv": "nccl:recv",
}
EVENTS_IN_USE = 64
"""Events are pooled: after so many collectives the first one's event is recorded anew."""
OBJECT = Opaque("Object")
MESSAGE_OPS = {"send": "c10d::send", "recv": "c10d::recv_"}
SWAP = Activity(COLLECTIVE_KERNELS["send"], kind=COMMUNICATION)
"""The kernel of messages that were launched together; no record is around it."""
NO_GROUP = Group("", "", ())
Rows = tuple[int, ...]
"""Rows of a tensor for, or from, each member of a group."""
REPLICAS_STREAM = 32
SCALE = Activity(
    "void at::native::vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<float, MulFunctor<float> > >"
)
LAYERS_PER_BUCKET = 2


def world(ranks: int) -> Group:
    """Returns the default process group."""
    return Group("0", "default_pg", tuple(range(ranks)))


def second_world(ranks: int) -> Group:
    """Another group of all ranks, with a sequence of its own."""
    return Group("1", "exchange", tuple(range(ranks)))


def replica_groups(ranks: int, of: int, description: str) -> tuple[Group, ...]:
    """Returns the ranks at the same position of each `of` ranks; every process calls its own one "2"."""
    return tuple(Group("2", description, tuple(range(first, ranks, of))) for first in range(of))


def expert_groups(ranks: int) -> tuple[Group, ...]:
    """Neighbouring ranks in pairs; every process calls its own one "1"."""
    return tuple(Group("1", "experts", tuple(range(first, min(first + 2, ranks)))) for first in range(0, ranks, 2))


@dataclass(frozen=True, slots=True)
class Communicator:
    """A process group in one process, the stream on which its collectives run, and the network between its ranks."""

    process: Process
    group: Group
    stream: int
    step_us: float = STEP_US
    bytes_per_us: float = BYTES_PER_US

    def all_reduce(self, script: Script, tensor: Tensor) -> "Work":
        """c10d::allreduce_, in place; each rank sends and receives 2 (n-1)/n of the tensor."""
        inputs, outputs = ((tensor,), OBJECT, OBJECT, None, True, -1), ((tensor,), OBJECT)
        network = (2 * self._ring_us, 2 * self._share_of_others * size_bytes(tensor))
        collective = Collective("allreduce", self.group, self.group_rank, (tensor,), tensor.numel, tensor.numel)
        return self._begin(script, "c10d::allreduce_", collective, inputs, outputs, network)

    def all_gather(self, script: Script, whole: Tensor, shard: Tensor) -> "Work":
        """c10d::_allgather_base_: every rank gets the shards of all, each sends and receives (n-1)/n of the whole."""
        collective = Collective(
            "_allgather_base", self.group, self.group_rank, (shard, whole), shard.numel, whole.numel
        )
        inputs, outputs = (whole, shard, OBJECT, True, -1), (whole, OBJECT)
        return self._begin(script, "c10d::_allgather_base_", collective, inputs, outputs, self._around_ring(whole))

    def reduce_scatter(self, script: Script, shard: Tensor, whole: Tensor) -> "Work":
        """c10d::_reduce_scatter_base_: every rank gets its shard of the sum and moves (n-1)/n of the whole."""
        collective = Collective(
            "_reduce_scatter_base", self.group, self.group_rank, (whole, shard), whole.numel, shard.numel
        )
        inputs, outputs = (shard, whole, OBJECT, OBJECT, True, -1), (shard, OBJECT)
        return self._begin(script, "c10d::_reduce_scatter_base_", collective, inputs, outputs, self._around_ring(whole))

    def all_to_all(self, script: Script, received: Tensor, sent: Tensor, rows: tuple[Rows, Rows] = ((), ())) -> "Work":
        """c10d::alltoall_base_: `rows` are those sent to each member and received of each, by default equally many."""
        ranks = len(self.group.ranks)
        sides = [*zip(rows, (sent, received), strict=True)]
        sent_rows, received_rows = (recorded or (tensor.shape[0] // ranks,) * ranks for recorded, tensor in sides)
        in_splits, out_splits = (
            tuple(count * tensor.numel // max(tensor.shape[0], 1) for count in recorded)
            or (tensor.numel // ranks,) * ranks
            for recorded, tensor in sides
        )
        sizes = (sent.numel, received.numel, in_splits, out_splits)
        collective = Collective("all_to_allv", self.group, self.group_rank, (sent, received), *sizes)
        inputs = (received, sent, OBJECT, received_rows, sent_rows, True, -1)
        network = (MESSAGE_US, (1 - in_splits[self.group_rank] / max(sent.numel, 1)) * size_bytes(sent))
        return self._begin(script, "c10d::alltoall_base_", collective, inputs, (OBJECT,), network)

    def send(self, script: Script, tensor: Tensor, to: int) -> "Work":
        """Sends a tensor to a rank, numbered as in the job."""
        return self._message(script, "send", tensor, to)

    def receive(self, script: Script, tensor: Tensor, source: int) -> "Work":
        """Receives a tensor from a rank, numbered as in the job."""
        return self._message(script, "recv", tensor, source)

    def _message(self, script: Script, name: str, tensor: Tensor, peer: int) -> "Work":
        network = (MESSAGE_US, size_bytes(tensor))
        inputs = ((tensor,), OBJECT, peer, 0)
        message = self.message(name, tensor, peer)
        return self._begin(script, MESSAGE_OPS[name], message, inputs, (OBJECT,), network, own_us=12.0)

    def message(self, name: str, tensor: Tensor, peer: int) -> Collective:
        """Returns a send to, or a receive from, a rank of the job, as it is recorded."""
        position = self.group.ranks.index(peer)
        return Collective(name, self.group, position, (tensor,), tensor.numel, tensor.numel)

    def _begin(
        self,
        script: Script,
        op: str,
        collective: Collective,
        inputs: tuple[Value, ...],
        outputs: tuple[Value, ...],
        network: tuple[float, float],
        own_us: float = 15.0,
    ) -> "Work":
        """Begins a collective in its op; `network` are its latency in µs and the bytes that this rank moves."""
        work = Work(self, collective)
        with script.op(op, inputs, outputs, own_us=own_us):
            work.start(script, *network)
        return work

    def swap(self, script: Script, sent: Tensor, received: Tensor, peer: int) -> "Swap":
        """dist.batch_isend_irecv: a message to the peer and one from it, with one kernel."""
        swap = Swap(self, peer)
        swap.start(script, {"send": sent, "recv": received})
        return swap

    @property
    def group_rank(self) -> int:
        """This process's position in the group."""
        return self.group.ranks.index(self.process.rank)

    @property
    def _share_of_others(self) -> float:
        return (len(self.group.ranks) - 1) / len(self.group.ranks)

    @property
    def _ring_us(self) -> float:
        """The latency of going round once."""
        return self.step_us * (len(self.group.ranks) - 1)

    def _around_ring(self, whole: Tensor) -> tuple[float, float]:
        return self._ring_us, self._share_of_others * size_bytes(whole)


class Work:
    """A collective from its launch on, as c10d hands it out."""

    def __init__(self, communicator: Communicator, collective: Collective) -> None:
        self._process, self._stream = communicator.process, communicator.stream
        self._bytes_per_us = communicator.bytes_per_us
        self._collective, self._activity = self._process.collective(collective)
        self._sequence, self._rendezvous = self._next()
        self._done = f"done {self._stream} {self._sequence % EVENTS_IN_USE}"

    def start(self, script: Script, latency_us: float, bytes_on_links: float) -> None:
        """The communication stream waits for what the compute stream has been given so far."""
        name, ready = self._collective.name, f"ready {self._stream}"
        inputs, outputs = (self._collective.tensors[:1], self._collective.tensors[-1:])
        with script.op(
            "record_param_comms", inputs, outputs, collective=self._collective, comm_sequence=self._sequence
        ):
            script.call("cudaStreamIsCapturing")
            script.record(ready, COMPUTE)
            script.wait(self._stream, ready)
            with script.annotation(ANNOTATIONS[name]):
                ns = round(1000 * (latency_us + bytes_on_links / self._bytes_per_us))
                script.rendezvous(self._activity, self._stream, ns, self._rendezvous, self._sequence)
            script.record(self._done, self._stream)

    def wait(self, script: Script) -> None:
        """What the compute stream is given from now on waits for the collective; the host does not."""
        wait_for(script, self._process, self._sequence, self._done)

    def _next(self) -> tuple[int, Rendezvous]:
        """Returns the sequence number, and where the members meet: all ranks of the group, or sender and receiver."""
        group, process = self._collective.group, self._process
        if not self._collective.is_p2p:
            sequence = process.next_communication((group,))
            return sequence, Rendezvous((group, sequence), len(group.ranks))
        peer, is_send = group.ranks[self._collective.rank], self._collective.name == "send"
        way = (group, process.rank, peer) if is_send else (group, peer, process.rank)
        rendezvous = Rendezvous((*way, process.next_communication(way)), 2)
        # a process numbers all its messages in a group, so the two sides of one seldom have the same number
        return process.next_communication((group, "messages")), rendezvous


class Swap:
    """Two messages that are given to the library one by one and launched together, when their group ends."""

    def __init__(self, communicator: Communicator, peer: int) -> None:
        self._communicator, self._peer = communicator, peer
        process, group = communicator.process, communicator.group
        between = (group, "swap", *sorted((process.rank, peer)))
        self._rendezvous = Rendezvous((*between, process.next_communication(between)), 2)
        self._sequence = process.next_communication((group, "messages"))
        self._done = f"swapped {communicator.stream} {self._sequence % EVENTS_IN_USE}"

    def start(self, script: Script, messages: dict[str, Tensor]) -> None:
        """Launches both messages, tensors by `send` or `recv`, as one kernel."""
        process, stream = self._communicator.process, self._communicator.stream
        for name, tensor in messages.items():
            collective, _ = process.collective(self._communicator.message(name, tensor, self._peer))
            inputs = ((tensor,), OBJECT, self._peer, 0)
            with (
                script.op(MESSAGE_OPS[name], inputs, (OBJECT,), own_us=12.0),
                script.op(
                    "record_param_comms", (tensor,), (tensor,), collective=collective, comm_sequence=self._sequence
                ),
            ):
                script.call("cudaStreamIsCapturing")
        ready = f"ready {stream}"
        with script.annotation("nccl:coalesced"):
            script.record(ready, COMPUTE)
            script.wait(stream, ready)
            bytes_on_links = max(map(size_bytes, messages.values()))
            ns = round(1000 * (MESSAGE_US + bytes_on_links / BYTES_PER_US))
            script.rendezvous(SWAP, stream, ns, self._rendezvous, self._sequence)
            script.record(self._done, stream)

    def wait(self, script: Script) -> None:
        """What the compute stream is given from now on waits for both messages."""
        wait_for(script, self._communicator.process, self._sequence, self._done)


def wait_for(script: Script, process: Process, sequence: int, done: str) -> None:
    """Makes the compute stream wait for the event `done`, as `Work.wait()` does."""
    shared, _ = process.collective(Collective("wait", NO_GROUP, process.rank, (), 0, 0))
    with script.op("record_param_comms", collective=shared, comm_sequence=sequence):
        script.wait(COMPUTE, done)


class Buckets:
    """Gradient buckets, each shared by LAYERS_PER_BUCKET layers of `inputs` × `outputs` weights and their biases."""

    def __init__(self, communicator: Communicator, shapes: list[tuple[int, int]]) -> None:
        self._communicator, self._process = communicator, communicator.process
        self._shapes = shapes
        self._works: list[Work] = []
        self._filled: dict[int, int] = {}
        self.views: dict[Tensor, Tensor] = {}
        """By parameter the gradient that the optimizer takes."""

    def layer(self, number: int) -> OnGradient:
        """Returns the hook for the parameters of a layer."""
        bucket = number // LAYERS_PER_BUCKET
        members = self._shapes[bucket * LAYERS_PER_BUCKET : (bucket + 1) * LAYERS_PER_BUCKET]
        size = sum((inputs + 1) * outputs for inputs, outputs in members)
        flat = self._process.tensor(f"bucket {self._communicator.stream} {bucket}", size)

        def on_gradient(script: Script, parameter: Tensor, gradient: Tensor) -> None:
            offset = self._filled.get(bucket, 0)
            self._filled[bucket] = offset + parameter.numel
            self._scale(script, parameter, gradient, flat, offset)
            if self._filled[bucket] == flat.numel:
                self._works.append(self._communicator.all_reduce(script, flat))

        return on_gradient

    def _scale(self, script: Script, parameter: Tensor, gradient: Tensor, bucket: Tensor, offset: int) -> None:
        view = self._process.view(f"bucket view {parameter.id}", bucket, *parameter.shape, offset=offset)
        self.views[parameter] = view
        with (
            script.op("torch::distributed::reducer::mul_out", (view, gradient, 0.5), (view,)),
            script.op("aten::mul", (gradient, 0.5, view), (view,), own_us=8.0),
        ):
            script.launch(SCALE, COMPUTE, stream_us((gradient, view)))

    def finish(self, script: Script) -> None:
        """At the end of backward: the compute stream waits for every bucket."""
        for work in self._works:
            work.wait(script)
        self._works.clear()
        self._filled.clear()


def layer_buckets(communicator: Communicator, layers: int) -> Buckets:
    """Returns the buckets of so many layers of the job's width."""
    width = communicator.process.size.hidden
    return Buckets(communicator, [(width, width)] * layers)


def replica_buckets(process: Process, of: int, description: str, layers: int) -> list[Buckets]:
    """Returns the buckets that a rank shares with its replicas, one in every `of` ranks; none without replicas."""
    group = replica_groups(process.size.ranks, of, description)[process.rank % of]
    return [layer_buckets(Communicator(process, group, REPLICAS_STREAM), layers)] if len(group.ranks) > 1 else []


def hook_of(buckets: Buckets | None, layer: int) -> OnGradient | None:
    """Returns the hook for the parameters of a layer, where there are buckets."""
    return buckets.layer(layer) if buckets else None


def finish_all(buckets: Sequence[Buckets], script: Script) -> None:
    """At the end of backward: the compute stream waits for the buckets of each group."""
    for of_group in buckets:
        of_group.finish(script)


def views_of(buckets: Sequence[Buckets]) -> dict[Tensor, Tensor]:
    """Returns the gradients that the optimizer takes, by parameter."""
    return {parameter: view for of_group in buckets for parameter, view in of_group.views.items()}
