"""Builds an execution graph by hand: a line per node, times in ns, dependencies by the ids that earlier lines returned.

g = GraphBuilder()
op = g.host("aten::mm", start=0, duration=5)
g.activity("sgemm", start=9, duration=20, gap=4, after=[(op, LAUNCH)])
graph = g.build()

Also the edges that one dependency rule makes, and the work of an op by its arguments.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from execgraph.converter.dependencies import Rule
from execgraph.converter.edges import Edges
from execgraph.converter.timeline import slice_host
from execgraph.converter.timeline.context import ConversionContext
from execgraph.converter.work import RecordedOp, Tensor, Work, work_of
from execgraph.schema.columns import ABSENT, Categorical, Ragged
from execgraph.schema.graph import ATTRIBUTES, Column, Delay, DependencyKind, ExecutionGraph, NodeType
from execgraph.schema.linked import LinkedTrace
from execgraph.schema.machine import LatencyStats, MachineCalibration

from support.references import linked_of
from support.tables import Called, Ran, activities, calls

PROGRAM_ORDER = DependencyKind.PROGRAM_ORDER
LAUNCH = DependencyKind.LAUNCH
STREAM_ORDER = DependencyKind.STREAM_ORDER
EVENT_WAIT = DependencyKind.EVENT_WAIT
HOST_SYNC = DependencyKind.HOST_SYNC

Dependencies = Iterable[tuple[int, DependencyKind]]


class GraphBuilder:
    """Nodes get the ids 1, 2, … unless `id` is given; further keywords become attributes of the node."""

    def __init__(self, **metadata: str | int) -> None:
        self.metadata = metadata
        self.nodes: list[dict[str, Any]] = []

    def host(self, name: str, start: int, duration: int, *, thread: int = 1, **more: Any) -> int:
        return self._node(name, start, duration, is_cpu_op=1, tid=thread, **more)

    def activity(
        self, name: str, start: int, duration: int, *, stream: int = 7, device: int = 0, gap: int = 0, **more: Any
    ) -> int:
        placed = {"cat": "kernel", "device": device, "stream": stream, "gap_ns": gap}
        return self._node(name, start, duration, **{"is_cpu_op": 0, **placed, **more})

    def delay(self, start: int, duration: int, cause: Delay = Delay.UNEXPLAINED, **more: Any) -> int:
        return self._node("delay", start, duration, is_cpu_op=0, delay=int(cause), **more)

    def collective(
        self, start: int, duration: int, *, ranks: list[int], name: str = "ncclAllReduce", **more: Any
    ) -> int:
        return self.activity(name, start, duration, type=NodeType.COMM_COLL, pg_ranks=ranks, **more)

    def _node(
        self, name: str, start: int, duration: int, *, after: Dependencies = (), id: int | None = None,
        type: NodeType = NodeType.COMP, **attributes: Any,
    ) -> int:  # fmt: skip
        after = list(after)
        times = {"start_time_ns": start, "duration_ns": duration}
        kinds = {"data_dep_kinds": [int(kind) for _, kind in after]}
        number = id or len(self.nodes) + 1
        node = {"id": number, "name": name, "type": type, "after": [source for source, _ in after]}
        self.nodes.append({**node, **times, **kinds, **attributes})
        return number

    def build(self) -> ExecutionGraph:
        recorded = {name for node in self.nodes for name in node}
        return ExecutionGraph(
            id=np.array(self._values("id"), np.int64),
            name=Categorical.of(self._values("name")),
            type=np.array(self._values("type"), np.uint8),
            data_deps=Ragged.of(self._values("after")),
            ctrl_deps=Ragged.of([[] for _ in self.nodes]),
            start_time_micros=np.array(self._values("start_time_ns"), np.int64) // 1000,
            duration_micros=np.array(self._values("duration_ns"), np.int64) // 1000,
            attributes={a.name: self._column(a.name, a.value) for a in ATTRIBUTES if a.name in recorded},
            metadata=self.metadata,
        )

    def _values(self, field: str, missing: Any = None) -> list[Any]:
        return [node.get(field, missing) for node in self.nodes]

    def _column(self, name: str, value: str) -> Column:
        if value.endswith("_list"):
            return Ragged.of(self._values(name, []))
        if value == "string_val":
            texts = Categorical.of(self._values(name, ""))
            absent = texts.table.index("") if "" in texts.table else -1
            return Categorical(np.where(texts.codes == absent, -1, texts.codes).astype(np.int32), texts.table)
        return np.array(self._values(name, ABSENT), np.int64)


def training_step(clock: int = 1000) -> ExecutionGraph:
    """50 ns: two launches run ahead of the device, then the host waits for the copy behind the kernels and idles."""
    g = GraphBuilder(rank=0)
    first = g.host("aten::mm", clock, 5)
    second = g.host("aten::add", clock + 5, 4, after=[(first, PROGRAM_ORDER)])
    gemm = g.activity("sgemm", clock + 8, 20, gap=3, after=[(first, LAUNCH)])
    add = g.activity("vector_add", clock + 28, 10, after=[(second, LAUNCH), (gemm, STREAM_ORDER)])
    copy = g.activity("Memcpy", clock + 40, 6, gap=2, cat="gpu_memcpy", stream=8, after=[(add, EVENT_WAIT)])
    wait = g.host("cudaDeviceSynchronize", clock + 46, 1, after=[(second, PROGRAM_ORDER), (copy, HOST_SYNC)])
    g.host("host idle", clock + 47, 3, after=[(wait, PROGRAM_ORDER)])
    return g.build()


def rank_with_collective(rank: int, *, work: int, collective: int, clock: int, **more: Any) -> ExecutionGraph:
    """A computation, a collective of ranks 0 and 1 as long as given, 5 ns after it; one stream."""
    g = GraphBuilder(rank=rank)
    gemm = g.activity("gemm", clock, work)
    meet = g.collective(clock + work, collective, ranks=[0, 1], after=[(gemm, STREAM_ORDER)], **more)
    g.activity("after", clock + work + collective, 5, after=[(meet, STREAM_ORDER)])
    return g.build()


MACHINE = MachineCalibration(launch={"": LatencyStats(2_000, 3_000, 9)}, gap={"": LatencyStats(500, 700, 9)})
Named = set[tuple[str, str, DependencyKind]]


def run_of(ran: Sequence[Ran], called: Sequence[Called] = (), **more: object) -> ConversionContext:
    """A run on MACHINE; `more` are columns of the linked trace."""
    linked = dataclasses.replace(linked_of([]), activities=activities(*ran), calls=calls(*called), **more)
    linked.info.machine = MACHINE
    return sliced(linked)


def sliced(linked: LinkedTrace) -> ConversionContext:
    return ConversionContext(linked, slice_host(linked, 0), np.zeros(len(linked.activities), np.int64))


def edges_of(rule: Rule, run: ConversionContext) -> Named:
    return named(rule(run), run)


def named(edges: Edges, run: ConversionContext) -> Named:
    """Edges between activities, by their names."""
    assert len(edges.source) == len(edges.target) == len(edges.kind)
    name = run.linked.activities.name
    pairs = zip(
        (edges.source - run.activities_from).tolist(), (edges.target - run.activities_from).tolist(), strict=True
    )
    return {
        (name[source], name[target], DependencyKind(kind))
        for (source, target), kind in zip(pairs, edges.kind.tolist(), strict=True)
    }


HALF, FLOAT, LONG = 2, 4, 8
"""Bytes of an element."""


def tensors(*shapes: Sequence[int], item: int = FLOAT) -> list[Tensor]:
    """Tensors each in memory of its own."""
    return [Tensor.of(tuple(shape), item, number) for number, shape in enumerate(shapes)]


def work(name: str, inputs: list[Any], results: list[Tensor] | None, schema: str = "") -> Work:
    return work_of(RecordedOp(name, schema, inputs, None if results is None else list(results)))


def ordered(names: str, **values: Any) -> list[Any]:
    """Arguments in the order of their names, None where no value is given."""
    return [values.get(name) for name in names.split()]
