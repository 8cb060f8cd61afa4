"""Small graphs that communicate, and what they become for ASTRA-sim."""

from typing import Any

from execgraph.converter.targets import TargetReport, for_astra_sim
from execgraph.schema.graph import CollectiveType, ExecutionGraph, NodeType

from support.graphs import STREAM_ORDER, GraphBuilder

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


def targets(graph: ExecutionGraph, **options: Any) -> ExecutionGraph:
    return for_astra_sim(graph, **options)[0]


def report(graph: ExecutionGraph, **options: Any) -> TargetReport:
    return for_astra_sim(graph, **options)[1]


UNKNOWN = "to or from a rank that is unknown or not simulated"
SEND = {"type": NodeType.COMM_SEND, "comm_src": 0, "comm_dst": 1, "comm_tag": 0}
