"""Jobs from graphs by hand, and the same jobs scaled."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from execgraph.converter.scaling import Growth, ScalePlan, copied, plan_scaling, rank_facts, resized
from execgraph.schema.columns import Ragged
from execgraph.schema.graph import CollectiveType, ExecutionGraph, NodeType

from support.graphs import LAUNCH, STREAM_ORDER, GraphBuilder

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


def plan_of(graphs: Sequence[ExecutionGraph], copies: int = 2, **growth: Any) -> ScalePlan:
    return plan_scaling([rank_facts(graph) for graph in graphs], Growth(copies, **growth))


def scaled(graphs: Sequence[ExecutionGraph], copies: int = 2, **growth: Any) -> list[ExecutionGraph]:
    """The graphs of the scaled job, by rank."""
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
