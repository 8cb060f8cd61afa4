"""Builds an execution graph by hand: a line per node, times in ns, dependencies by the ids that earlier lines returned.

g = GraphBuilder()
op = g.host("aten::mm", start=0, duration=5)
g.activity("sgemm", start=9, duration=20, gap=4, after=[(op, LAUNCH)])
graph = g.build()

Also the edges that one dependency rule makes, and the work of an op by its arguments.

Reads graph files with protobuf, without the package's own reader.

Jobs from graphs by hand, and the same jobs scaled.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from execgraph.converter.dependencies import Rule
from execgraph.converter.edges import Edges
from execgraph.converter.scaling import Growth, ScalePlan, copied, plan_scaling, rank_facts, resized
from execgraph.converter.timeline import slice_host
from execgraph.converter.timeline.context import ConversionContext
from execgraph.converter.work import RecordedOp, Tensor, Work, work_of
from execgraph.schema.columns import ABSENT, Categorical, Ragged
from execgraph.schema.graph import (
    ATTRIBUTES,
    CollectiveType,
    Column,
    Delay,
    DependencyKind,
    ExecutionGraph,
    NodeType,
    execution_graph_pb2,
    varint as encoded_varint,
)
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


class Value(NamedTuple):
    """An attribute's value and the field of the oneof that carried it."""

    kind: str
    value: Any


@dataclass
class Node:
    id: int
    name: str
    type: int
    control: list[int]
    data: list[int]
    duration_us: int
    attributes: dict[str, Value]

    def read(self, name: str, kind: str, default: int | str = 0) -> int | str:
        """The attribute if it has exactly this value type."""
        found = self.attributes.get(name)
        return found.value if found and found.kind == kind else default


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while data[at] >= 0x80:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


def read_nodes(path: Path) -> list[Node]:
    """The nodes of a file, whose first message is the metadata, whatever it holds."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        size, at = varint(data, at)
        found.append(data[at : at + size])
        at += size
    return [_node(execution_graph_pb2.Node.FromString(message)) for message in found[1:]]


def _node(node: execution_graph_pb2.Node) -> Node:
    kinds = {attr.name: attr.WhichOneof("value") or "none" for attr in node.attr}
    values = {attr.name: Value(kinds[attr.name], getattr(attr, kinds[attr.name], 0)) for attr in node.attr}
    return Node(node.id, node.name, node.type, [*node.ctrl_deps], [*node.data_deps], node.duration_micros, values)


ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.REDUCE_SCATTER,
)
ALL_TO_ALL, BROADCAST, BARRIER = CollectiveType.ALL_TO_ALL, CollectiveType.BROADCAST, CollectiveType.BARRIER
KB = 1000
PARAMETER = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
FUNCTION = "autograd::engine::evaluate_function: MmBackward0"


class Rank(GraphBuilder):
    """A rank of a job: a kernel, then what it is told, on one stream, one after the other; dependencies follow the
    stream.
    """

    def __init__(self, rank: int, ranks: int, work: int = 50 * KB, kernel: str = "gemm") -> None:
        super().__init__(rank=rank, world_size=ranks, target="generic")
        self.rank, self.now, self.seq = rank, 0, Counter[tuple[int, ...]]()
        self.last = self.activity(kernel, 0, work)
        self.now = work

    def meet(
        self,
        kind: CollectiveType,
        ranks: Sequence[int],
        size: int,
        ns: int,
        *,
        backward: bool = True,
        frame: str = PARAMETER,
        **more: Any,
    ) -> None:
        launch = self.host(frame if backward else "forward", self.now, 1, id=1000 + len(self.nodes))
        self.seq[tuple(ranks)] += 1
        told = {"comm_type": int(kind), "comm_size": size, "comm_seq": self.seq[tuple(ranks)], "pg_name": "dp", **more}
        after = [(launch, LAUNCH), (self.last, STREAM_ORDER)]
        self.last = self.collective(self.now, ns, ranks=list(ranks), after=after, **told)
        self.nodes[-1]["caller"] = launch
        self.now += ns

    def message(self, source: int, target: int, size: int = 8, tag: int = 0, ns: int = 10 * KB) -> None:
        kind = NodeType.COMM_SEND if source == self.rank else NodeType.COMM_RECV
        told = {"comm_src": source, "comm_dst": target, "comm_tag": tag, "comm_size": size}
        self.last = self.activity("SendRecv", self.now, ns, type=kind, after=[(self.last, STREAM_ORDER)], **told)
        self.now += ns

    def build(self) -> ExecutionGraph:
        graph = super().build()
        graph.ctrl_deps = Ragged.of([[node["caller"]] if "caller" in node else [] for node in self.nodes])
        return graph


def meeting(
    ranks: int, *collectives: tuple[CollectiveType, int, int] | tuple[CollectiveType, int, int, dict[str, Any]]
) -> list[Rank]:
    """Ranks that all meet in collectives: of which type, how many bytes, how many ns, and what else is told of each."""
    job = [Rank(rank, ranks) for rank in range(ranks)]
    for one in job:
        for kind, size, ns, *more in collectives:
            one.meet(kind, **{"ranks": range(ranks), "size": size, "ns": ns} | (more[0] if more else {}))
    return job


Graphs = Sequence[ExecutionGraph] | Sequence[Rank]


def built(job: Graphs) -> list[ExecutionGraph]:
    return [one.build() if isinstance(one, Rank) else one for one in job]


def plan_of(job: Graphs, copies: int = 2, **growth: Any) -> ScalePlan:
    return plan_scaling([rank_facts(graph) for graph in built(job)], Growth(copies, **growth))


def scaled(job: Graphs, copies: int = 2, **growth: Any) -> list[ExecutionGraph]:
    """The graphs of the scaled job, by rank."""
    graphs = built(job)
    plan = plan_of(graphs, copies, **growth)
    found = [
        copied(resized(graphs[rank], plan.ranks[rank]), plan, copy) for copy in range(copies) for rank in plan.ranks
    ]
    return sorted(found, key=lambda graph: int(graph.metadata["rank"]))


def data_parallel(ranks: int = 2, sizes: Sequence[int] = (1_000_000, 4_000_000), late: int = 0) -> list[ExecutionGraph]:
    """All-reduces of gradients among all ranks, 1 µs a step and 1 ns a byte; the others wait for the last rank, `late`
    ns each time.
    """
    job = []
    for rank in range(ranks):
        one, waits = Rank(rank, ranks), 0 if rank == ranks - 1 else late
        for size in sizes:
            one.meet(ALL_REDUCE, range(ranks), size, waits + line(ALL_REDUCE, ranks, size), pg_name="0")
        job.append(one.build())
    return job


def line(kind: CollectiveType, members: int, size: int) -> int:
    """1 µs a step and 1 ns a byte."""
    around = members - 1
    steps, sent = {
        ALL_REDUCE: (2 * around, 2 * around * size / members),
        ALL_GATHER: (around, around * size),
        REDUCE_SCATTER: (around, around * size / members),
    }[kind]
    return round(KB * steps + sent)


def lengths(graph: ExecutionGraph) -> list[int]:
    return graph.duration_ns[graph.type == NodeType.COMM_COLL].tolist()


def sizes(graph: ExecutionGraph) -> list[int]:
    return graph.integers("comm_size")[graph.type == NodeType.COMM_COLL].tolist()


def tensor_by_data(description: str = "") -> list[ExecutionGraph]:
    """Pairs (0, 1) and (2, 3) that reduce activations both ways, and their replicas (0, 2) and (1, 3), which reduce
    gradients.
    """
    job = []
    for rank in range(4):
        one, pair, replicas = Rank(rank, 4), [rank // 2 * 2, rank // 2 * 2 + 1], [rank % 2, rank % 2 + 2]
        for backward in (False, True):
            one.meet(ALL_REDUCE, pair, 64_000, 70 * KB, backward=backward, pg_name="tp")
        for size in (80_000, 800_000):
            one.meet(ALL_REDUCE, replicas, size, line(ALL_REDUCE, 2, size), pg_name="dp", pg_desc=description)
        job.append(one.build())
    return job


def stages(replicas: int = 1) -> list[ExecutionGraph]:
    """Two stages, the first sends the second two messages; replicas of a stage reduce gradients."""
    job = []
    for rank in range(2 * replicas):
        one, first = Rank(rank, 2 * replicas), rank // 2 * 2
        one.message(first, first + 1, tag=0)
        one.message(first, first + 1, tag=1)
        for size in (1_000_000, 2_000_000):
            one.meet(ALL_REDUCE, range(rank % 2, 2 * replicas, 2), size, line(ALL_REDUCE, replicas, size))
        job.append(one.build())
    return job


def framed(*messages: Any) -> bytes:
    """The bytes of a graph file of these messages, protobuf's or their bytes."""
    contents = [m if isinstance(m, bytes) else m.SerializeToString(deterministic=True) for m in messages]
    return b"".join(encoded_varint(len(content)) + content for content in contents)
