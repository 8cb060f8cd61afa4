"""A job: its tensors, process groups, ops and activities, and what the host threads of each rank do.

Times are integer ns at factor 1. Steps share ops and tensors, but make their instructions anew on each call.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, tee
from operator import itemgetter
from typing import Any, NamedTuple

from ..replay import NodeClass
from .machine import DEFAULT, Machine

COMPUTATION, COMMUNICATION, MEMORY = NodeClass.COMPUTATION, NodeClass.COMMUNICATION, NodeClass.MEMORY
STEP = "ProfilerStep#"
ITEM_BYTES = {"float": 4, "long int": 8}
NONE = -1


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
Values = tuple[Value, ...]


class Group(NamedTuple):
    """A process group as one of its members sees it; `name` is what PyTorch calls it in that process."""

    name: str
    description: str
    ranks: tuple[int, ...]

    @property
    def config(self) -> dict[str, str]:
        """What both traces say of it first."""
        return {"pg_name": self.name, "pg_desc": self.description, "backend_config": "cuda:nccl"}

    @property
    def stride(self) -> int:
        """The distance between its ranks, 1 for one rank."""
        return self.ranks[1] - self.ranks[0] if len(self.ranks) > 1 else 1


@dataclass(frozen=True, slots=True)
class Collective:
    """The arguments of `record_param_comms`; `rank` is the caller's in the group, or the peer's for send and recv."""

    name: str
    group: Group
    rank: int
    tensors: tuple[Tensor, ...]
    in_splits: tuple[int, ...] = ()
    out_splits: tuple[int, ...] = ()

    @property
    def is_p2p(self) -> bool:
        """Whether it is a send or a receive."""
        return self.name in ("send", "recv")

    @property
    def elements(self) -> tuple[int, ...]:
        """How many elements go in and come out."""
        return tuple(sum(tensor.numel for tensor in side) for side in (self.tensors[:1], self.tensors[-1:]))

    @property
    def dtype(self) -> str:
        """The type of the first tensor's elements as C10 calls it, Byte without one."""
        return {"float": "Float", "long int": "Long"}[self.tensors[0].dtype] if self.tensors else "Byte"


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """A host op or, where `annotation`, a user annotation. One that marks a training step owns no time."""

    name: str
    inputs: Values = ()
    outputs: Values = ()
    schema: str = ""
    scope: int = 0
    annotation: bool = False
    collective: Collective | None = None


@dataclass(frozen=True, slots=True)
class Activity:
    """Something a device does: `kind` is its class for scaling, `bytes` the size of a copy or set."""

    name: str
    category: str = "kernel"
    kind: NodeClass = COMPUTATION
    bytes: int = 0
    collective: Collective | None = None


Instruction = Callable[[Any], Iterator[None] | None]
"""Something that a host thread, a `simulation.Thread`, does; where it has to wait it yields, and goes on when woken."""
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

    def groups_of(self, rank: int) -> tuple[Group, ...]:
        """Returns the groups that a rank is in."""
        return tuple(group for group in self.groups if rank in group.ranks)

    def instructions(self, rank: int) -> list[Iterator[Instruction]]:
        """Returns the instructions of each thread of a rank; a step is made when the first of them needs it."""
        copies = tee(self.program(rank), len(self.threads))
        return [chain.from_iterable(map(itemgetter(thread), steps)) for thread, steps in enumerate(copies)]
