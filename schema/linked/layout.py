"""The records of a linked file."""

from decimal import Decimal
from typing import Annotated, NamedTuple

import msgspec

from .host import NO_TENSORS, Attr
from .linked_trace import Communication, LinkReport, ProcessGroup, Provenance, TraceInfo, Whole

SCHEMA = "1.1.1-chakra.0.0.4"
Raw = msgspec.Raw
Position = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)]
"""A position in a list of texts, -1 for none."""


class IntegerAttribute(NamedTuple):
    """An attribute's name and type in the file, and the value of a missing one."""

    name: str
    type: str
    missing: int


INTEGER_ATTRIBUTES = (
    IntegerAttribute("rf_id", "uint64", 0),
    IntegerAttribute("fw_parent", "uint64", 0),
    IntegerAttribute("seq_id", "int64", -1),
    IntegerAttribute("scope", "uint64", 0),
    IntegerAttribute("tid", "uint64", 0),
    IntegerAttribute("fw_tid", "uint64", 0),
)
"""The attributes of an op that have a column, in the order of the file."""


class Node(msgspec.Struct, gc=False):
    """An op, or an activity if it has a `cat`. `call` and `communication` are rows of the tables below."""

    id: Whole
    name: str
    ctrl_deps: Whole | list[Whole] | None = None
    inputs: Raw = Raw(NO_TENSORS)
    outputs: Raw = Raw(NO_TENSORS)
    attrs: list[Attr] = []
    cat: str | None = None
    ts: int | float | None = None
    inclusive_dur: int | float | None = None
    exclusive_dur: int | float | None = None
    thread: Whole | None = None
    device: Whole = -1
    stream: Whole = -1
    correlation: Whole = 0
    graph_node: Whole = -1
    size: Whole = -1
    bandwidth: Whole = -1
    call: Whole = -1
    communication: Whole = -1
    sync_dep: list[Whole] | None = None
    recorded_by: str | None = None
    module: str | None = None
    python_function: str | None = None


class ExactNode(Node, gc=False):
    """A node with decimal time stamps, for fractions that a double cannot hold."""

    ts: Decimal | None = None  # type: ignore[assignment]
    inclusive_dur: Decimal | None = None  # type: ignore[assignment]
    exclusive_dur: Decimal | None = None  # type: ignore[assignment]


class CallTable(msgspec.Struct, omit_defaults=True):
    """Calls as columns, times in ns. -1 means none.

    `name` is a position in `names`, `op` the id of an op; `module` and `python_function` are positions in
    `python_names`.
    """

    names: list[str]
    name: list[Position]
    thread: list[Whole]
    start_ns: list[Whole]
    end_ns: list[Whole]
    correlation: list[Whole]
    op: list[Whole]
    python_names: list[str] = []
    module: list[Position] | None = None
    python_function: list[Position] | None = None


class WaitTable(msgspec.Struct):
    """Waits as columns. `of` is the id of an activity in device waits, a row of the call table in host waits; `source`
    is the id of an activity, -1 for none.
    """

    of: list[Whole]
    source: list[Whole]
    known_by: list[Provenance]
    since_ns: list[Whole | None] = []


class HandoffTable(msgspec.Struct):
    """Hand-offs between threads as columns, times in ns. `waiting_since_ns` is null if the target waited from its
    start.
    """

    source_thread: list[Whole]
    source_ns: list[Whole]
    target_thread: list[Whole]
    target_ns: list[Whole]
    waiting_since_ns: list[Whole | None]
    known_by: list[Provenance]


class LinkedFile(msgspec.Struct):
    """The top level."""

    schema: str = ""
    pid: int | None = None
    time: str = ""
    start_ts: int | float = 0
    finish_ts: int | float | None = 0
    nodes: list[Node] = []
    trace: TraceInfo | None = None
    calls: CallTable | None = None
    device_waits: WaitTable | None = None
    host_waits: WaitTable | None = None
    handoffs: HandoffTable | None = None
    communications: list[Communication] = []
    groups: list[ProcessGroup] = []
    link_report: LinkReport | None = None
    events: Raw = msgspec.field(name="traceEvents", default_factory=Raw)


class ExactFile(LinkedFile):
    """The file with the decimal time stamps of its nodes."""

    nodes: list[ExactNode] = []  # type: ignore[assignment]
