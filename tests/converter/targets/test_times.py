"""Times as ASTRA-sim takes them: overlaps once, excess time and start offsets as nodes, work for rooflines.

Gaps for simulators that know one per activity: what the host awaits ends as measured, and what-ifs are right.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.converter.convert import build_generic_graph
from execgraph.converter.options import Options
from execgraph.converter.ranks import communication_summary, matched_calls, measured_times, with_values
from execgraph.converter.rewiring import data_edges, rows_of_graph, without_host
from execgraph.converter.targets import GoalOptions, Roofline, lower_for_target, roofline_of, write_goal
from execgraph.converter.targets.times import chain_gaps, with_start_offset
from execgraph.schema.columns import ABSENT
from execgraph.schema.graph import Change, CollectiveType, ExecutionGraph, NodeType
from execgraph.tools.replay import parse_scale, replay, replay_ranks, simulate_ranks
from execgraph.tools.replay.player import simulated_ends
from support import simulator as goal_simulator
from support.builder.timeline import TraceBuilder
from support.for_simulator import ALL_REDUCE, communicating, for_astra_sim, lowered, passed, report, value
from support.generated import graphs_of
from support.graphs import EVENT_WAIT, HOST_SYNC, LAUNCH, PROGRAM_ORDER, STREAM_ORDER, GraphBuilder
from support.runs import link_run
from support.simulator import LATENCY_NS, Generation, read_files, simulate


def times(graph: ExecutionGraph) -> list[tuple[int, int]]:
    """Start in ns and length in µs of each node, in the order of starts."""
    return sorted(zip(graph.start_ns.tolist(), graph.duration_micros.tolist(), strict=True))


def simulated(graphs: list[ExecutionGraph], generation: Generation, folder: Path) -> dict[int, int]:
    """When each rank of a job finishes in the simulator, in ns."""
    for rank, graph in enumerate(graphs):
        graph.write(str(folder / f"job.{rank}.et"))
    outcome = simulate(read_files(folder / "job", len(graphs)), None, generation)
    assert outcome.good, outcome.trouble
    return outcome.finished_ns


def test_idle_time_beside_work_on_another_thread_is_cut(g: GraphBuilder) -> None:
    g.host("host idle", 0, 100_000, thread=1)
    g.host("work", 30_000, 60_000, thread=2)
    played, told = lowered(g.build())
    assert list(played.name) == ["work", "host idle"]
    assert played.duration_micros.tolist() == [60, 40]
    assert played.duration_ns.tolist() == [60_000, 100_000]
    assert (told[Change.IDLE_TIME_CUT], told.notes) == (60, [])


def test_idle_time_of_two_threads_at_once_counts_once_and_gaps_behind_work_of_another_stream_are_cut(g):
    g.host("host idle", 0, 100_000, thread=1)
    g.host("host idle", 50_000, 100_000, thread=2)
    assert for_astra_sim(g.build()).duration_micros.tolist() == [100, 50]
    g = GraphBuilder(rank=0)
    g.activity("first", 0, 80_000, stream=7)
    g.activity("second", 90_000, 5_000, stream=8, gap=50_000)
    assert for_astra_sim(g.build()).duration_micros.tolist() == [80, 15]


def test_work_of_two_threads_at_once_counts_once_for_what_ended_first(g: GraphBuilder) -> None:
    g.host("long", 0, 100_000, thread=1)
    g.host("short", 20_000, 30_000, thread=2)
    played, told = lowered(g.build())
    assert list(zip(played.name, played.duration_micros.tolist(), strict=True)) == [("short", 30), ("long", 70)]
    assert told.notes[0].startswith("30.0 µs of host work at the same time on several threads")


def test_communication_beside_other_communication_is_named_and_communication_beside_kernels_is_not(g):
    g.activity("kernel", 0, 100_000, stream=7)
    g.collective(0, 60_000, ranks=[0, 1], stream=20, comm_type=ALL_REDUCE, comm_size=4096)
    assert not [note for note in report(g.build()).notes if "communication" in note]
    g.collective(20_000, 70_000, ranks=[0, 1], stream=21, comm_type=ALL_REDUCE, comm_size=4096)
    [note] = [note for note in report(g.build()).notes if "communication" in note]
    assert note.startswith("40.0 µs of communication beside other communication counts once")


@pytest.mark.parametrize(("stream", "lasts"), [(7, [10, 14, 6]), (8, [10, 10, 10])], ids=["one stream", "two"])
def test_gaps_get_longer_where_no_other_stream_computes(g: GraphBuilder, stream: int, lasts: list[int]) -> None:
    first = g.activity("first", 0, 10_000, stream=7)
    second = g.activity(
        "second", 12_000, 8_000, stream=stream, gap=2_000, chain_gap_ns=6_000, after=[(first, EVENT_WAIT)]
    )
    g.activity("third", 26_000, 4_000, stream=stream, gap=6_000, after=[(second, STREAM_ORDER)])
    assert for_astra_sim(g.build()).duration_micros.tolist() == lasts


def test_what_ended_first_has_the_lower_id_unless_it_depends_on_the_other(g: GraphBuilder) -> None:
    long = g.activity("long", 0, 100_000, stream=7)
    g.activity("short", 10_000, 20_000, stream=8)
    g.activity("early", 5_000, 1_000, stream=9, after=[(long, EVENT_WAIT)])
    assert list(for_astra_sim(g.build()).name) == ["short", "long", "early"]


def test_idle_time_between_the_ops_of_one_thread_stays() -> None:
    for graph in graphs_of("hostbound"):
        played, told = lowered(graph)
        assert told[Change.IDLE_TIME_CUT] == 0
        runs_on_host = ~graph.is_activity & (graph.type != NodeType.METADATA)
        on_host = rows_of_graph(played, np.flatnonzero(~played.is_activity))
        assert times(on_host) == times(rows_of_graph(graph, np.flatnonzero(runs_on_host)))


def test_host_delays_behind_work_of_another_stream_are_cut(g: GraphBuilder) -> None:
    first = g.activity("first", 10_000, 80_000, stream=7, host_delay_ns=10_000)
    g.activity("later", 100_000, 5_000, stream=7, host_delay_ns=10_000, after=[(first, STREAM_ORDER)])
    g.activity("other stream", 105_000, 5_000, stream=8, host_delay_ns=105_000)
    played, told = lowered(g.build())
    assert played.duration_micros.tolist() == [90, 15, 5]
    assert (told[Change.HOST_DELAY_CUT], told.notes) == (105, [])


def test_host_delay_before_communication_becomes_computation_before_it() -> None:
    g = GraphBuilder(rank=0, world_size=2)
    gemm = g.activity("gemm", 0, 10_000, stream=7)
    told = {"comm_type": ALL_REDUCE, "comm_size": 64, "gap": 2_000, "host_delay_ns": 8_000}
    meet = g.collective(20_000, 5_000, ranks=[0, 1], stream=8, after=[(gemm, STREAM_ORDER)], **told)
    g.activity("relu", 25_000, 5_000, stream=7, after=[(gemm, STREAM_ORDER), (meet, STREAM_ORDER)])
    graph = g.build()
    played, said = lowered(graph)
    assert list(played.name) == ["gemm", "host delay", "ncclAllReduce", "relu"]
    assert [played.data_deps[row].tolist() for row in range(4)] == [[], [1], [2], [1, 3]]
    assert (played.type[1], played.duration_micros[1], value(played, "stream", 1)) == (NodeType.COMP, 8, 8)
    assert value(played, "host_delay_ns", 2) == ABSENT
    assert said[Change.DELAY_NODES] == 1
    assert replay(played).end_ns.tolist() == [10_000, 18_000, 25_000, 30_000]
    assert replay(graph).end_ns.tolist() == [10_000, 25_000, 30_000]


COLLECTIVE = 2
"""The id of the collective of `followed`."""


def followed(rank: int = 0) -> ExecutionGraph:
    """A kernel, an all-reduce of 9 µs with the other rank, and a kernel that waits for it, of 2 µs."""
    g = GraphBuilder(rank=rank, world_size=2)
    gemm = g.activity("gemm", 0, 10_000)
    together = g.collective(
        10_000, 9_000, ranks=[0, 1], comm_type=ALL_REDUCE, comm_size=64, after=[(gemm, STREAM_ORDER)]
    )
    g.activity("after", 19_000, 2_000, after=[(together, STREAM_ORDER)])
    return g.build()


def test_the_excess_stands_behind_a_collective_and_both_take_its_measured_time() -> None:
    graph = with_values(followed(), "excess_ns", {COLLECTIVE: 6_400})
    lowered = for_astra_sim(graph)
    assert list(lowered.name) == ["gemm", "ncclAllReduce", "beyond the fitted network", "after"]
    assert lowered.type.tolist() == [NodeType.COMP, NodeType.COMM_COLL, NodeType.COMM_COLL, NodeType.COMP]
    assert lowered.integers("comm_type")[2] == CollectiveType.BROADCAST
    assert lowered.texts("pg_name")[2] == lowered.texts("pg_name")[1]
    edges = data_edges(lowered)
    assert sorted(zip(edges.source.tolist(), edges.target.tolist(), strict=True)) == [(0, 1), (1, 2), (2, 3)]
    assert lowered.duration_micros.tolist() == [10, 3, 6, 2]
    assert lowered.duration_ns.tolist() == [10_000, 9_000, 0, 2_000]
    assert lowered.integers("excess_ns", 0).tolist() == [0, 0, 6_400, 0]
    assert [ends.max() for ends in simulated_ends([lowered, for_astra_sim(followed())])] == [21_000, 21_000]
    assert report(graph)[Change.EXCESS] == 6


@pytest.mark.parametrize("generation", Generation)
def test_a_simulator_runs_the_excess_after_what_its_network_gives(generation: Generation, tmp_path: Path) -> None:
    def finish(excess_ns: int) -> int:
        graphs = [with_values(followed(rank), "excess_ns", {COLLECTIVE: excess_ns}) for rank in (0, 1)]
        return simulated([for_astra_sim(graph) for graph in graphs], generation, tmp_path)[0]

    assert LATENCY_NS < finish(0) - 12_000 < 9_000
    assert finish(6_000) - finish(0) == 6_000


@pytest.mark.parametrize(
    ("kind", "excess_ns"), [(ALL_REDUCE, 499), (CollectiveType.BROADCAST, 3_000)], ids=["below half a µs", "broadcast"]
)
def test_less_than_half_a_microsecond_and_what_takes_its_measured_time_get_no_node(kind, excess_ns):
    lowered = for_astra_sim(with_values(communicating(comm_type=kind), "excess_ns", {2: excess_ns}))
    assert len(lowered) == 2
    assert not np.any(lowered.integers("excess_ns", 0))


OFFSET = 300_000


def member(rank: int, *, work: int, collective: int) -> ExecutionGraph:
    """An op launches work and a collective with the other rank, 10 µs into the recording, and ends 20 µs after that;
    another thread and another stream begin with the recording.
    """
    g, clock = GraphBuilder(rank=rank, world_size=2, clock_offset_ns=2_000), 1_000_000 * (rank + 1)
    op = g.host("op", clock, 10_000)
    g.host("loader", clock, 5_000, thread=2)
    g.activity("copy", clock - 2_000, 6_000, stream=8)
    gemm = g.activity("gemm", clock + 8_000, work, after=[(op, LAUNCH)])
    end = clock + 8_000 + work + collective
    meets = {"comm_type": CollectiveType.ALL_REDUCE, "comm_size": 4096, "ranks": [0, 1]}
    g.collective(end - collective, collective, after=[(gemm, STREAM_ORDER)], **meets)
    g.host("synchronize", end + 2_000, 20_000, after=[(op, PROGRAM_ORDER), (len(g.nodes), LAUNCH)])
    return g.build()


def late_rank(host: bool = True) -> list[ExecutionGraph]:
    """Rank 1 begins 300 µs after rank 0, which waits for it: both end 430 µs after rank 0 began."""
    graphs = [member(0, work=50_000, collective=350_000), member(1, work=80_000, collective=20_000)]
    return graphs if host else [without_host(graph) for graph in graphs]


WITH_AND_WITHOUT_HOST = pytest.mark.parametrize("host", [True, False], ids=["host", "no host"])


def offsets(graphs: list[ExecutionGraph]) -> list[int]:
    return matched_calls([communication_summary(graph) for graph in graphs]).offset_ns.tolist()


def lowered_of_start_offset(graphs: list[ExecutionGraph]) -> list[ExecutionGraph]:
    pairs = zip(graphs, offsets(graphs), strict=True)
    return [for_astra_sim(graph, start_offset_ns=offset) for graph, offset in pairs]


@WITH_AND_WITHOUT_HOST
def test_everything_of_the_rank_comes_after_the_offset_which_starts_with_it_on_the_clock_of_its_node(host):
    """The device's clock is 2 µs behind; without the host the rank begins with the copy, which starts at once."""
    offset = passed(with_start_offset, late_rank(host)[1], OFFSET)[0]
    assert offset.integers("start_time_ns")[0] == 2_000_000 - (0 if host else 2_000)
    first, late = lowered_of_start_offset(late_rank(host))
    assert "start offset" not in first.name.table
    assert (late.name[0], late.id[0], late.duration_micros[0]) == ("start offset", 1, OFFSET // 1000)
    assert (late.integers("start_offset_ns")[0], late.duration_ns[0]) == (OFFSET, 0)
    assert (late.integers("is_cpu_op")[0] == 1) == host
    assert set(range(1, len(late))) - set(data_edges(late).target.tolist()) == set()
    assert (simulated_ends([late])[0] >= OFFSET).all()


@WITH_AND_WITHOUT_HOST
def test_a_late_rank_begins_later_on_the_clock_of_the_collectives_once_in_replays_and_in_the_simulator(host):
    graphs = late_rank(host)
    assert offsets(graphs) == [0, OFFSET]
    delayed = lowered_of_start_offset(graphs)
    plain, replayed = replay_ranks(graphs), replay_ranks(delayed)
    assert plain.makespan_ns == plain.measured_ns == OFFSET + 130_000
    assert (replayed.makespan_ns, replayed.measured_ns) == (plain.makespan_ns, plain.measured_ns)
    found = simulate_ranks(delayed)
    assert [(rank.start_offset_us, rank.measured_us) for rank in found.ranks.values()] == [(0, 430), (300, 430)]
    assert abs(found.worst_error_pct) < 1


@pytest.mark.parametrize("generation", Generation)
def test_both_generations_run_the_job_with_its_offset(generation: Generation, tmp_path: Path) -> None:
    finished = simulated(lowered_of_start_offset(late_rank()), generation, tmp_path)
    assert all(finish >= OFFSET + 100_000 for finish in finished.values())


@pytest.mark.parametrize(("offset_ns", "nodes", "us"), [(499, 0, 0), (500, 1, 1), (1_499, 1, 1)])
def test_less_than_half_a_microsecond_is_no_node_and_half_of_one_a_whole_one(offset_ns, nodes, us):
    plain, made = (for_astra_sim(late_rank()[0], start_offset_ns=ns) for ns in (0, offset_ns))
    assert (len(made) - len(plain), made.name[0] == "start offset") == (nodes, nodes > 0)
    assert not us or made.duration_micros[0] == us


def test_all_that_depends_on_nothing_follows_the_offset(g: GraphBuilder) -> None:
    op = g.host("op", 10, 5)
    g.host("next", 15, 5, after=[(op, PROGRAM_ORDER)])
    g.host("loader", 0, 5, thread=2)
    edges = data_edges(passed(with_start_offset, g.build(), OFFSET)[0])
    assert set(zip(edges.source.tolist(), edges.target.tolist(), strict=True)) == {(0, 1), (0, 3), (1, 2)}


NAME = "after the last messages"


def job(on_host: bool = True, awaited: bool = False) -> list[ExecutionGraph]:
    """A send from rank 0 to rank 1, with which both end."""
    graphs, ends = [], {"comm_src": 0, "comm_dst": 1, "comm_tag": 0, "comm_size": 64}
    for rank, kind in enumerate((NodeType.COMM_SEND, NodeType.COMM_RECV)):
        g = GraphBuilder(rank=rank, world_size=2)
        before = [(g.host("op", 0, 5_000), LAUNCH)] if on_host else []
        message = g.activity("message", 5_000, 9_000, type=kind, after=before, **ends)
        if awaited:
            g.activity("kernel", 14_000, 5_000, after=[(message, LAUNCH)])
        graphs.append(for_astra_sim(g.build()))
    return graphs


@pytest.mark.parametrize("generation", Generation)
def test_a_job_that_ends_with_a_message_runs_to_its_end(generation: Generation, tmp_path: Path) -> None:
    assert len(simulated(job(), generation, tmp_path)) == 2


def test_the_node_has_a_microsecond_for_the_simulator_and_no_measured_length() -> None:
    graph = job()[0]
    assert (graph.name[2], graph.duration_micros[2], graph.duration_ns[2]) == (NAME, 1, 0)
    assert measured_times(graph).start_ns[2] == 14_000
    assert graph.data_deps[2].tolist() == [graph.id[1]]


@pytest.mark.parametrize(("on_host", "awaited"), [(False, False), (True, True)])
def test_there_is_none_without_a_host_or_where_something_awaits_the_messages(on_host: bool, awaited: bool) -> None:
    assert NAME not in [name for graph in job(on_host, awaited) for name in graph.name]


V100 = Roofline(15.7, 900.0)


def lasts_ns(graph: ExecutionGraph, peaks: Roofline) -> dict[str, int]:
    """By name: operations over what the device does at most at so many operations per byte, in whole ns, as the
    simulator reckons.
    """
    operations, moved = (graph.integers(name).astype(float) for name in ("num_ops", "tensor_size"))
    most = np.minimum(peaks.memory_gb_s * 1e9 * (operations / moved), peaks.tflops * 1e12)
    times = (operations / most * 1e9).astype(np.int64).tolist()
    return {graph.name[row]: times[row] for row in range(len(graph)) if graph.type[row] == NodeType.COMP}


def chain(**work: int) -> ExecutionGraph:
    """On one stream a first kernel, one of unknown work, and after a host delay and a gap one of this work, if any."""
    g = GraphBuilder(rank=0)
    first = g.activity("first", 0, 5_000)
    unknown = g.activity("unknown", 5_000, 40_000, after=[(first, STREAM_ORDER)])
    g.activity("known", 75_000, 6_000, gap=10_000, host_delay_ns=20_000, after=[(unknown, STREAM_ORDER)], **work)
    return g.build()


def played(graph: ExecutionGraph, peaks: Roofline | None) -> ExecutionGraph:
    return lower_for_target(graph, "astra-sim", roofline=peaks)


def test_known_work_takes_its_time_at_the_peak_and_all_else_its_measured_time() -> None:
    """Waiting stands between a kernel and all that it follows."""
    compute = played(chain(num_ops=31_400_000_000, tensor_size=900), V100)
    assert lasts_ns(compute, V100) == {"first": 5_000, "unknown": 40_000, "host delay": 30_000, "known": 2_000_000}
    memory = played(chain(num_ops=1, tensor_size=1_800_000), V100)
    assert lasts_ns(memory, V100)["known"] == 2_000
    assert list(memory.name) == ["first", "unknown", "host delay", "known"]
    assert [memory.data_deps[row].tolist() for row in range(4)] == [[], [1], [2], [3]]
    assert memory.integers("gap_ns", 0).tolist() == [0] * 4
    assert memory.duration_micros.tolist() == [5, 40, 30, 6]


@pytest.mark.parametrize("faster", [V100._replace(tflops=1e3), V100._replace(memory_gb_s=1e4)])
def test_what_is_not_known_gets_faster_with_neither_peak_alone(faster: Roofline) -> None:
    assert lasts_ns(played(chain(), V100), faster) == {"first": 5_000, "unknown": 40_000, "known": 36_000}


@pytest.mark.parametrize(("peaks", "said"), [(V100, "take their measured time"), (None, "only with AstraSimOptions")])
def test_what_is_not_known_is_counted_and_has_no_work_without_peaks(peaks: Roofline | None, said: str) -> None:
    graph = played(chain(num_ops=1, tensor_size=1), peaks)
    assert graph.changes is not None and graph.changes.counts["without work"] == 2
    assert any("2 computations" in note and said in note for note in graph.changes.notes)
    assert peaks or graph.integers("num_ops", -1).tolist() == [-1, -1, 1]


def test_nothing_that_begins_a_rank_lasts_0_ns(g: GraphBuilder) -> None:
    g.activity("of unknown work", 0, 0)
    g.activity("of little work", 0, 0, num_ops=1, tensor_size=1)
    assert min(lasts_ns(played(g.build(), V100), V100).values()) > 0


def test_delays_keep_their_time(t: TraceBuilder) -> None:
    with t.op("mine::op"):
        t.launch("kernel", duration=20)
        t.work(3_000)
        t.launch("late", duration=20)
    graph = lower_for_target(
        build_generic_graph(link_run(t), Options(target="astra-sim", host=False)), "astra-sim", roofline=V100
    )
    assert sum(lasts_ns(graph, V100).values()) == graph.duration_micros.sum() * 1000
    assert graph.duration_micros.sum() > 3_000


@pytest.mark.parametrize(
    ("text", "peaks"), [("V100:fp32", (15.7, 900)), ("NVIDIA A100-SXM4-80GB:tf32", (156, 2039)), ("1.5:20", (1.5, 20))]
)
def test_peaks_by_device_and_format_or_as_numbers(text: str, peaks: Any) -> None:
    assert roofline_of(text) == peaks


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("V100", "is not DEVICE:FORMAT"),
        ("toaster:fp32", "is not DEVICE:FORMAT of a device whose peaks are known; TFLOPS:GB/S says them"),
        ("V100:fp8", "the peaks of V100 that are known are of fp64, fp32, fp16, int8"),
        ("V100:memory", "are of fp64"),
        ("0:900", "is not DEVICE:FORMAT"),
        ("1:-900", "is not DEVICE:FORMAT"),
    ],
)
def test_other_peaks_are_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        roofline_of(text)


KERNEL = 4_000
KERNELS = 4


def run(host: int, latency: int, chain: int) -> ExecutionGraph:
    """Four launches, each after as long on the host, their kernels one after the other, and a wait for the last one."""
    g, op, kernel, ended = GraphBuilder(rank=0), 0, 0, 0
    for number in range(KERNELS):
        op = g.host("launch", number * host, host, after=[(op, PROGRAM_ORDER)] if op else [])
        launched = (number + 1) * host
        start = max(launched + latency, ended + chain if kernel else 0)
        after = [(op, LAUNCH), *([(kernel, STREAM_ORDER)] if kernel else [])]
        gap = start - max(launched, ended)
        kernel = g.activity("kernel", start, KERNEL, gap=gap, latency_ns=latency, chain_gap_ns=chain, after=after)
        ended = start + KERNEL
    g.host("wait", ended, 1_000, after=[(op, PROGRAM_ORDER), (kernel, HOST_SYNC)])
    return g.build()


def gaps(graph: ExecutionGraph, **options: Any) -> tuple[list[int], list[int]]:
    """The gaps of the kernels, and by how much these run earlier."""
    changed, rows = chain_gaps(graph, data_edges(graph), **options), graph.is_activity
    assert not any(column[~rows].any() for column in changed)
    return changed[0][rows].tolist(), changed[1][rows].tolist()


@pytest.mark.parametrize(
    ("graph", "gap", "earlier"),
    [
        (run(host=10_000, latency=5_000, chain=1_000), [1_000, 1_000, 1_000, 5_000], [4_000, 4_000, 4_000, 0]),
        (run(host=1_000, latency=5_000, chain=1_000), [1_000, 1_000, 1_000, 5_000], [4_000, 4_000, 4_000, 0]),
        (run(host=10_000, latency=1_000, chain=5_000), [5_000, 5_000, 5_000, 1_000], [-4_000, -4_000, -4_000, 0]),
        (run(host=1_000, latency=1_000, chain=5_000), [5_000, 5_000, 5_000, 1_000], [-4_000, -4_000, -4_000, 0]),
        (run(host=10_000, latency=3_000, chain=3_000), [3_000] * 4, [0] * 4),
    ],
    ids=["just in time", "queued", "just in time, short latency", "queued, short latency", "alike"],
)
def test_kernels_have_the_gap_of_a_chain_and_the_awaited_one_ends_as_measured(graph, gap, earlier):
    assert gaps(graph) == (gap, earlier)


def test_gaps_get_no_longer_where_that_is_not_wanted_and_stay_where_graphs_do_not_tell_them_apart() -> None:
    assert gaps(run(host=10_000, latency=1_000, chain=5_000), lengthen=False) == ([1_000] * 4, [0] * 4)
    shorter = run(host=10_000, latency=5_000, chain=1_000)
    assert gaps(shorter, lengthen=False) == gaps(shorter)
    del shorter.attributes["chain_gap_ns"]
    assert gaps(shorter) == ([5_000] * 4, [0] * 4)


def test_communication_delays_and_first_and_last_activities_are_not_moved(g: GraphBuilder) -> None:
    first = g.activity("first", 7_000, 1_000, gap=7_000, chain_gap_ns=1_000)
    launch = g.host("launch", 0, 10_000)
    late = {"gap": 5_000, "chain_gap_ns": 1_000}
    before = g.activity("before", 15_000, 1_000, **late, after=[(launch, LAUNCH), (first, STREAM_ORDER)])
    meet = g.collective(17_000, 1_000, ranks=[0, 1], gap=1_000, after=[(before, STREAM_ORDER)])
    behind = g.activity("behind", 19_000, 1_000, gap=1_000, after=[(meet, STREAM_ORDER)])
    delay = g.delay(20_000, 2_000, after=[(behind, STREAM_ORDER)])
    g.activity(
        "last", 23_000, 1_000, gap=1_000, chain_gap_ns=400, after=[(behind, STREAM_ORDER), (delay, STREAM_ORDER)]
    )
    gap, earlier = chain_gaps(g.build(), data_edges(g.build()))
    assert gap.tolist() == [7_000, 0, 1_000, 5_000, 1_000, 0, 1_000]
    assert earlier.tolist() == [0, 0, 4_000, 0, 0, 0, 0]


def test_no_gap_falls_below_0(g: GraphBuilder) -> None:
    launch = g.host("launch", 0, 10_000)
    first = g.activity("first", 11_000, 4_000, gap=1_000, chain_gap_ns=9_000, after=[(launch, LAUNCH)])
    second = g.activity("second", 15_000, 4_000, after=[(first, STREAM_ORDER)])
    g.host("wait", 19_000, 1_000, after=[(launch, PROGRAM_ORDER), (second, HOST_SYNC)])
    gap, earlier = chain_gaps(g.build(), data_edges(g.build()))
    assert gap.tolist() == [0, 9_000, 0, 0]
    assert earlier.tolist() == [0, -8_000, -8_000, -8_000]


@pytest.mark.parametrize(("latency", "chain"), [(5_000, 1_000), (1_000, 5_000)], ids=["long latency", "long gap"])
@pytest.mark.parametrize(("host", "changed"), [(10_000, 1_000), (1_000, 10_000)], ids=["to a queue", "to just in time"])
def test_what_ifs_are_right_where_something_else_releases_the_kernels(host, changed, latency, chain, tmp_path):
    graph, path = run(host, latency, chain), tmp_path / "job.goal"
    for factor in (1.0, changed / host):
        truth = run(int(host * factor), latency, chain)
        end = int((truth.start_ns + truth.duration_ns).max())
        replayed = replay_ranks([graph], [parse_scale(f"launch={factor}")])
        assert [replayed.makespan_ns, astra_sim_end(graph, factor), goal_end(graph, factor, path)] == [end] * 3


def astra_sim_end(graph: ExecutionGraph, factor: float) -> int:
    played = for_astra_sim(graph)
    launches = played.name.where("launch".__eq__)
    played.duration_micros = np.where(launches, played.duration_micros * factor, played.duration_micros).astype(int)
    return int(simulated_ends([played])[0].max())


def goal_end(graph: ExecutionGraph, factor: float, path: Path) -> int:
    write_goal(str(path), 1, lambda _: graph, GoalOptions(simulator="atlahs"))
    ranks = goal_simulator.parse(path.read_text())
    for op in ranks[0][:-1]:
        if op.cpu == 0:
            op.amount = int(op.amount * factor)
    (end,) = goal_simulator.run(ranks)
    return end
