"""Collectives and messages as PyTorch's NCCL back end runs them: on a stream of their own, ordered by events."""

from dataclasses import dataclass

from .instructions import Collective, Group, Opaque, Rendezvous, Tensor
from .process import COMPUTE, Process, size_bytes
from .script import Script

BYTES_PER_US = 80_000
LATENCY_US = 12.0
ANNOTATIONS = {
    "allreduce": "nccl:all_reduce",
    "all_to_allv": "nccl:all_to_all",
    "send": "nccl:send",
    "recv": "nccl:recv",
}
EVENTS_IN_USE = 64
"""Events are pooled: after so many collectives the first one's event is recorded anew."""
OBJECT = Opaque("Object")


def world(ranks: int) -> Group:
    """The default process group."""
    return Group("0", "default_pg", tuple(range(ranks)))


def second_world(ranks: int) -> Group:
    """Another group of all ranks, with a sequence of its own."""
    return Group("1", "exchange", tuple(range(ranks)))


def expert_groups(ranks: int, size: int = 2) -> tuple[Group, ...]:
    """Neighbouring ranks in groups; every process calls its own one "1"."""
    return tuple(
        Group("1", "experts", tuple(range(first, min(first + size, ranks)))) for first in range(0, ranks, size)
    )


NO_GROUP = Group("", "", ())


@dataclass(frozen=True, slots=True)
class Communicator:
    """A process group in one process, and the stream on which its collectives run."""

    process: Process
    group: Group
    stream: int

    def all_reduce(self, script: Script, tensor: Tensor) -> "Work":
        """c10d::allreduce_, in place; each rank sends and receives 2 (n-1)/n of the tensor."""
        work = Work(self, Collective("allreduce", self.group, self.own, (tensor,), tensor.numel, tensor.numel))
        with script.op(
            "c10d::allreduce_", ((tensor,), OBJECT, OBJECT, None, True, -1), ((tensor,), OBJECT), own_us=15.0
        ):
            work.start(script, 2 * self._others * size_bytes(tensor))
        return work

    def all_to_all(self, script: Script, received: Tensor, sent: Tensor) -> "Work":
        """c10d::alltoall_base_ with equal splits; (n-1)/n of the tensor goes over the links."""
        ranks = len(self.group.ranks)
        splits, rows = (sent.numel // ranks,) * ranks, (sent.shape[0] // ranks,) * ranks
        collective = Collective(
            "all_to_allv", self.group, self.own, (sent, received), sent.numel, received.numel, splits, splits
        )
        work = Work(self, collective)
        with script.op("c10d::alltoall_base_", (received, sent, OBJECT, rows, rows, True, -1), (OBJECT,), own_us=15.0):
            work.start(script, self._others * size_bytes(sent))
        return work

    def send(self, script: Script, tensor: Tensor, to: int) -> "Work":
        peer = self.group.ranks.index(to)
        work = Work(self, Collective("send", self.group, peer, (tensor,), tensor.numel, tensor.numel))
        with script.op("c10d::send", ((tensor,), OBJECT, to, 0), (OBJECT,), own_us=12.0):
            work.start(script, size_bytes(tensor))
        return work

    def receive(self, script: Script, tensor: Tensor, source: int) -> "Work":
        peer = self.group.ranks.index(source)
        work = Work(self, Collective("recv", self.group, peer, (tensor,), tensor.numel, tensor.numel))
        with script.op("c10d::recv_", ((tensor,), OBJECT, source, 0), (OBJECT,), own_us=12.0):
            work.start(script, size_bytes(tensor))
        return work

    @property
    def own(self) -> int:
        """This process's position in the group."""
        return self.group.ranks.index(self.process.rank)

    @property
    def _others(self) -> float:
        return (len(self.group.ranks) - 1) / len(self.group.ranks)


class Work:
    """A collective from its launch on, as c10d hands it out."""

    def __init__(self, communicator: Communicator, collective: Collective) -> None:
        self._process, self._stream = communicator.process, communicator.stream
        self._collective, self._activity = self._process.collective(collective)
        self._sequence, self._meeting = self._next()
        self._done = f"done {self._stream} {self._sequence % EVENTS_IN_USE}"

    def start(self, script: Script, bytes_on_links: float) -> None:
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
                ns = round(1000 * (LATENCY_US + bytes_on_links / BYTES_PER_US))
                script.rendezvous(self._activity, self._stream, ns, self._meeting, self._sequence)
            script.record(self._done, self._stream)

    def wait(self, script: Script) -> None:
        """What the compute stream is given from now on waits for the collective; the host does not."""
        process, collective = self._process, Collective("wait", NO_GROUP, self._process.rank, (), 0, 0)
        shared, _ = process.collective(collective)
        with script.op("record_param_comms", collective=shared, comm_sequence=self._sequence):
            script.wait(COMPUTE, self._done)

    def _next(self) -> tuple[int, Rendezvous]:
        """The sequence number, and where the members meet: all ranks of the group, or sender and receiver."""
        group, process = self._collective.group, self._process
        if not self._collective.is_p2p:
            sequence = process.next_communication((group,))
            return sequence, Rendezvous((group, sequence), len(group.ranks))
        peer, is_send = group.ranks[self._collective.rank], self._collective.name == "send"
        way = (group, process.rank, peer) if is_send else (group, peer, process.rank)
        meeting = Rendezvous((*way, process.next_communication(way)), 2)
        # a process numbers all its messages in a group, so the two sides of one seldom have the same number
        return process.next_communication((group, "messages")), meeting
