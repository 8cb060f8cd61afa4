"""Players with rules: full devices, and one node of a kind at a time as in ASTRA-sim.

Jobs in ASTRA-sim's simulated mode, beside what a small simulator makes of the files; rings, direct exchanges.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.converter.ranks import GIB, Link, Network
from execgraph.converter.rewiring import without_host
from execgraph.schema.comm_groups import write_groups
from execgraph.schema.errors import DataError
from execgraph.schema.graph import CollectiveType, Delay, ExecutionGraph, NodeType
from execgraph.tools.job import AstraSimOptions, write_astra_sim_files
from execgraph.tools.replay import configuration_of, describe_simulated, simulate_ranks
from execgraph.tools.replay.player import simulated_ends
from execgraph.tools.replay.simulator import Configuration, direct_ends, read_configuration, ring_ends
from hypothesis import given, strategies as st
from support.for_simulator import for_astra_sim
from support.generated import graphs_of
from support.graphs import LAUNCH, STREAM_ORDER, GraphBuilder
from support.runs import path_ns, scaled
from support.simulator import Generation, read_files, simulate


def on_streams(count: int, **metadata: int) -> ExecutionGraph:
    """Kernels of 10 ns, one on each stream, launched at once."""
    g = GraphBuilder(**metadata)
    op = g.host("op", 0, 5)
    for stream in range(count):
        g.activity(f"kernel {stream}", 5, 10, stream=stream, after=[(op, LAUNCH)])
    return g.build()


@pytest.mark.parametrize(("limit", "makespan"), [(1, 85), (2, 45), (3, 45), (4, 25), (9, 25)])
def test_a_device_with_a_concurrency_limit_runs_no_more_at_once(limit: int, makespan: int) -> None:
    assert scaled(on_streams(4, concurrency_limit_of_device_0=limit), "kernel=2").makespan_ns == makespan
    assert scaled(on_streams(4, concurrency_limit_of_device_1=limit), "kernel=2").makespan_ns == 25


def test_what_is_ready_first_gets_the_slot_first_and_the_path_leads_through_it() -> None:
    replayed = scaled(on_streams(3, concurrency_limit_of_device_0=1), "kernel 1=5")
    assert replayed.start_ns.tolist() == [0, 5, 15, 65]
    assert path_ns(replayed) == {"computation": 70, "host": 5}


def test_communication_takes_no_slot() -> None:
    g = GraphBuilder(concurrency_limit_of_device_0=1)
    op = g.host("op", 0, 5)
    g.activity("kernel", 5, 10, stream=7, after=[(op, LAUNCH)])
    g.collective(5, 10, ranks=[0], stream=8, after=[(op, LAUNCH)])
    assert scaled(g.build(), "kernel=2").makespan_ns == 25


def one_after_the_other() -> ExecutionGraph:
    """Two kernels of 10 ns, ready at once, on a device that has one slot."""
    g = GraphBuilder(concurrency_limit_of_device_0=1)
    op = g.host("op", 0, 5)
    g.activity("first", 5, 10, stream=7, after=[(op, LAUNCH)])
    delay = g.delay(5, 10, Delay.CONTENTION, after=[(op, LAUNCH)])
    g.activity("second", 15, 10, stream=8, after=[(op, LAUNCH), (delay, LAUNCH)])
    return g.build()


@pytest.mark.parametrize(("factor", "makespan"), [("1", 25), ("0.2", 17), ("3", 45)])
def test_what_waited_for_a_slot_waits_as_measured_or_for_that_in_a_changed_run(factor: str, makespan: int) -> None:
    assert scaled(one_after_the_other(), f"first={factor}").makespan_ns == makespan


def played(g: GraphBuilder) -> ExecutionGraph:
    return for_astra_sim(g.build())


def test_one_node_of_a_kind_runs_at_a_time_and_the_lowest_id_goes_first(g: GraphBuilder) -> None:
    op = g.host("op", 0, 10_000)
    g.host("other thread", 10_000, 10_000, thread=2)
    g.activity("kernel", 10_000, 20_000, stream=7, after=[(op, LAUNCH)])
    g.activity("other stream", 30_000, 20_000, stream=8, after=[(op, LAUNCH)])
    ends = simulated_ends([played(g)])[0] // 1000
    assert ends.tolist() == [10, 20, 30, 50]


def test_receives_run_beside_all_other_communication() -> None:
    g = GraphBuilder(rank=0, world_size=2)
    for stream, kind in enumerate((NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_RECV, NodeType.COMM_SEND)):
        peers = {"comm_src": 0, "comm_dst": 1} if kind == NodeType.COMM_SEND else {"comm_src": 1, "comm_dst": 0}
        g.activity(f"nccl {stream}", stream, 20_000, type=kind, stream=stream, comm_size=64, comm_tag=stream, **peers)
    graph = g.build()
    graph.attributes["is_cpu_op"], graph.duration_micros[:] = np.zeros(len(graph), np.int64), 20
    assert (simulated_ends([graph])[0] // 1000).tolist() == [20, 20, 20, 40]


@pytest.mark.parametrize("host", [True, False], ids=["host", "no host"])
@pytest.mark.parametrize("job", ["ddp", "pipeline", "moe", "halo", "streams"])
def test_generated_jobs_take_their_measured_time(job: str, host: bool) -> None:
    for graph in graphs_of(job):
        found = simulate_ranks([for_astra_sim(graph if host else without_host(graph))])
        assert abs(found.worst_error_pct) <= 0.5


def test_the_rules_are_those_of_the_simulator(tmp_path: Path) -> None:
    """Without communication, whose time replay mode takes from the file."""
    for number, graph in enumerate(graphs_of("streams")):
        made = for_astra_sim(graph)
        made.write(str(tmp_path / f"{number}.0.et"))
        outcome = simulate(read_files(tmp_path / str(number), 1), None, Generation.V1)
        assert outcome.finished_ns == {0: simulated_ends([made])[0].max()}


def test_each_rank_is_told_beside_its_measured_time_and_graphs_for_others_are_refused() -> None:
    g = GraphBuilder(rank=3)
    first = g.activity("kernel", 0, 10_000, stream=7)
    g.activity("late", 20_000, 10_000, stream=7, after=[(first, STREAM_ORDER)])
    found = simulate_ranks([played(g)])
    assert found.ranks["3"].measured_us == 30
    assert found.ranks["3"].finish_us == 20
    assert found.worst_error_pct == pytest.approx(-100 / 3)
    assert "rank 3" in describe_simulated(found)
    assert "-33.33 %" in describe_simulated(found)
    with pytest.raises(DataError, match="not for astra-sim; build the job"):
        simulate_ranks([g.build()])


TIMES = st.integers(0, 1_000_000)


def message_by_message(arrival: list[int], hop_ns: list[int], steps: int) -> list[int]:
    """Each member sends when it came and whenever it received; it receives when it has sent."""
    ready = arrival
    for _ in range(steps):
        ready = [max(ready[member], ready[member - 1] + hop_ns[member - 1]) for member in range(len(ready))]
    return ready


@given(st.data(), st.integers(2, 9), st.integers(0, 30))
def test_a_ring_ends_as_if_each_message_were_sent(data: st.DataObject, count: int, more_steps: int) -> None:
    arrival, hops = (data.draw(st.lists(TIMES, min_size=count, max_size=count)) for _ in range(2))
    steps = count - 1 + more_steps
    found = ring_ends(np.array([arrival]), np.array([hops]), steps)
    assert found.tolist() == [message_by_message(arrival, hops, steps)]


def test_direct_messages_come_from_the_last_of_the_others() -> None:
    took = np.full((3, 3), 50)
    assert direct_ends(np.array([0, 10, 900]), took).tolist() == [950, 950, 900]


ALL_REDUCE, ALL_TO_ALL = CollectiveType.ALL_REDUCE, CollectiveType.ALL_TO_ALL
BYTES = GIB // 1000
"""Take 10 µs at 100 GB/s of 2**30 bytes, nearly."""


def rank_of(number: int, work_us: int, *calls: dict[str, Any]) -> ExecutionGraph:
    """A computation, then communication, one after the other on a stream."""
    g = GraphBuilder(rank=number, target="astra-sim")
    before = g.activity("gemm", 0, work_us * 1000)
    for call in calls:
        before = g.activity("nccl", work_us * 1000, 70_000, after=[(before, STREAM_ORDER)], **call)
    return g.build()


def configured(folder: Path, ranks: int, latency_ns: float = 1000.0, **more: Any) -> Path:
    write_astra_sim_files(folder, ranks, Network(100.0, latency_ns), AstraSimOptions(**more))
    return folder


def all_reduce(**more: Any) -> dict[str, Any]:
    return {"type": NodeType.COMM_COLL, "comm_type": ALL_REDUCE, "comm_size": 2 * BYTES, **more}


def one_late() -> list[ExecutionGraph]:
    return [rank_of(0, 100, all_reduce()), rank_of(1, 500, all_reduce())]


def finishes(graphs: list[ExecutionGraph], folder: Path) -> list[float]:
    return [rank.finish_us for rank in simulate_ranks(graphs, read_configuration(folder)).ranks.values()]


def test_members_of_the_groups_of_their_file_wait_for_each_other_and_take_the_networks_time(tmp_path: Path) -> None:
    # two steps of 2 µs and 10 µs; the late rank's first message is all that the other one waits for
    assert finishes(one_late(), configured(tmp_path, 2)) == pytest.approx([512, 524], abs=0.1)
    write_groups(str(tmp_path / "comm_groups.json"), {(0, 2): 1, (1, 3): 2})
    graphs = [rank_of(number, 100 + number, all_reduce(pg_name=str(1 + number % 2))) for number in range(4)]
    ends = finishes(graphs, configured(tmp_path, 4))
    assert ends == pytest.approx([124, 125, 126, 127], abs=0.1)


@pytest.mark.parametrize(("receiver_us", "ends"), [(0, [112, 112]), (700, [112, 700])], ids=["early", "late"])
def test_a_send_does_not_wait_for_its_receive(receiver_us: int, ends: list[int], tmp_path: Path) -> None:
    message = {"comm_src": 0, "comm_dst": 1, "comm_tag": 5, "comm_size": BYTES}
    graphs = [
        rank_of(0, 100, {"type": NodeType.COMM_SEND, **message}),
        rank_of(1, receiver_us, {"type": NodeType.COMM_RECV, **message}),
    ]
    assert finishes(graphs, configured(tmp_path, 2)) == pytest.approx(ends, abs=0.1)


def test_a_send_waits_for_the_ready_message_of_its_receiver(tmp_path: Path) -> None:
    send, receive = NodeType.COMM_SEND, NodeType.COMM_RECV
    ready = {"comm_src": 1, "comm_dst": 0, "comm_tag": 6, "comm_size": 64}
    message = {"comm_src": 0, "comm_dst": 1, "comm_tag": 5, "comm_size": BYTES}
    graphs = [
        rank_of(0, 100, {"type": receive, **ready}, {"type": send, **message}),
        rank_of(1, 700, {"type": send, **ready}, {"type": receive, **message}),
    ]
    assert finishes(graphs, configured(tmp_path, 2)) == pytest.approx([714, 714], abs=0.1)


def test_what_collectives_took_beyond_the_network_is_played_as_it_is(tmp_path: Path) -> None:
    beyond = {"type": NodeType.COMM_COLL, "comm_type": CollectiveType.BROADCAST, "comm_size": 2 * BYTES}
    graphs = [rank_of(rank, 100, all_reduce(), beyond) for rank in (0, 1)]
    assert finishes(graphs, configured(tmp_path, 2)) == pytest.approx([124 + 70] * 2, abs=0.1)


def test_communication_that_lacks_a_member_is_said_to_wait(tmp_path: Path) -> None:
    configured(tmp_path, 2)
    with pytest.raises(DataError, match="communication waits for a member for ever"):
        finishes([rank_of(0, 100, all_reduce()), rank_of(1, 100)], tmp_path)


def test_with_measured_lengths_it_is_replay_mode(tmp_path: Path) -> None:
    found = simulate_ranks(one_late(), read_configuration(configured(tmp_path, 2, replay=True)))
    assert [rank.finish_us for rank in found.ranks.values()] == [170, 570]
    assert describe_simulated(found).endswith("in astra-sim's replay mode")


def test_with_peaks_computation_takes_the_time_of_its_work(tmp_path: Path) -> None:
    g = GraphBuilder(rank=0, target="astra-sim")
    product = g.activity("gemm", 0, 1_000, num_ops=30_000_000_000, tensor_size=1_000)
    g.activity("add", 1_000, 1_000, num_ops=1_000, tensor_size=50_000_000, after=[(product, STREAM_ORDER)])
    configured(tmp_path, 2, roofline="10:1000")
    found = simulate_ranks([g.build(), rank_of(1, 0)], read_configuration(tmp_path))
    assert (found.mode, found.ranks["0"].finish_us) == ("roofline", 3_050)


def test_the_network_that_was_used_is_named(tmp_path: Path) -> None:
    configured(tmp_path, 2)
    network = tmp_path / "astra-sim" / "network.yml"
    network.write_text(network.read_text().replace("bandwidth: [ 100.0 ]", "bandwidth: [ 50 ]"))
    said = describe_simulated(simulate_ranks(one_late(), read_configuration(tmp_path)))
    assert said.endswith("in astra-sim's simulated mode; network 50 GiB/s, 1000 ns a link")
    # the last rank, the network and the error are shown
    shown = repr(simulate_ranks(one_late(), read_configuration(configured(tmp_path, 2))))
    assert shown.splitlines() == [
        "astra-sim, simulated: 2 ranks",
        "  last     rank 1, after 524.0 µs",
        "  network  100 GiB/s, 1000 ns a link",
        "  error    +201.19 % at worst, against the measured run",
    ]


def test_graphs_that_are_no_whole_job_have_no_configuration(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"graph.{rank}.et") for rank in range(3)]
    assert configuration_of(paths) == (None, "there is no astra-sim/network.yml beside the graphs")
    configured(tmp_path, 3)
    assert configuration_of(paths)[0] == read_configuration(tmp_path)
    assert configuration_of(paths[:1])[0] is None
    assert configuration_of(paths[:2]) == (None, "2 graphs are not the 3 ranks of network.yml")


def test_a_rank_alone_is_played_without_the_idle_one_beside_it(tmp_path: Path) -> None:
    rank_of(0, 100).write(str(tmp_path / "graph.0.et"))
    assert finishes([rank_of(0, 100)], configured(tmp_path, 1)) == [100]
    assert configuration_of([str(tmp_path / "graph.0.et")])[0]


@pytest.mark.parametrize(("file", "old", "new"), [
    ("network.yml", "Switch", "Ring"), ("network.yml", "latency:", ""), ("system.json", '"ring"', '"direct"'),
    ("system.json", 'splits": 1', 'splits": 4'),
])  # fmt: skip
def test_what_is_not_predicted_is_refused(file: str, old: str, new: str, tmp_path: Path) -> None:
    path = configured(tmp_path, 2) / "astra-sim" / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(DataError, match="run the simulator"):
        read_configuration(tmp_path)


ONE, TWO = ((4, 100, 500),), ((4, 100, 500), (2, 10, 3000))
"""Networks: ranks, GB/s and ns a link by dimension."""
REDUCE_SCATTER, ALL_GATHER = CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_GATHER
SIMULATED = [
    (ONE, ALL_REDUCE, range(4), 240_748), (ONE, ALL_GATHER, range(4), 471_754),
    (ONE, REDUCE_SCATTER, range(4), 120_559), (ONE, ALL_TO_ALL, range(4), 40_064),
    (TWO, ALL_REDUCE, range(8), 643_436), (TWO, ALL_GATHER, range(8), 2_509_006),
    (TWO, REDUCE_SCATTER, range(8), 321_933), (TWO, ALL_TO_ALL, range(8), 827_316),
    (TWO, ALL_REDUCE, range(4, 8), 240_811), (TWO, ALL_TO_ALL, range(4, 8), 240_442),
    (TWO, ALL_REDUCE, range(1, 8, 4), 1_574_779), (TWO, ALL_TO_ALL, range(1, 8, 4), 787_270),
]  # fmt: skip
"""ns that ASTRA-sim takes for 16 MB of these ranks, in the generations of 2025-08 and 2026-03."""


@pytest.mark.parametrize(("network", "kind", "members", "ns"), SIMULATED)
def test_collectives_take_the_simulators_own_time(network, kind, members, ns):
    links = tuple(Link(ranks, gib_s, latency) for ranks, gib_s, latency in network)
    algorithms = {int(kind): ["direct" if kind == ALL_TO_ALL else "ring"] * len(links)}
    simulated = Configuration(links, (2,) * len(links), algorithms, 100_000.0, {}, False, None)
    ends = simulated.collective_ends(kind, np.array(members), 16 << 20, np.zeros(len(members), np.int64))
    assert ends.tolist() == pytest.approx([ns] * len(members), rel=0.0005)


def test_a_scaled_job_was_never_measured() -> None:
    g = GraphBuilder(rank=0, target="astra-sim", ranks_of_group_0="0-7")
    g.activity("gemm", 0, 5_000)
    result = simulate_ranks([g.build()])
    assert describe_simulated(result).splitlines() == [
        "rank 0                    5.0 µs simulated",
        "rank 0 is the last; no rank was measured, in astra-sim's replay mode",
    ]
