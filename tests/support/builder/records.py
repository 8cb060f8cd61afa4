"""What happened in a played run: a record per op, call, activity and wait; times are ns since the run's start.

What tells the files of one PyTorch version from those of another, and what both traces say about an argument.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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


COMMS_DTYPE = {
    "float": "Float", "double": "Double", "c10::Half": "Half", "c10::BFloat16": "BFloat16", "long int": "Long",
    "int": "Int", "bool": "Bool",
}  # fmt: skip


class Layout(NamedTuple):
    schema: str
    flat: bool = False  # node keys at top level instead of in `attrs`
    integer_us: bool = False  # device times in whole µs since the epoch, with no base
    record_function_id: bool = True
    comms_attributes: bool = True  # collective attributes on host nodes, `process_group:init` nodes
    strides: bool = True
    tensor_range: bool = True
    sequence_tuple: bool = True  # record_param_comms has (seq, is_p2p)
    async_flag: bool = True  # and at its end whether anybody waits for it
    group_address: bool = False  # and for its group where that lies in memory
    unlinked_external_id: bool = False  # GPU rows without an op repeat the correlation
    sync_tid: int = 1

    @property
    def origin_us(self) -> float:
        """Where a run's time 0 is on the device trace's clock; between two µs where times are more exact than that."""
        return 1_700_000_000_000_000 if self.integer_us else 4_000_000_000.5


EPOCH: dict[str, Any] = {"integer_us": True, "record_function_id": False, "unlinked_external_id": True, "sync_tid": -1}
BEFORE_2_6 = {"tensor_range": False, "sequence_tuple": False, "async_flag": False}
LAYOUTS = {
    "2.1": Layout("1.0.1", flat=True, group_address=True, comms_attributes=False, strides=False, **BEFORE_2_6, **EPOCH),
    "2.2": Layout(
        "1.0.2-chakra.0.0.4", group_address=True, comms_attributes=False, strides=False, **BEFORE_2_6, **EPOCH
    ),
    "2.3": Layout("1.0.2-chakra.0.0.4", comms_attributes=False, strides=False, **BEFORE_2_6, **EPOCH),
    "2.4": Layout("1.1.0-chakra.0.0.4", strides=False, unlinked_external_id=True, sync_tid=-1, **BEFORE_2_6),
    "2.5": Layout("1.1.1-chakra.0.0.4", **BEFORE_2_6),
    "2.7": Layout("1.1.1-chakra.0.0.4", async_flag=False),
    "2.13": Layout("1.1.1-chakra.0.0.4"),
}


class Boxed(NamedTuple):
    value: Any
    shape: Any
    type: str
    strides: Any


def boxed(argument: Any) -> Boxed:
    """One argument as the host trace shows it: a tensor, a number, a string, None, a list or a tuple."""
    if isinstance(argument, Tensor):
        place = [argument.id, argument.storage, argument.offset]
        value = [*place, argument.elements, ITEM_SIZE[argument.dtype], argument.device]
        strides = _contiguous(argument.shape) if argument.strides is None else argument.strides
        return Boxed(value, list(argument.shape), f"Tensor({argument.dtype})", list(strides))
    if isinstance(argument, list | tuple):
        parts = [boxed(element) for element in argument]
        values, shapes, types, strides = ([part[column] for part in parts] for column in range(4))
        kind = "Tuple" if isinstance(argument, tuple) else "GenericList"
        return Boxed(values, shapes, f"{kind}[{','.join(types)}]", strides)
    if argument is None:
        return Boxed("<None>", [], "None", [])
    return Boxed(argument, [], {bool: "Bool", int: "Int", float: "Double", str: "String"}[type(argument)], [])


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis:]) for axis in range(1, len(shape) + 1))
