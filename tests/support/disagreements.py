"""Ranks of one job, one of which may communicate otherwise than the rest: in which ways, and what is said of it."""

from collections.abc import Sequence
from pathlib import Path

from support.builder.records import Group
from support.builder.timeline import TraceBuilder

RANKS = 4

ALL_TO_ALL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"

SPLITS = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]]
"""What rank i sends to rank j."""


class Rank:
    """One rank's run while it is written. Its traces can be made wrong by overriding what it does, and how much."""

    steps, kernels = 2, 5
    talks = ("reduce", "gather", "exchange", "message")
    name, size, dtype, shard, message_size = "allreduce", 64, "float", 10, 8

    def __init__(self, rank: int) -> None:
        self.rank, self.t = rank, TraceBuilder(rank=rank, world_size=RANKS, pid=1000 + rank)
        self.world = self.t.group(range(RANKS), "0")
        first = rank // 2 * 2
        self.pair = self.t.group([first, first + 1], "1", "pairs")

    def run(self) -> None:
        for step in range(self.steps):
            with self.t.annotation(f"ProfilerStep#{step}"):
                for _ in range(self.kernels):
                    with self.t.op("aten::mm"):
                        self.t.launch("sgemm", duration=5)
                self.talk()

    def talk(self) -> None:
        for talk in self.talks:
            getattr(self, talk)()

    def reduce(self, group: Group | None = None, size: int = 0) -> None:
        group, tensors = group or self.world, [self.t.tensor((size or self.size,), self.dtype)]
        self.t.collective(self.name, group=group, tensors=tensors, stream=20 + int(group.name))

    def gather(self) -> None:
        tensors = [self.t.tensor((self.shard,)), self.t.tensor((20,))]
        self.t.collective("allgather", group=self.pair, tensors=tensors, stream=21)

    def exchange(self, splits: Sequence[Sequence[int]] = SPLITS) -> None:
        sent, received = list(splits[self.rank]), [row[self.rank] for row in splits]
        tensors = [self.t.tensor((sum(sent),)), self.t.tensor((sum(received),))]
        told = {"tensors": tensors, "in_split": sent, "out_split": received, "kernel": ALL_TO_ALL}
        self.t.collective("all_to_allv", group=self.world, **told)

    def message(self) -> None:
        if self.rank < 2:
            name, tensors = ("send", "recv")[self.rank], [self.t.tensor((self.message_size,))]
            told = {"tensors": tensors, "peer": 1 - self.rank, "kernel": ALL_TO_ALL, "stream": 30}
            self.t.collective(name, group=self.world, seq=1, **told)


def write(folder: Path, wrong: type[Rank] = Rank, ranks: Sequence[int] = (2,), absent: Sequence[int] = ()) -> Path:
    """The traces of a job in which `ranks` do as `wrong` does."""
    folder.mkdir(exist_ok=True)
    for number in sorted(set(range(RANKS)) - set(absent)):
        rank = wrong(number) if number in ranks else Rank(number)
        rank.run()
        rank.t.write(folder)
    return folder


class WrongSize(Rank):
    size = 65


class SilentMember(Rank):
    talks = ("reduce", "exchange", "message")


class WrongSplit(Rank):
    def exchange(self, splits: Sequence[Sequence[int]] = SPLITS) -> None:
        super().exchange([[*row[:3], row[3] + (to == self.rank)] for to, row in enumerate(splits)])


class ExtraCollective(Rank):
    def message(self) -> None:
        self.reduce(self.pair, 7)


def other(**facts: object) -> type[Rank]:
    """A rank of which these facts are others."""
    return type("Other", (Rank,), facts)


def did(rank: int, name: str, size: str = "64", dtype: str = "Float") -> str:
    return f"rank {rank} issued {name} of {size} {dtype} by c10d::{name}_"


IN_WORLD, IN_PAIR = "group 0-3 (0): collective with number", "group 2,3 (1): collective with number"
FAULTS = {
    "another order of two groups": (other(talks=("gather", "reduce", "exchange", "message")), [2],
        "group 0-3 (0) and group 2,3 (1): collective 1 of both: "
        f"{did(2, 'allgather', '10 to 20')} in group 2,3 (1), {did(3, 'allreduce')} in group 0-3 (0)"),
    "a member that never comes": (SilentMember, [2], f"{IN_PAIR} 1: {did(3, 'allgather', '10 to 20')}, rank 2 issued none"),
    "another size": (WrongSize, [2], f"{IN_WORLD} 1: {did(0, 'allreduce')}, {did(2, 'allreduce', '65')}"),
    "another size on the first rank": (WrongSize, [0], f"{IN_WORLD} 1: {did(1, 'allreduce')}, {did(0, 'allreduce', '65')}"),
    "another dtype": (other(dtype="int"), [0], f"{IN_WORLD} 1: {did(1, 'allreduce')}, {did(0, 'allreduce', dtype='Int')}"),
    "another type": (other(name="broadcast"), [3], f"{IN_WORLD} 1: {did(0, 'allreduce')}, {did(3, 'broadcast')}"),
    "a split that its receiver does not expect": (WrongSplit, [2],
        f"{IN_WORLD} 2: in all_to_allv rank 2 sends 13 elements to rank 3, which expects 12"),
    "a shard too large": (other(shard=12), [2],
        f"{IN_PAIR} 1: {did(2, 'allgather', '12 to 20')}, {did(3, 'allgather', '10 to 20')}; their shards do not make up the whole"),
    "one collective more": (ExtraCollective, [2],
        f"{IN_PAIR} 2: {did(2, 'allreduce', '7')}, {did(3, 'allgather', '10 to 20')}"),
    "a send that nobody receives": (other(talks=("reduce", "gather", "exchange")), [1],
        "rank 0 sends 2 × 8 float that rank 1 does not receive"),
    "a message of two sizes": (other(message_size=9), [1],
        "rank 0 sends 2 × 8 float that rank 1 does not receive; rank 1 receives 2 × 9 float that rank 0 did not send"),
}  # fmt: skip
"""What is wrong, on which ranks, and what is said."""
