"""Small graphs that communicate for ASTRA-sim, programs for our own simulator, and what holds for each of its runs.

The calls of a job as its ranks have matched them, a row each, without graphs.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from execgraph.converter.ranks import Call, Calls, SimulatedCalls
from execgraph.converter.targets import lower_for_target
from execgraph.converter.targets.times import Lowering
from execgraph.schema.graph import Change, CollectiveType, ExecutionGraph, NodeType
from execgraph.tools.generate import PRESETS, Job, RankRun, build_job
from execgraph.tools.generate.instructions import Launch
from execgraph.tools.generate.job import Activity, Group, Instruction
from execgraph.tools.generate.nccl import Communicator
from execgraph.tools.generate.script import COMPUTE
from execgraph.tools.generate.simulation import Rendezvous

from support.graphs import STREAM_ORDER, GraphBuilder


def job_of(*threads: list[Instruction], ranks: int = 1) -> Job:
    """Every rank runs the same threads, for one step."""
    names = tuple(f"thread {number}" for number in range(len(threads)))
    return Job("test", 0, ranks, names, (), lambda rank: iter([threads]))


def launch(stream: int, device_ns: int, meeting: Rendezvous | None = None, *, blocking: bool = False) -> Launch:
    """A call of 100 ns, 10 ns until the device has it, gaps of 5 ns, 7 ns to return."""
    kernel = Activity("kernel")
    return Launch("cudaLaunchKernel", kernel, stream, device_ns, 100, 100, 10, 5, meeting, 0, 7 if blocking else None)


def spans(rank: RankRun) -> list[tuple[int, int]]:
    return list(zip(rank.activities.start, rank.activities.end, strict=True))


def assert_waits_are_kept(rank: RankRun) -> None:
    until: dict[int, int] = {}
    for (start, end), stream in zip(spans(rank), rank.activities.stream, strict=True):
        assert start >= until.get(stream, 0)
        until[stream] = end
    start, end = rank.activities.start, rank.activities.end
    for edges in (rank.event_waits, rank.graph_order):
        assert all(end[a] < start[b] for a, b in zip(*edges.columns(), strict=True))
    assert all(rank.calls.end[call] >= end[row] for call, row in zip(*rank.host_waits.columns(), strict=True))


def assert_storages_are_ordered(rank: RankRun) -> None:
    """In program order no reader overtakes the writer before it, and no writer the readers or the writer before it."""
    busy_until: dict[int, int] = {}
    read_until: dict[int, int] = {}
    for row, call in enumerate(rank.activities.call):
        op_row = rank.calls.op[call]
        while op_row >= 0 and rank.op_table[rank.ops.op[op_row]].annotation:
            op_row = rank.ops.parent[op_row]
        if op_row < 0:
            continue
        op, start, end = rank.op_table[rank.ops.op[op_row]], rank.activities.start[row], rank.activities.end[row]
        reads, writes = _storages(op.inputs), _storages(op.outputs)
        assert all(start >= busy_until.get(storage, 0) for storage in reads | writes)
        assert all(start >= read_until.get(storage, 0) for storage in writes)
        for storage in writes:
            busy_until[storage] = end
        for storage in reads:
            read_until[storage] = max(end, read_until.get(storage, 0))


def _storages(values: tuple[object, ...]) -> set[int]:
    tensors = [part for value in values for part in (value if type(value) is tuple else (value,))]
    return {tensor.storage for tensor in tensors if hasattr(tensor, "storage")}


NODE, RANKS = 4, 8
WITHIN, ACROSS = (1_000.0, 279.397), (6_000.0, 18.626)
"""ns and GB/s of 2**30 bytes of a link; a step goes over two."""
GEMM = Activity("sgemm")
SIZES = (50_000, 400_000, 3_000_000, 12_000_000)


def groups(ranks: int) -> tuple[Group, ...]:
    """The ranks of each node, and those at one place of all nodes."""
    nodes = [Group("1", "tensor parallel", tuple(range(first, first + NODE))) for first in range(0, ranks, NODE)]
    replicas = [Group("2", "data parallel", tuple(range(first, ranks, NODE))) for first in range(NODE)]
    return (*nodes, *replicas)


def program(process: Any) -> Iterator[None]:
    """Kernels and all-reduces within the node in turn, then all-reduces across nodes, in each of two steps."""
    own = [group for group in groups(process.size.ranks) if process.rank in group.ranks]
    within, across = (
        Communicator(process, group, 24 + number, step_us=2 * ns / 1000, bytes_per_us=gib_s * 2**30 / 1e6)
        for number, (group, (ns, gib_s)) in enumerate(zip(own, (WITHIN, ACROSS), strict=True))
    )
    for _ in range(2):
        for communicator in (within, across):
            for size in SIZES:
                tensor = process.tensor(f"{communicator.stream} {size}", size)
                with process.main.op("aten::mm", (tensor,), (tensor,), own_us=10.0):
                    process.main.launch(GEMM, COMPUTE, 50.0)
                communicator.all_reduce(process.main, tensor).wait(process.main)
        yield


def two_networks() -> Job:
    presets = {"nodes": PRESETS["ddp"]._replace(program=program, groups=groups)}
    return build_job("nodes", presets=presets, ranks=RANKS, steps=2, seed=1)


ALL_REDUCE, ALL_GATHER = CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER


def communicating(type: NodeType = NodeType.COMM_COLL, rank: int = 0, **attributes: Any) -> ExecutionGraph:
    """A kernel, then one communication of 5 µs in a job of four ranks."""
    g = GraphBuilder(rank=rank, world_size=4)
    gemm = g.activity("gemm", 0, 10_000)
    told = {"comm_type": ALL_REDUCE, "pg_ranks": [0, 1], "pg_name": "5"} if type is NodeType.COMM_COLL else {}
    g.activity(
        "nccl", 10_000, 5_000, type=type, after=[(gemm, STREAM_ORDER)], **{"comm_size": 4096, **told, **attributes}
    )
    return g.build()


def value(graph: ExecutionGraph, attribute: str, row: int = -1) -> int:
    return int(graph.integers(attribute)[row])


class Told(NamedTuple):
    """What is said of a graph for the simulator: counts by change, and notes."""

    counts: dict[str, float]
    notes: list[str]

    def __getitem__(self, change: Any) -> Any:
        return self.counts.get(str(change), 0)

    def reasons(self, change: Change) -> dict[str, float]:
        """The counts of a change by its reasons."""
        return {
            name.removeprefix(f"{change}: "): count
            for name, count in self.counts.items()
            if name.startswith(f"{change}: ")
        }


def for_astra_sim(graph: ExecutionGraph, groups: Any = None, **options: Any) -> ExecutionGraph:
    return lower_for_target(graph, "astra-sim", groups, **options)


def lowered(graph: ExecutionGraph, **options: Any) -> tuple[ExecutionGraph, Told]:
    made = for_astra_sim(graph, **options)
    assert made.changes
    return made, Told(made.changes.counts, made.changes.notes)


def passed(
    run: Callable[[ExecutionGraph, Lowering], ExecutionGraph], graph: ExecutionGraph, start_offset_ns: int = 0
) -> tuple[ExecutionGraph, Told]:
    """The graph after one pass, and what that says."""
    lowering = Lowering(None, None, start_offset_ns)
    made = run(graph, lowering)
    return made, Told(lowering.changes.counts, lowering.notes)


def report(graph: ExecutionGraph, **options: Any) -> Told:
    return lowered(graph, **options)[1]


UNKNOWN = "to or from a rank that is unknown or not simulated"
SEND = {"type": NodeType.COMM_SEND, "comm_src": 0, "comm_dst": 1, "comm_tag": 0}


class Issued(NamedTuple):
    """A call of a rank: the id of its node, the number of its match, when it ran, and the positions of the rank's calls
    that it follows.
    """

    node: int
    matched: int
    start_ns: int = 0
    end_ns: int = 0
    follows: tuple[int, ...] = ()
    type: NodeType = NodeType.COMM_COLL
    kind: int = int(CollectiveType.ALL_REDUCE)
    members: int = 2
    size: int = 8
    kernel: int = -1
    on_host: bool = False
    slack_ns: int = 0


def matched_job(*ranks: list[Issued]) -> SimulatedCalls:
    """The calls of all ranks on one clock."""
    calls = [(rank, call) for rank, calls in enumerate(ranks) for call in calls]
    first_row = np.cumsum([0, *map(len, ranks)]).tolist()
    pairs = [
        (first_row[rank] + before, first_row[rank] + row)
        for rank, of_rank in enumerate(ranks)
        for row, call in enumerate(of_rank)
        for before in call.follows
    ]
    before, after = np.array(pairs, np.int64).reshape(-1, 2).T
    names = ("node", "members", "kernel", "slack_ns")
    columns = {name: np.array([int(getattr(call, name)) for _, call in calls], np.int64) for name in names}
    told = Calls.of(
        Call(0, call.type, None, call.kind, call.size, start_ns=call.start_ns, end_ns=call.end_ns)._replace(
            rank=rank, matched=call.matched, on_host=call.on_host
        )
        for rank, call in calls
    )
    return SimulatedCalls(
        told.groups,
        **told.columns,
        **columns,
        transfer_ns=told.end_ns - told.start_ns,
        before=before,
        after=after,
        offset_ns=np.zeros(len(ranks), np.int64),
    )


def follows(calls: SimulatedCalls) -> list[list[int]]:
    """The rows on which each row depends."""
    return [calls.before[calls.after == row].tolist() for row in range(len(calls))]
