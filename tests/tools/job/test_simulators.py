"""What a build for a simulator writes beside the graphs, ready to start: for ASTRA-sim a folder, for GOAL one file.

What is said of the network in the simulator's configuration: its figures, and how well they describe the job. How long
collectives took from the last arrival on, and what of that is more than the network gives.
"""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from execgraph.converter.ranks import GIB, MOST_BANDWIDTH, Link, Network, TwoDimensions
from execgraph.converter.targets import LEAST_BYTES, GoalReport, MessageNetwork, lower_for_target
from execgraph.schema.errors import DataError
from execgraph.schema.graph import CollectiveType, ExecutionGraph, NodeType
from execgraph.tools.generate import PRESETS, build_job, simulate, write_traces
from execgraph.tools.job import AstraSimOptions, network_text, poor_fit, poor_goal_fit, write_astra_sim_files
from execgraph.tools.job.job_plan import complete_transfers, excess_times, look_up, plan_job
from execgraph.tools.replay import configuration_of, simulate_ranks
from support.commands import status_of
from support.for_simulator import ACROSS, RANKS, WITHIN, Issued, communicating, matched_job, two_networks
from support.graphs import GraphBuilder, read_nodes, training_step
from support.simulator import Generation, Waits, others, parse, read_files, run, simulate as simulate_files, troubles

pytestmark = pytest.mark.usefixtures("in_this_process")

WORK = (("num_ops", "int64_val"), ("tensor_size", "uint64_val"))


Said = pytest.CaptureFixture[str]


def built(tmp_path, capsys, more="", job="ddp", ranks=2, status=0):
    """The output folder, and what was said."""
    folder, out = tmp_path / "traces", tmp_path / "graphs"
    if not folder.exists():
        write_traces(simulate(build_job(job, ranks=ranks, steps=1, layers=2, seed=1)), folder)
    arguments = f"--target astra-sim --jobs 1 {more}".split()
    assert status_of("trace-build", "--input-dir", folder, "--output-dir", out, *arguments) == status
    return out, capsys.readouterr().err


def configuration(said: str) -> dict[str, str]:
    """What the printed command gives the simulator."""
    _, *options = shlex.split(next(line for line in said.splitlines() if line.startswith("simulate")).split(None, 1)[1])
    return dict(option.removeprefix("--").split("-configuration=") for option in options)


def test_the_command_that_is_printed_names_files_that_are_there(tmp_path: Path, capsys: Said) -> None:
    out, said = built(tmp_path, capsys)
    given = configuration(said)
    assert given.pop("workload") == str(out / "graph")
    assert set(given) == {"system", "network", "remote-memory", "comm-group"}
    assert all(Path(path).is_file() for path in given.values())
    assert "npus_count: [ 2 ]" in Path(given["network"]).read_text()
    assert json.loads(Path(given["system"]).read_text())["replay-only"] == 0


def test_the_network_is_what_the_measured_collectives_fit(tmp_path: Path, capsys: Said) -> None:
    out, said = built(tmp_path, capsys)
    fitted = re.search(r"network +(\S+) GiB/s, (\S+) ns a link, fitted to (\d+) collectives and messages", said)
    assert fitted
    text = (out / "astra-sim" / "network.yml").read_text()
    assert [float(found) for found in re.findall(r": \[ ([\d.]+) \]  #", text)] == [float(fitted[1]), float(fitted[2])]


def test_what_is_given_stands_and_is_what_a_build_that_is_up_to_date_prints(tmp_path: Path, capsys: Said) -> None:
    out, first = built(tmp_path, capsys)
    fitted = re.search(r"network +\S+ GiB/s, (\S+) ns a link", first)
    _, again = built(tmp_path, capsys, "--bandwidth 12.5")
    assert fitted and f"12.5 GiB/s, {fitted[1]} ns a link; the bandwidth as given" in again
    _, replayed = built(tmp_path, capsys, "--bandwidth 12.5 --replay")
    assert "network     not used" in replayed
    assert "bandwidth: [ 12.5 ]" in (out / "astra-sim" / "network.yml").read_text()
    assert json.loads((out / "astra-sim" / "system.json").read_text())["replay-only"] == 1


def test_a_collective_has_one_id_on_all_its_ranks_as_custom_algorithms_of_single_ones_are_found_by_it(tmp_path, capsys):
    out, _ = built(tmp_path, capsys, job="pipeline_dp", ranks=4)
    graphs = (ExecutionGraph.read(out / f"graph.{rank}.et") for rank in range(4))
    ids = [graph.id[graph.integers("comm_type", -1) == CollectiveType.ALL_REDUCE].tolist() for graph in graphs]
    assert ids[0] == ids[2] and ids[1] == ids[3] and set(ids[0]).isdisjoint(ids[1])
    assert sorted(ids[0] + ids[1]) == [10_000 * (number + 1) for number in range(2 * len(ids[0]))]


def test_without_communication_the_network_is_the_default_one(tmp_path: Path) -> None:
    write_astra_sim_files(tmp_path, 3, None, AstraSimOptions(latency_ns=7.0))
    text = (tmp_path / "astra-sim" / "network.yml").read_text()
    assert "bandwidth: [ 100.0 ]" in text
    assert "latency: [ 7.0 ]" in text


def test_links_within_nodes_and_across_them_are_two_dimensions(tmp_path: Path, capsys: Said) -> None:
    write_traces(simulate(two_networks()), tmp_path / "traces")
    out, said = built(tmp_path, capsys)
    fitted = re.search(
        r"(\S+) GiB/s, (\S+) ns a link within nodes of 4 ranks, (\S+) GiB/s, (\S+) ns a link across 2", said
    )
    assert fitted
    found = [float(figure) for figure in fitted.groups()]
    assert found == pytest.approx([WITHIN[1], WITHIN[0], ACROSS[1], ACROSS[0]], rel=0.001)
    text = (out / "astra-sim" / "network.yml").read_text()
    assert "topology: [ Switch, Switch ]\nnpus_count: [ 4, 2 ]\n" in text
    assert json.loads((out / "astra-sim" / "system.json").read_text())["all-reduce-implementation"] == ["ring", "ring"]
    paths = [str(out / f"graph.{rank}.et") for rank in range(RANKS)]
    found_ranks = simulate_ranks([ExecutionGraph.read(path) for path in paths], configuration_of(paths)[0])
    assert (found_ranks.mode, len(found_ranks.network)) == ("simulated", 2)
    assert abs(found_ranks.worst_error_pct) < 1


LATE_US = 700.0


def late_rank(process: Any) -> Iterator[None]:
    """Rank 1 does something else before the first recorded op, and both save something after the last kernel."""
    process.main.work(LATE_US * process.rank)
    yield from PRESETS["ddp"].program(process)
    process.main.leaf("save", us=200.0)


@pytest.fixture
def late_job(tmp_path: Path) -> int:
    """Writes the traces of a job whose rank 1 begins to record later; returns when the job ended (ns)."""
    presets = {"late": PRESETS["ddp"]._replace(program=late_rank)}
    run = simulate(build_job("late", presets=presets, ranks=2, steps=1, layers=2, seed=1))
    write_traces(run, tmp_path / "traces")
    return run.makespan_ns


@pytest.mark.parametrize("host", ["", "--no-host"], ids=["host", "no host"])
def test_a_job_whose_ranks_began_at_different_times_ends_when_it_did(host, late_job, tmp_path, capsys):
    out, said = built(tmp_path, capsys, host)
    (offset,) = re.findall(r"^offset +rank 1 (\S+) µs later than the first rank", said, re.MULTILINE)
    assert float(offset) == pytest.approx(LATE_US, rel=0.2)
    assert ("after the last activity kept" in said) == bool(host)
    ranks = json.loads((out / "report.json").read_text())["ranks"]
    assert "start offset, µs" not in ranks[0].get("target", {})
    assert ranks[1]["target"]["start offset, µs"] == pytest.approx(float(offset), abs=0.1)
    files = read_files(out / "graph", 2)
    finished = simulate_files(files, out / "comm_groups.json", Generation.V3).finished_ns
    found = simulate_ranks([ExecutionGraph.read(str(out / f"graph.{rank}.et")) for rank in (0, 1)])
    assert max(rank.measured_us for rank in found.ranks.values()) == pytest.approx(late_job / 1000, abs=10)
    assert abs(found.worst_error_pct) < 0.5
    assert max(finished.values()) > LATE_US * 1000


def test_start_offsets_can_be_left_out(late_job: int, tmp_path: Path, capsys: Said) -> None:
    out, said = built(tmp_path, capsys, "--no-start-offsets")
    assert "later than the first rank" not in said
    assert "start offset" not in {node.name for node in read_nodes(out / "graph.1.et")}


@pytest.mark.parametrize("generation", Generation)
def test_a_rank_alone_runs_beside_one_that_has_no_work(generation: Generation, tmp_path: Path, capsys: Said) -> None:
    out, said = built(tmp_path, capsys, job="simple", ranks=1)
    given = configuration(said)
    assert Path(given["workload"] + ".0.et").read_bytes() == (out / "graph.0.et").read_bytes()
    assert not (out / "graph.1.et").exists()
    assert "npus_count: [ 2 ]" in Path(given["network"]).read_text()
    outcome = simulate_files(read_files(Path(given["workload"]), 2), Path(given["comm-group"]), generation)
    assert outcome.good and outcome.finished_ns[1] == 1_000 < outcome.finished_ns[0]


def test_roofline_mode_gets_the_peaks_that_the_graphs_were_made_for(tmp_path: Path, capsys: Said) -> None:
    out, _ = built(tmp_path, capsys, "--no-host")
    before = (out / "graph.0.et").read_bytes()
    _, said = built(tmp_path, capsys, "--no-host --roofline V100:fp32")
    system = json.loads(Path(configuration(said)["system"]).read_text())
    assert [system[name] for name in ("roofline-enabled", "peak-perf", "local-mem-bw")] == [1, 15.7, 900]
    assert (out / "graph.0.et").read_bytes() != before
    computations = [node for node in read_nodes(out / "graph.0.et") if node.type == 4]
    assert all(int(node.read(*what)) > 0 for node in computations for what in WORK)


def test_a_job_that_lacks_a_graph_has_no_command(tmp_path: Path, capsys: Said) -> None:
    built(tmp_path, capsys)
    (tmp_path / "traces" / "device_rank1.json").write_text('{"traceEvents": [], "distributedInfo": {"rank": 1}}')
    _, said = built(tmp_path, capsys, status=1)
    assert "1 of 2 ranks" in said and "simulate" not in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(
            (option, "are for --target astra-sim")
            for option in ("--bandwidth=5", "--latency=5", "--replay", "--roofline=1:1")
        ),
        *(
            (f"--target astra-sim --bandwidth={value}", f"{value} is not a number above 0")
            for value in ("0", "-1", "inf", "nan", "fast")
        ),
        ("--target astra-sim --roofline V100:fp32", "--roofline needs --no-host"),
        ("--target astra-sim --no-host --replay --roofline V100:fp32", "--replay has no use for --roofline"),
        ("--no-host --roofline toaster:fp32", "is not DEVICE:FORMAT of a device whose peaks are known"),
        ("--chunk 100", "--chunk is for --target goal"),
        ("--max-messages 9", "--max-messages is for --target goal"),
        ("--measured-communication", "--measured-communication is for --target goal"),
        ("--no-start-offsets", "--no-start-offsets is for --target astra-sim and goal"),
        ("--jobs 0", "--jobs"),
        ("--jobs 2 --scheduler tcp://a:1", "--scheduler: not allowed with argument --jobs"),
        ("--promote none", "unknown promote 'none'"),
        ("--target goal --chunk 0", "--chunk: 0 is not a whole number above 0"),
        ("--target goal --gpus-per-node -1", "--gpus-per-node: -1 is not a whole number above 0"),
    ],
)
def test_options_of_a_simulator_are_for_its_target_and_have_values_that_mean_something(options, said, capsys):
    assert status_of("trace-build", "--input-dir", "a", "--output-dir", "b", *options.split()) == 2
    assert said in capsys.readouterr().err


GOOD = Network(50.0, 10.0, transfers=30, sizes=12, fit_error_pct=3.1, repeat_error_pct=1.0)
TWO = TwoDimensions(Link(4, 300.0, 1_000.0), Link(2, 20.0, 6_000.0), sizes=12, fit_error_pct=2.5, direct=True)
NODES = Network(150.0, 1_200.0, transfers=48, sizes=12, fit_error_pct=88.0, two_dimensions=TWO)
FITTED, LATENCY = AstraSimOptions(), AstraSimOptions(latency_ns=7.0)
BANDWIDTH, GIVEN = AstraSimOptions(bandwidth_gib_s=400.0), AstraSimOptions(bandwidth_gib_s=400.0, latency_ns=700.0)
POOR = Network(50.0, 10.0, transfers=8, sizes=7, fit_error_pct=59.3, repeat_error_pct=20.5)


@pytest.mark.parametrize(
    ("fitted", "simulation", "text"),
    [
        (GOOD, FITTED, "50 GiB/s, 10 ns a link, fitted to 30 collectives and messages, median fit error 3.1 %"),
        (Network(transfers=6, sizes=1), FITTED, "all of one size, which does not show whether latency or bandwidth"),
        (Network(MOST_BANDWIDTH), LATENCY, "any bandwidth, 7 ns a link"),
        (GOOD, BANDWIDTH, "400 GiB/s, 10 ns a link; the bandwidth as given, the latency fitted to 30"),
        (GOOD, LATENCY, "50 GiB/s, 7 ns a link; the latency as given, the bandwidth fitted to 30"),
        (Network(transfers=6, sizes=1), BANDWIDTH, "the latency fitted to 6 collectives and messages, too few"),
        (GOOD, AstraSimOptions(replay=True), "not used, as every node takes its recorded time"),
        (GOOD, GIVEN, "400 GiB/s, 700 ns a link, as given"),
        (
            NODES,
            FITTED,
            "300 GiB/s, 1000 ns a link within nodes of 4 ranks, 20 GiB/s, 6000 ns a link across 2 nodes, fitted to 48 "
            "collectives and messages, median fit error 2.5 %",
        ),
        (
            NODES,
            AstraSimOptions(bandwidth_gib_s=30.0),
            "30 GiB/s, 1200 ns a link; the bandwidth as given, the latency fitted to 48",
        ),
        (
            Network(transfers=6, sizes=2, one_because="nodes are unknown"),
            FITTED,
            "too few sizes to judge the fit; one network for all groups, as nodes are unknown",
        ),
        (None, FITTED, "100 GiB/s, 500 ns a link; no collective or message was measured"),
        (None, FITTED, "100 GiB/s, 500 ns a link, not used, as a rank alone sends nothing"),
    ],
)
def test_the_line_says_what_the_file_has_and_where_it_is_from(fitted, simulation, text):
    assert text in network_text(fitted, simulation, 1 if "a rank alone" in text else 2)


@pytest.mark.parametrize(
    ("network", "simulation", "said"),
    [
        (POOR, FITTED, "59.3 % (members of groups are absent; only 7 sizes; transfers of one size differ by 20.5 %"),
        (
            NODES,
            AstraSimOptions(bandwidth_gib_s=30.0),
            "one network for all groups, as a given bandwidth or latency describes one)",
        ),
        (Network(MOST_BANDWIDTH, transfers=6, fit_error_pct=0.0), FITTED, "no bandwidth follows from them; give"),
        (GOOD, FITTED, ""),
        (NODES, FITTED, ""),
        (None, FITTED, ""),
        (Network(transfers=6, sizes=1), FITTED, ""),
        (POOR, AstraSimOptions(replay=True), ""),
        (POOR, GIVEN, ""),
    ],
)
def test_a_poor_fit_is_said_with_reasons_and_one_that_is_good_unknown_or_not_used_is_not(network, simulation, said):
    warning = poor_fit(network, simulation, lacks_members=network is POOR)
    assert warning is None if not said else warning is not None and said in warning


KB = 1_000
NETWORK = Network(bandwidth_gib_s=1e9 / GIB, latency_ns=0.0)
"""A byte takes a ns; so an all-reduce of two members takes a ns for each byte."""


def entry(matched: int, start_ns: int, end_ns: int, size: int = KB, **more: Any) -> Issued:
    return Issued(matched + 10, matched, start_ns, end_ns, size=size, **more)


class ExcessTime(NamedTuple):
    """What a rank's collectives took longer than the network gives them, by node, and what changes with it."""

    of_node: dict[int, int]
    collectives_ns: int
    sizes: dict[int, int]
    hidden: tuple[int, ...] = ()


def excess(*ranks: list[Issued], order: list[int] | None = None, network: Network = NETWORK) -> list[ExcessTime]:
    calls = matched_job(*ranks)
    positions = np.array([position for rank in ranks for position in order or range(len(rank))], np.int64)
    transfers = complete_transfers(calls, calls.node < 0)
    excess_ns, sizes, is_hidden, taken_ns = excess_times(calls, positions, transfers, network)
    hidden = map(tuple, calls.by_node(calls.node, is_hidden))
    of_ranks = calls.by_node(excess_ns, excess_ns > 0), taken_ns.tolist(), calls.by_node(sizes, sizes > 0), hidden
    return [ExcessTime(*of_rank) for of_rank in zip(*of_ranks, strict=True)]


BESIDE = [entry(0, 0, 4_000, size=4_000), entry(1, 1_000, 2_000)]
EXCESS: dict[str, tuple[list[list[Issued]], list[int], list[ExcessTime]]] = {
    "what the last to come took beyond the network": (
        [[entry(0, 0, 5_000)], [entry(0, 1_500, 5_000)]],
        [0],
        [ExcessTime({10: 2_500}, 3_500, {})] * 2,
    ),
    "none": ([[entry(0, 0, KB)]] * 2, [0], [ExcessTime({}, KB, {})] * 2),
    "what ran at the same time counts once": (
        [[entry(0, 0, 3_000), entry(1, 0, 5_000)]] * 2,
        [0, 1],
        [ExcessTime({10: 2_000, 11: 1_000}, 5_000, {})] * 2,
    ),
    "bytes of the time that others leave": ([BESIDE] * 2, [1, 0], [ExcessTime({}, 3_000, {10: 2_000})] * 2),
    "least bytes": ([BESIDE] * 2, [0, 1], [ExcessTime({}, 4_000, {11: LEAST_BYTES})] * 2),
    "bytes that fit the time between others stay": (
        [[entry(0, 0, 4_000, size=1_500), entry(1, 1_000, 2_000)]] * 2,
        [1, 0],
        [ExcessTime({10: 500}, 3_000, {})] * 2,
    ),
    "too much is taken off the next of the group": (
        [[entry(0, 0, 400), entry(1, 1_000, 2_500), entry(2, 3_000, 4_800)]] * 2,
        [0, 1, 2],
        [ExcessTime({12: 700}, 3_700, {})] * 2,
    ),
    "host threads end each by itself": (
        [[entry(0, 0, 5_000, on_host=True)], [entry(0, 1_000, 2_500, on_host=True)]],
        [0],
        [ExcessTime({10: 3_000}, 4_000, {}), ExcessTime({10: 500}, 1_500, {})],
    ),
}


@pytest.mark.parametrize("case", EXCESS)
def test_the_excess_of_collectives(case: str) -> None:
    ranks, order, expected = EXCESS[case]
    assert excess(*ranks, order=order) == expected


def test_a_collective_of_all_ranks_that_others_hide_for_longer_than_its_latency_keeps_its_time() -> None:
    """An all-reduce of two members takes four latencies; the second has 100 ns alone."""
    slow = Network(bandwidth_gib_s=1e9 / GIB, latency_ns=50.0)
    both = [entry(0, 0, 4_000), entry(1, 1_000, 4_100)]
    assert [of.hidden for of in excess(both, both, network=slow)] == [(11,)] * 2
    assert [of.sizes for of in excess(both, both, network=slow)] == [{}] * 2
    assert [of.hidden for of in excess(both, both, [], network=slow)] == [()] * 3, "all ranks have to leave it out"


def test_a_rank_that_communicates_nothing_has_its_own_plan_between_those_that_do() -> None:
    pair = {"pg_ranks": [0, 2], "comm_size": 8}
    graphs = [communicating(rank=0, **pair), GraphBuilder(rank=1).build(), communicating(rank=2, **pair)]
    plans, _ = plan_job(
        dict(enumerate(look_up(graph, "astra-sim") for graph in graphs)), replay=True, excess_time=False
    )
    assert [(plan.order, plan.unpartnered) for plan in plans.values()] == [([2], []), ([], []), ([2], [])]


def test_messages_and_what_no_network_was_fitted_for_have_no_excess() -> None:
    send, receive = (
        entry(0, 0, 9_000, type=node_type, kind=-1) for node_type in (NodeType.COMM_SEND, NodeType.COMM_RECV)
    )
    rooted = entry(1, 10_000, 19_000, kind=int(CollectiveType.BROADCAST))
    barrier = entry(2, 20_000, 21_000, kind=int(CollectiveType.BARRIER), size=0)
    assert excess([send, rooted, barrier], [receive, rooted, barrier]) == [ExcessTime({12: 1_000}, 1_000, {})] * 2
    assert excess([entry(0, 0, 9_000)]) == [ExcessTime({}, 0, {})]


# --target goal: one file for the whole job, all or nothing


@pytest.fixture(scope="module")
def goal_traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    write_traces(simulate(build_job("uneven", ranks=2, steps=1, layers=1, seed=3)), folder)
    return folder


def command(*arguments: object) -> int:
    return status_of("trace-build", *arguments, "--jobs", 1)


def test_the_file_runs_as_measured_and_the_report_tells_what_is_in_it(goal_traces: Path, tmp_path: Path) -> None:
    arguments = ("--input-dir", goal_traces, "--output-dir", tmp_path, "--target", "goal")
    assert command(*arguments, "--measured-communication") == 0
    report = json.loads((tmp_path / "report.json").read_text())["goal"]
    ranks = parse((tmp_path / "job.goal").read_text())
    assert troubles(ranks) == []
    for waits in Waits:
        for finish, rank in zip(run(ranks, waits), report["ranks"], strict=True):
            assert finish == pytest.approx(rank["end_ns"], rel=0.005)
    assert command(*arguments, "--chunk", 100_000, "--simulator", "atlahs") == 0
    assert max(op.amount for _, op in others(parse((tmp_path / "job.goal").read_text()), "send")) == 100_000


def test_without_all_graphs_there_is_no_file(goal_traces: Path, tmp_path: Path, capsys: Said) -> None:
    job, out = Path(shutil.copytree(goal_traces, tmp_path / "job")), tmp_path / "out"
    arguments = ("--input-dir", job, "--output-dir", out, "--target", "goal")
    assert command(*arguments) == 0
    assert (out / "job.goal").is_file()
    (job / "device_rank1.json").write_text('{"traceEvents": [], "distributedInfo": {"rank": 1}}')
    assert command(*arguments) == 1
    assert not (out / "job.goal").exists()
    said = capsys.readouterr().err
    assert "note: job.goal is not written: it needs the graphs of all ranks" in said
    assert said.count("trace-build: error: ") == 1


def test_one_ranks_graph_is_no_job(tmp_path: Path, capsys: Said) -> None:
    given = ("--input", "linked.json", "--output", tmp_path / "g.et", "--target", "goal")
    assert status_of("trace-convert", *given) == 2
    assert "trace-build --target goal" in capsys.readouterr().err
    with pytest.raises(DataError, match="of a whole job"):
        lower_for_target(training_step(), "goal")


@pytest.mark.parametrize(("error_pct", "is_poor"), [(None, False), (10.0, False), (69.4, True)])
def test_a_network_that_does_not_describe_the_messages_is_warned_of(error_pct: float | None, is_poor: bool) -> None:
    warning = poor_goal_fit(GoalReport([], {}, network=MessageNetwork(500, 0.25, 8, error_pct)))
    assert (warning is not None) == is_poor
    assert warning is None or "69.4 %; GoalOptions(measured_communication=True) keeps" in warning
    assert poor_goal_fit(GoalReport([], {})) is None
