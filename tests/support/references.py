"""Slow references for the analyses: small runs as lists of records, and figures by looking at each ns or each pair.

`linked_of` makes the linked trace of such a run. The backward pass is found by the arrows (`fwdbwd`) of the profiler
itself. Nothing here shares code with what it checks.
"""

import gzip
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from execgraph.schema import linked
from execgraph.schema.columns import ABSENT, BytesColumn, Categorical, RecordsByRow
from execgraph.schema.linked import NO_TENSORS, Activities, Calls, Communication, LinkedTrace, Ops, TraceInfo
from hypothesis import strategies as st

from support.tables import table

COMPUTATION, COMMUNICATION, MEMORY = "computation", "communication", "memory"
CATEGORY = {COMPUTATION: "kernel", COMMUNICATION: "kernel", MEMORY: "gpu_memcpy"}
NONE = np.empty(0, np.int64)


class Call(NamedTuple):
    """A launch call; `op` is the place of the op around it, -1 for none."""

    start: int
    end: int
    op: int = -1
    name: str = "cudaLaunchKernel"


class Act(NamedTuple):
    """An activity; `call` is the place of its launch call, -1 for none. Times are ns, `bandwidth` bytes/s."""

    start: int
    end: int
    kind: str = COMPUTATION
    stream: int = 7
    name: str = "k"
    call: int = -1
    device: int = 0
    size: int = -1
    bandwidth: int = -1


class Op(NamedTuple):
    """An op; `parent` is the place of the op around it, -1 for none."""

    start: int
    end: int
    parent: int = -1
    name: str = "aten::op"
    shapes: str = "[]"


def linked_of(
    acts: Sequence[Act],
    calls: Sequence[Call] = (),
    ops: Sequence[Op] = (),
    *,
    device_waits: Iterable[tuple[int, int]] = (),
    host_waits: Iterable[tuple[int, int]] = (),
    communications: Sequence[Communication] = (),
    **info: Any,
) -> LinkedTrace:
    """The linked trace of a small run; device waits are (target, source) activities, host waits (call, source) ones.

    Communication k of `communications` is that of the k-th communication activity.
    """
    op_of_call = np.append(_integers(call.op for call in calls), -1)
    held, awaited = list(device_waits), list(host_waits)
    talks = sum(act.kind == COMMUNICATION for act in acts)
    return LinkedTrace(
        info=TraceInfo(**info),
        ops=ops_of(ops),
        calls=_calls_of(calls),
        activities=_activities_of(acts, op_of_call),
        device_waits=linked.DeviceWaits(
            _integers(source for _, source in held), _integers(target for target, _ in held), _recorded(held)
        ),
        host_waits=linked.HostWaits(
            _integers(call for call, _ in awaited),
            _integers(source for _, source in awaited),
            np.full(len(awaited), ABSENT),
            _recorded(awaited),
        ),
        handoffs=linked.ThreadHandoffs(NONE, NONE, NONE, NONE, NONE, _recorded([])),
        communications=list(communications) or [Communication() for _ in range(talks)],
        groups=[],
    )


def _activities_of(acts: Sequence[Act], op_of_call: Any) -> Activities:
    call_row = _integers(act.call for act in acts)
    talks = _integers(act.kind == COMMUNICATION for act in acts)
    found: Activities = table(
        Activities, Act, acts, id=1_000 + np.arange(len(acts)), category=Categorical.of(CATEGORY[act.kind] for act in acts),
        correlation=np.where(call_row >= 0, 100 + call_row, 0), graph_node=-1, call_row=call_row,
        op_row=op_of_call[call_row], communication_row=np.where(talks > 0, np.cumsum(talks) - 1, -1),
    )  # fmt: skip
    return found


def _calls_of(calls: Sequence[Call]) -> Calls:
    op_row, correlation = _integers(call.op for call in calls), 100 + np.arange(len(calls))
    found: Calls = table(Calls, Call, calls, thread=1, correlation=correlation, op_row=op_row)
    return found


def ops_of(ops: Sequence[Op]) -> Ops:
    inputs = (NO_TENSORS.replace(b'"shapes":[]', b'"shapes":' + op.shapes.encode()) for op in ops)
    found: Ops = table(
        Ops, Op, ops, id=1 + np.arange(len(ops)), parent_id=_integers(op.parent + 1 or -1 for op in ops), thread=1,
        exclusive=_integers(exclusive(ops, place) for place in range(len(ops))),
        recorded_by_host=np.ones(len(ops), np.bool_), op_schema=Categorical.of("" for _ in ops), rf_id=0, fw_parent=0,
        seq_id=0, scope=0, tid=0, fw_tid=0, inputs=BytesColumn.of(inputs), outputs=BytesColumn.of(NO_TENSORS for _ in ops),
        extra=RecordsByRow.of(dict), communication_row=-1,
    )  # fmt: skip
    return found


def exclusive(ops: Sequence[Op], op: int) -> int:
    """An op's length less those of the ops that it called, 0 where these are longer."""
    called = sum(other.end - other.start for other in ops if other.parent == op)
    return max(ops[op].end - ops[op].start - called, 0)


def _integers(values: Iterable[int]) -> Any:
    return np.array(list(values), np.int64)


def _recorded(rows: Sequence[Any]) -> Categorical:
    return Categorical.of("record" for _ in rows)


KINDS = st.sampled_from([COMPUTATION, COMMUNICATION, MEMORY])


@st.composite
def runs(draw: st.DrawFn, most: int = 12) -> tuple[list[Act], list[Call]]:
    """Any overlaps on any stream, activities of no length, calls with several activities, activities without a call."""
    calls = draw(st.lists(st.builds(lambda start, length: Call(start, start + length), times(), times(8)), max_size=6))
    acts = st.builds(
        lambda start, length, kind, stream, name, call, device: Act(
            start, start + length, kind, stream, name + kind, min(call, len(calls) - 1), device
        ),
        times(),
        times(9),
        KINDS,
        st.integers(7, 8),
        st.sampled_from("ab"),
        st.integers(-1, 5),
        st.integers(0, 1),
    )
    return draw(st.lists(acts, min_size=1, max_size=most)), calls


def times(most: int = 40) -> st.SearchStrategy[int]:
    return st.integers(0, most)


def moments(acts: Iterable[Act], *kinds: str) -> set[int]:
    """The nanoseconds in which any of the activities (of these kinds) runs."""
    return {time for act in acts for time in range(act.start, act.end) if not kinds or act.kind in kinds}


def kinds_at(acts: Sequence[Act]) -> dict[frozenset[str], int]:
    """How many nanoseconds each set of kinds runs at once."""
    return Counter(frozenset(act.kind for act in acts if act.start <= time < act.end) for time in moments(acts))


def on_device(acts: Iterable[Act], device: int) -> list[Act]:
    return [act for act in acts if act.device == device]


def gaps(acts: Sequence[Act]) -> list[tuple[Act, int]]:
    """For each activity that starts after all earlier ones of its stream: it, and since when the stream was free."""
    found = []
    for act in acts:
        earlier = [
            other
            for place, other in enumerate(acts)
            if (other.device, other.stream) == (act.device, act.stream)
            and (other.start, other.end, place) < (act.start, act.end, acts.index(act))
        ]
        freed = max((other.end for other in earlier), default=act.start)
        if act.start > freed:
            found.append((act, freed))
    return found


def queue_at(acts: Sequence[Act], calls: Sequence[Call], device: int, stream: int, time: int) -> int:
    """How many calls have begun whose first activity on the stream has not."""
    length = 0
    for place, call in enumerate(calls):
        own = [act.start for act in acts if (act.call, act.device, act.stream) == (place, device, stream)]
        length += bool(own) and call.start <= time < min(own)
    return length


def bandwidth_at(acts: Sequence[Act], resolution: int, time: int) -> float:
    """Bytes per ns of the copies that run, as recorded, else by their lengths where these are known to a tenth."""
    total = 0.0
    for act in acts:
        if act.start <= time < act.end:
            length = act.end - act.start
            if act.bandwidth > 0:
                total += act.bandwidth / 1e9
            elif act.size >= 0 and length >= 10 * resolution:
                total += act.size / length
    return total


def began(acts: Sequence[Act], calls: Sequence[Call] = (), ops: Sequence[Op] = ()) -> int:
    """When the first of all starts, from which the times of tables count."""
    return min(one.start for one in (*acts, *calls, *ops))


def below(ops: Sequence[Op], op: int) -> set[int]:
    """An op and all that it called, by asking every op for its ancestors."""
    found = set()
    for place in range(len(ops)):
        above = place
        while above not in (-1, op):
            above = ops[above].parent
        if above == op:
            found.add(place)
    return found


def launched_below(acts: Sequence[Act], calls: Sequence[Call], ops: Sequence[Op], op: int) -> list[Act]:
    """The activities that an op's subtree launched, in launch order."""
    inside = below(ops, op)
    own = [act for act in acts if act.call >= 0 and calls[act.call].op in inside]
    return sorted(own, key=lambda act: (calls[act.call].start, act.start))


MODULE = "nn.Module: "
ENGINE = "autograd::engine::evaluate_function: "
OPS, CALLS = ("cpu_op", "user_annotation"), ("cuda_runtime", "cuda_driver", "hip_runtime")
Row = dict[str, Any]


def picked(rows: Iterable[Mapping[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """Some columns of the rows of a table."""
    return [tuple(row[name] for name in names) for row in rows]


class Span(NamedTuple):
    thread: int
    start: int
    end: int

    def holds(self, other: "Span") -> bool:
        return self.thread == other.thread and self.start <= other.start and other.end <= self.end


class Place(NamedTuple):
    module: str
    function: str


def rows_of(path: Path) -> list[Row]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows: list[Row] = json.loads(text, parse_float=Decimal)["traceEvents"]
    return rows


def span(row: Row) -> Span:
    start, length = (int((Decimal(str(row[key])) * 1000).to_integral_value()) for key in ("ts", "dur"))
    return Span(row["tid"], start, start + length)


class Reference:
    """Where each op, call and activity of a device trace was called."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.found: dict[Span, Place] = {}
        self.python = [
            (span(row), row["name"])
            for row in rows
            if row.get("cat") == "python_function" and not row["name"].startswith("<built-in")
        ]
        self.python.sort(key=lambda call: call[0].start)
        self.ops = [(span(row), row["name"]) for row in rows if row.get("cat") in OPS]
        self.calls = {row["args"].get("correlation"): span(row) for row in rows if row.get("cat") in CALLS}

    @cached_property
    def forward(self) -> dict[tuple[Span, str], Span]:
        """The forward op of each op that an arrow reaches, and of the engine's row around that."""
        ends: dict[str, dict[int, tuple[int, int]]] = {"s": {}, "f": {}}
        for row in self.rows:
            if row.get("cat") == "fwdbwd":
                ends[row["ph"]][row["id"]] = row["tid"], span(row | {"dur": 0}).start
        begins: dict[tuple[int, int], list[tuple[Span, str]]] = {}
        for op in self.ops:
            begins.setdefault((op[0].thread, op[0].start), []).append(op)
        found = {}
        for number, target in ends["f"].items():
            source = min((one for one, _ in begins[ends["s"][number]]), key=lambda one: one.end)
            for reached, name in begins[target]:
                found[reached, name] = source
                around = [op for op in self.ops if op[1] == ENGINE + name and op[0].holds(reached)]
                found |= dict.fromkeys(around, source)
        return found

    def around(self, here: Span) -> list[tuple[Span, str]]:
        """The calls of Python around a span, the outermost first."""
        begun = bisect_right(self.python, here.start, key=lambda call: call[0].start)
        calls = [(called, name) for called, name in self.python[:begun] if called.holds(here)]
        return sorted(calls, key=lambda call: (call[0].start, -call[0].end))

    def place(self, here: Span) -> Place:
        if here not in self.found:
            self.found[here] = self._place(here)
        return self.found[here]

    def _place(self, here: Span) -> Place:
        below = [one for one, _ in self.forward if one.holds(here)]
        if not below:
            return self._named(self.around(here), Place("", ""))
        backward = max(below, key=lambda one: (one.start, -one.end))
        source = next(forward for (one, _), forward in self.forward.items() if one == backward)
        outside = self.around(backward)
        inside = [call for call in self.around(here) if call not in outside]
        return self._named(inside, self.place(source))

    @staticmethod
    def _named(calls: list[tuple[Span, str]], outer: Place) -> Place:
        """The place of what is called below another one; a module that comes again stands where it stood."""
        path, names = outer.module.split("/") if outer.module else [], [name for _, name in calls]
        modules = [name.removeprefix(MODULE) for name in names if name.startswith(MODULE)]
        if modules and modules[0] in path:
            path = path[: path.index(modules[0])]
        for name in modules:
            path += [name] if path[-1:] != [name] else []
        functions = [name for name in names if not name.startswith(MODULE)]
        return Place("/".join(path), functions[-1] if functions else outer.function)

    def device_time(self) -> dict[str, int]:
        """ns of the device by path, each activity at its module and at all around that; "" holds what is in none."""
        found: dict[str, int] = Counter()
        for row in self.rows:
            if row.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
                called = self.calls.get(row["args"]["correlation"])
                path = self.place(called).module.split("/") if called else [""]
                for end in range(1, len(path) + 1):
                    found["/".join(path[:end])] += span(row).end - span(row).start
        return found
