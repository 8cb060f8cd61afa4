"""Collectives and messages as PyTorch's NCCL back end runs them: on a stream of their own, ordered by events.

The network: a ring of n ranks takes 2(n - 1) steps for an all-reduce and n - 1 for an all-gather or a reduce-scatter,
each with a latency of its own; the messages of an all-to-all go at once. On top comes the time of the bytes that a rank
puts on its link: nccl-tests' share of the size, (n - 1)/n and for an all-reduce twice that.
"""

from dataclasses import dataclass

from .instructions import COMMUNICATION, Activity, Collective, Group, Opaque, Rendezvous, Tensor
from .program_process import COLLECTIVE_KERNELS, COMPUTE, Process, size_bytes
from .script import Script

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


NO_GROUP = Group("", "", ())
Rows = tuple[int, ...]
"""Rows of a tensor for, or from, each member of a group."""


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
        work = Work(self, Collective("allreduce", self.group, self.group_rank, (tensor,), tensor.numel, tensor.numel))
        with script.op(
            "c10d::allreduce_", ((tensor,), OBJECT, OBJECT, None, True, -1), ((tensor,), OBJECT), own_us=15.0
        ):
            work.start(script, 2 * self._ring_us, 2 * self._share_of_others * size_bytes(tensor))
        return work

    def all_gather(self, script: Script, whole: Tensor, shard: Tensor) -> "Work":
        """c10d::_allgather_base_: every rank gets the shards of all, each sends and receives (n-1)/n of the whole."""
        gathered = Collective("_allgather_base", self.group, self.group_rank, (shard, whole), shard.numel, whole.numel)
        work = Work(self, gathered)
        with script.op("c10d::_allgather_base_", (whole, shard, OBJECT, True, -1), (whole, OBJECT), own_us=15.0):
            work.start(script, self._ring_us, self._share_of_others * size_bytes(whole))
        return work

    def reduce_scatter(self, script: Script, shard: Tensor, whole: Tensor) -> "Work":
        """c10d::_reduce_scatter_base_: every rank gets its shard of the sum and moves (n-1)/n of the whole."""
        scattered = Collective(
            "_reduce_scatter_base", self.group, self.group_rank, (whole, shard), whole.numel, shard.numel
        )
        work = Work(self, scattered)
        inputs = (shard, whole, OBJECT, OBJECT, True, -1)
        with script.op("c10d::_reduce_scatter_base_", inputs, (shard, OBJECT), own_us=15.0):
            work.start(script, self._ring_us, self._share_of_others * size_bytes(whole))
        return work

    def all_to_all(self, script: Script, received: Tensor, sent: Tensor, rows: tuple[Rows, Rows] = ((), ())) -> "Work":
        """c10d::alltoall_base_: `rows` are those sent to each member and received of each, by default equally many."""
        ranks = len(self.group.ranks)
        sent_rows, received_rows = (
            recorded or (tensor.shape[0] // ranks,) * ranks
            for recorded, tensor in zip(rows, (sent, received), strict=True)
        )
        in_splits, out_splits = (
            tuple(count * tensor.numel // max(tensor.shape[0], 1) for count in recorded)
            or (tensor.numel // ranks,) * ranks
            for recorded, tensor in zip(rows, (sent, received), strict=True)
        )
        tensors = (sent, received)
        collective = Collective(
            "all_to_allv", self.group, self.group_rank, tensors, sent.numel, received.numel, in_splits, out_splits
        )
        work = Work(self, collective)
        inputs = (received, sent, OBJECT, received_rows, sent_rows, True, -1)
        with script.op("c10d::alltoall_base_", inputs, (OBJECT,), own_us=15.0):
            work.start(script, MESSAGE_US, (1 - in_splits[self.group_rank] / max(sent.numel, 1)) * size_bytes(sent))
        return work

    def send(self, script: Script, tensor: Tensor, to: int) -> "Work":
        """Sends a tensor to a rank, numbered as in the job."""
        peer = self.group.ranks.index(to)
        work = Work(self, Collective("send", self.group, peer, (tensor,), tensor.numel, tensor.numel))
        with script.op("c10d::send", ((tensor,), OBJECT, to, 0), (OBJECT,), own_us=12.0):
            work.start(script, MESSAGE_US, size_bytes(tensor))
        return work

    def receive(self, script: Script, tensor: Tensor, source: int) -> "Work":
        """Receives a tensor from a rank, numbered as in the job."""
        peer = self.group.ranks.index(source)
        work = Work(self, Collective("recv", self.group, peer, (tensor,), tensor.numel, tensor.numel))
        with script.op("c10d::recv_", ((tensor,), OBJECT, source, 0), (OBJECT,), own_us=12.0):
            work.start(script, MESSAGE_US, size_bytes(tensor))
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
        group, process, stream = self._communicator.group, self._communicator.process, self._communicator.stream
        for name, tensor in messages.items():
            recorded = Collective(name, group, group.ranks.index(self._peer), (tensor,), tensor.numel, tensor.numel)
            collective, _ = process.collective(recorded)
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
