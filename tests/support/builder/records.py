"""What happened in a played run: a record per op, call, activity and wait; times are ns since the run's start."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

FUNCTION, USER_SCOPE = 0, 7
UNKNOWN = -1
ITEM_SIZE = {"float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2, "long int": 8, "int": 4, "bool": 1}


@dataclass(eq=False)
class Tensor:
    id: int
    storage: int
    offset: int
    shape: tuple[int, ...]
    dtype: str
    device: str
    strides: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def item_size(self) -> int:
        return ITEM_SIZE[self.dtype]


@dataclass(eq=False)
class Group:
    """A process group as `## process_group:init ##` and the collectives describe it."""

    name: str
    description: str
    ranks: tuple[int, ...]


@dataclass(eq=False)
class Comms:
    """What `record_param_comms` is told; `rank` is the peer of send and recv, else the own rank."""

    name: str
    group: Group
    seq: int
    rank: int
    input: Tensor | None = None
    output: Tensor | None = None
    in_split: list[int] = field(default_factory=list)
    out_split: list[int] = field(default_factory=list)
    p2p: bool = False


@dataclass(eq=False)
class PythonCall:
    """A call of Python, `nn.Module: Linear_0` or `train.py(3): step`."""

    name: str
    thread: int
    start: int
    end: int


@dataclass(eq=False)
class Op:
    """A RecordFunction: an op or an annotation. Times are ns since the start of the run."""

    id: int
    rf_id: int
    external_id: int
    name: str
    thread: int
    parent: "Op | None"
    start: int
    end: int
    schema: str = ""
    inputs: Sequence[Any] = ()
    outputs: Sequence[Any] = ()
    scope: int = FUNCTION
    seq_id: int = -1
    fw_thread: int = 0
    fw_parent: int = 0
    only: str = ""
    comms: Comms | None = None
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Call:
    """A runtime or driver call."""

    name: str
    thread: int
    start: int
    end: int
    correlation: int
    op: Op | None


@dataclass(eq=False)
class Activity:
    category: str
    name: str
    device: int
    stream: int
    start: int
    end: int
    correlation: int
    op: Op | None
    args: dict[str, Any]


@dataclass(eq=False)
class Event:
    """A CUDA event; after `record_event` it knows when, where and by which call it was recorded."""

    id: int
    time: int = 0
    stream: int = UNKNOWN
    correlation: int = UNKNOWN


@dataclass(eq=False)
class EventRecord:
    """That an event was recorded: when, where and by which call."""

    id: int
    time: int
    stream: int
    correlation: int


@dataclass(eq=False)
class Sync:
    """A `cuda_sync` record."""

    kind: str
    stream: int
    start: int
    end: int
    correlation: int
    op: Op | None
    event: Event | None


@dataclass(eq=False)
class Collective:
    op: Op
    kernel: Activity
    group: Group
    seq: int
    done: Event
