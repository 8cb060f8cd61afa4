"""Graphs of whole jobs end in both generations of the simulator, which notices what would stop the real one."""

import tempfile
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from execgraph.converter.ranks import (
    common_order,
    common_sizes,
    communication_summary,
    matched_calls,
    order_collectives,
    recorded_groups,
    with_values,
)
from execgraph.converter.rewiring import without_host
from execgraph.converter.scaling import Growth
from execgraph.converter.targets import separate_messages
from execgraph.schema.arguments import ASTRA_SIM
from execgraph.schema.columns import ABSENT, Ragged
from execgraph.schema.comm_groups import RankList, number_groups, write_groups
from execgraph.schema.errors import DataError
from execgraph.schema.graph import CollectiveType, ExecutionGraph, NodeType
from execgraph.tools.generate import build_job, simulate as simulated, write_traces
from execgraph.tools.job import BuildOptions, build, scale
from execgraph.tools.replay import replay
from hypothesis import assume, given, strategies as st
from support import runs as programs
from support.disagreements import FAULTS as CROSS_RANK_FAULTS, RANKS, write
from support.for_simulator import for_astra_sim
from support.generated import ALONE, TOGETHER, built_job, graphs_of, here
from support.graphs import LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder, read_nodes
from support.runs import Step, convert_run, one_thread
from support.simulator import COLL, COMMUNICATION, RECV, SEND, Generation, Outcome, read_files, simulate

V1, V3 = Generation.V1, Generation.V3
BOTH = (V1, V3)
ALL_REDUCE, ALL_GATHER = CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER
MANY_RANKS = ["halo", "uneven", "dlrm", "moe_dp"]
"""Jobs that exchange different things. Every job runs with two ranks, and two that were scaled with sixteen."""
WITH_HOST = [*zip((*ALONE, *TOGETHER), cycle((True, False)))]
"""Every second job, where its host blocks on the device; the others where it does not."""
HOST = pytest.mark.parametrize("host", [True, False], ids=["host", "no host"])


def play(folder: Path, graphs: Sequence[ExecutionGraph], groups: dict[RankList, int]) -> dict[Generation, Outcome]:
    """The graphs, as they are, one per rank, in both generations."""
    for rank, graph in enumerate(graphs):
        graph.write(str(folder / f"graph.{rank}.et"))
    write_groups(str(folder / "comm_groups.json"), groups)
    return play_files(folder, len(graphs))


def play_files(folder: Path, ranks: int) -> dict[Generation, Outcome]:
    """The files that a build wrote."""
    files = read_files(folder / "graph", ranks)
    return {generation: simulate(files, folder / "comm_groups.json", generation) for generation in BOTH}


def run_to_the_end(outcomes: dict[Generation, Outcome], ranks: int) -> bool:
    """Whether every node of every rank was executed; says what stood in the way where not."""
    for generation, outcome in outcomes.items():
        assert outcome.good, f"{generation.name}: {outcome.trouble}"
        assert len(outcome.finished_ns) == ranks
    return True


def built(graphs: Sequence[ExecutionGraph]) -> tuple[list[ExecutionGraph], dict[RankList, int]]:
    """The graphs of all ranks of a job for this target, and its groups."""
    groups = number_groups(ranks for graph in graphs for ranks in recorded_groups(graph).lists)
    graphs = [separate_messages(graph) for graph in graphs]
    calls = matched_calls([communication_summary(graph) for graph in graphs])
    agreed = [
        order_collectives(with_values(graph, "comm_size", sizes), order)
        for graph, sizes, order in zip(
            graphs, calls.by_node(common_sizes(calls), calls.node >= 0), common_order(calls), strict=True
        )
    ]
    return [for_astra_sim(graph, groups) for graph in agreed], groups


def played_to_the_end(folder: Path, graphs: Sequence[ExecutionGraph], host: bool = True) -> bool:
    """Whether graphs that are made for this target, with their hosts or without, end in both generations."""
    made, groups = built([graph if host else without_host(graph) for graph in graphs])
    return run_to_the_end(play(folder, made, groups), len(made))


# whole jobs


@pytest.mark.parametrize(("job", "host"), WITH_HOST)
def test_every_node_of_every_rank_runs_in_both_generations(tmp_path: Path, job: str, host: bool) -> None:
    assert played_to_the_end(tmp_path, graphs_of(job, 1 if job in ALONE else 2), not host)


@pytest.mark.parametrize(("job", "host"), WITH_HOST[::3])
def test_hosts_that_block_on_the_device_run_to_the_end(tmp_path: Path, job: str, host: bool) -> None:
    assert played_to_the_end(tmp_path, graphs_of(job, 1 if job in ALONE else 2, "all"), host)


@pytest.mark.parametrize("job", MANY_RANKS)
def test_many_ranks_run_to_the_end(tmp_path: Path, job: str) -> None:
    assert played_to_the_end(tmp_path, built_job(job, 4).graphs, host=job == "halo")


@pytest.mark.parametrize(("job", "host"), [("ddp", True), ("pipeline_dp", False)])
def test_jobs_that_were_scaled_to_sixteen_ranks_run_to_the_end(tmp_path: Path, job: str, host: bool) -> None:
    run = simulated(build_job(job, ranks=4, steps=1, layers=2))
    write_traces(run, tmp_path / "traces")
    options = BuildOptions(target=ASTRA_SIM, host=host, excess_time=False)
    assert not build(tmp_path / "traces", tmp_path / "graphs", options, here).report.all_failures
    groups = () if job == "pipeline_dp" else ("default_pg",)
    scale(tmp_path / "graphs", tmp_path / "scaled", Growth(4, groups=groups), here)
    assert run_to_the_end(play_files(tmp_path / "scaled", 16), 16)


@HOST
@pytest.mark.parametrize("job", ["simple", "hostbound", "event_sync", "critical_path"])
def test_a_run_without_overlap_takes_its_measured_time(tmp_path: Path, job: str, host: bool) -> None:
    whole = graphs_of(job)[0]
    graphs, groups = built([whole if host else without_host(whole)])
    end = (graphs[0].start_ns + graphs[0].duration_ns).max() - whole.start_ns.min()
    for outcome in play(tmp_path, graphs, groups).values():
        assert outcome.finished_ns[0] == pytest.approx(end, rel=0.002)
    assert abs(replay(graphs[0]).error_pct or 0) < 0.5


@given(one_thread, st.sampled_from(["sync", "all"]), st.booleans())
def test_any_run_is_played_to_the_end(steps: list[Step], promote: str, host: bool) -> None:
    graph = convert_run(programs.play(steps, sync_records=host), promote=promote).graph
    assume(host or graph.is_activity.any())
    with tempfile.TemporaryDirectory() as folder:
        assert played_to_the_end(Path(folder), [graph], host)


CAPTURES = {"threads": 1, "ddp": 2, "training": 2}


@pytest.mark.parametrize("capture", CAPTURES)
def test_captures_of_real_runs_are_played_to_the_end(data: Path, tmp_path: Path, capture: str) -> None:
    assert built_to_the_end(data / capture, tmp_path, CAPTURES[capture])


@HOST
def test_four_of_eight_ranks_of_a_real_job_are_played_to_the_end(real_traces: Path, tmp_path: Path, host: bool) -> None:
    assert built_to_the_end(real_traces / "dlrm_8gpu", tmp_path, 4, host)


def built_to_the_end(traces: Path, out: Path, ranks: int, host: bool = True) -> bool:
    report = build(traces, out, BuildOptions(target=ASTRA_SIM, host=host), here).report
    assert not report.all_failures
    return run_to_the_end(play_files(out, ranks), ranks)


@pytest.mark.parametrize("fault", [*CROSS_RANK_FAULTS][::3])
def test_what_ranks_disagree_on_is_mended_before_a_simulator_sees_it(tmp_path: Path, fault: str) -> None:
    wrong, ranks, _ = CROSS_RANK_FAULTS[fault]
    assert built_to_the_end(write(tmp_path / "job", wrong, ranks), tmp_path / "out", RANKS)


READ = {
    COLL: {"comm_type": "int64_val", "comm_size": "int64_val", "pg_name": "string_val"},
    SEND: {"comm_src": "int32_val", "comm_dst": "int32_val", "comm_tag": "int32_val", "comm_size": "int64_val"},
    RECV: {"comm_src": "int32_val", "comm_dst": "int32_val", "comm_tag": "int32_val", "comm_size": "int64_val"},
}


@pytest.mark.parametrize(("job", "ranks"), [("simple", 1), *((job, 2) for job in MANY_RANKS)])
def test_every_attribute_has_the_value_type_that_is_read(tmp_path: Path, job: str, ranks: int) -> None:
    graphs, _ = built(graphs_of(job, ranks))
    graphs[0].write(str(tmp_path / "graph.0.et"))
    nodes = read_nodes(tmp_path / "graph.0.et")
    assert all(node.attributes["is_cpu_op"].kind == "bool_val" for node in nodes)
    talking = [node for node in nodes if node.type in COMMUNICATION]
    assert bool(talking) == (ranks > 1)
    for node in talking:
        assert {name: node.attributes[name].kind for name in READ[node.type]} == READ[node.type]
        assert not node.attributes["is_cpu_op"].value


# what would stop the real one: two ranks that compute and then talk


class Fault(NamedTuple):
    """What `talk` adds to the kernel of each of two ranks, which generations it stops, and what the simulator says."""

    talk: Callable[[GraphBuilder, int], Any]
    generations: Iterable[Generation]
    trouble: str


def graphs_with(talk: Callable[[GraphBuilder, int], Any]) -> list[ExecutionGraph]:
    """Two ranks, each with a kernel and what is added for it, in a job with the group 1 of both."""
    graphs = []
    for rank in range(2):
        g = GraphBuilder(rank=rank, world_size=2)
        g.activity("gemm", 0, 1_000)
        found = talk(g, rank)
        graphs.append(g.build())
        if isinstance(found, Ragged):
            graphs[-1].ctrl_deps = found
    return graphs


def reduce(g: GraphBuilder, group: int = 1, **more: Any) -> int:
    told = {"comm_type": ALL_REDUCE, "comm_size": 4096, "pg_name": str(group), "after": [(1, STREAM_ORDER)], **more}
    return g.collective(1_000, 1_000, ranks=[0, 1], **told)


def swapped_order(g: GraphBuilder, rank: int) -> None:
    for group in (1, 2) if rank == 0 else (2, 1):
        reduce(g, group, stream=group)


def message(g: GraphBuilder, rank: int, **more: Any) -> int:
    told = {"comm_src": 0, "comm_dst": 1, "comm_tag": 0, "comm_size": 64}
    kind = (NodeType.COMM_SEND, NodeType.COMM_RECV)[rank]
    return g.activity("nccl:p2p", 1_000, 1_000, type=kind, **{**told, **more})


def cycle_through_control(g: GraphBuilder, rank: int) -> Ragged:
    op = g.host("op", 0, 1_000)
    g.host("child", 0, 1_000, after=[(op, PROGRAM_ORDER)])
    return Ragged.of([[], [3], []])


def metadata(on_host: bool) -> Callable[[GraphBuilder, int], None]:
    def talk(g: GraphBuilder, rank: int) -> None:
        add = g.host if on_host else g.activity
        node = add("process_group:init", 0, 0, type=NodeType.METADATA)
        g.activity("after", 0, 1_000, after=[(node, PROGRAM_ORDER)])

    return talk


def invalid(g: GraphBuilder, rank: int) -> None:
    g.activity("after", 0, 1_000, after=[(g.activity("?", 0, 0, type=NodeType.INVALID), STREAM_ORDER)])


def last_event_is_a_message(g: GraphBuilder, rank: int) -> None:
    message(g, rank, after=[(g.host("op", 0, 1_000), LAUNCH)])


FAULTS = {
    "another order of two groups": Fault(swapped_order, BOTH, "waits in group"),
    "a member that does not come": Fault(lambda g, rank: rank or reduce(g), BOTH, "waits in group 1 as its collective 1"),
    "members of two sizes": Fault(lambda g, rank: reduce(g, comm_size=4096 + rank), BOTH, "differ in type or size"),
    "members of two types": Fault(lambda g, rank: reduce(g, comm_type=(ALL_REDUCE, ALL_GATHER)[rank]), BOTH, "differ in type or size"),
    "a receive without its send": Fault(lambda g, rank: rank and message(g, rank), BOTH, "waits for 64 bytes of tag 0 from rank 0"),
    "a send without its receive": Fault(
        lambda g, rank: rank or message(g, rank), BOTH, "64 bytes of tag 0 from rank 0 to rank 1 are never received"
    ),
    "a message of two sizes": Fault(lambda g, rank: message(g, rank, comm_size=64 + rank), BOTH, "waits for 65 bytes"),
    "a message of two tags": Fault(lambda g, rank: message(g, rank, comm_tag=rank), BOTH, "of tag 1"),
    "a message to the rank itself": Fault(lambda g, rank: message(g, 0, comm_src=rank, comm_dst=rank), BOTH, "goes from"),
    "a message out of range": Fault(lambda g, rank: message(g, 0, comm_src=rank, comm_dst=7), BOTH, "to 7"),
    "a message without data": Fault(lambda g, rank: message(g, rank, comm_size=0), BOTH, "0 bytes"),
    "a message of another rank": Fault(lambda g, rank: message(g, 0), BOTH, "issued by another rank"),
    "a cycle through control": Fault(cycle_through_control, (V3,), "node 2 never became ready"),
    "a dependency given twice": Fault(lambda g, rank: reduce(g, after=[(1, LAUNCH), (1, LAUNCH)]), (V1,), "never became ready"),
    "a dependency on no node": Fault(lambda g, rank: reduce(g, after=[(9, LAUNCH)]), BOTH, ""),
    "metadata": Fault(metadata(on_host=True), (V3,), "is metadata"),
    "metadata on the device": Fault(metadata(on_host=False), BOTH, "is metadata"),
    "an invalid node with dependents": Fault(invalid, BOTH, "never became ready"),
    "a group of one": Fault(lambda g, rank: reduce(g, 3 + rank), BOTH, "group of one"),
    "a group that is not known": Fault(lambda g, rank: reduce(g, 77), BOTH, "group '77', which is not known"),
    "a group by name": Fault(lambda g, rank: reduce(g, pg_name="default_pg"), BOTH, "'default_pg'"),
    "a group without the rank": Fault(lambda g, rank: reduce(g, 3), BOTH, "whose ranks are [0]"),
    "an all-gather of nothing": Fault(lambda g, rank: reduce(g, comm_type=ALL_GATHER, comm_size=0), BOTH, "gathers nothing"),
    "an all-gather that cannot be split": Fault(lambda g, rank: reduce(g, comm_type=ALL_GATHER, comm_size=3), BOTH, "for ever"),
    "a type that does not run": Fault(lambda g, rank: reduce(g, comm_type=CollectiveType.BARRIER), BOTH, "does not run"),
    "a collective without a type": Fault(lambda g, rank: reduce(g, comm_type=ABSENT), (V3,), "has no comm_type"),
    "communication on the host": Fault(lambda g, rank: reduce(g, is_cpu_op=1), BOTH, "communicates on the host"),
    "a last event that is a message": Fault(last_event_is_a_message, (V3,), "last event"),
}  # fmt: skip
FOUR_GROUPS: dict[RankList, int] = {(0, 1): 1, (1, 0): 2, (0,): 3, (1,): 4}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_simulator_notices(tmp_path: Path, fault: str) -> None:
    planted = FAULTS[fault]
    for generation, outcome in play(tmp_path, graphs_with(planted.talk), FOUR_GROUPS).items():
        assert outcome.good == (generation not in planted.generations), outcome.trouble
        if not outcome.good:
            assert planted.trouble in outcome.trouble


def test_the_simulator_is_content_with_two_ranks_without_a_fault(tmp_path: Path) -> None:
    for talk in (lambda g, rank: reduce(g), message):
        assert run_to_the_end(play(tmp_path, graphs_with(talk), FOUR_GROUPS), 2)


def test_a_cycle_through_control_is_refused_before_a_simulator_sees_it() -> None:
    with pytest.raises(DataError, match=r"cycle: 2 \(child\) -> 1 \(op\) -> 2"):
        built(graphs_with(cycle_through_control))
