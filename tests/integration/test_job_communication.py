"""Folders of traces to graphs that a simulator plays together: what the ranks' communication becomes, and reports.

A group that one rank calls otherwise is the same group to every command. Jobs of many ranks, from traces to joint
replay: built without a complaint, and replayed as measured.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from execgraph.converter.targets import EXCESS_TIME, READY
from execgraph.schema.arguments import ASTRA_SIM
from execgraph.schema.comm_groups import read_groups
from execgraph.schema.graph import ExecutionGraph, NodeType
from execgraph.tools.analyses import analyse
from execgraph.tools.commands.trace_build import main
from execgraph.tools.job import BuildOptions, BuiltJob, build, merge_for_viewing
from execgraph.tools.replay import replay_ranks
from execgraph.tools.replay.summary import start_error
from execgraph.tools.report import find_sources, read_ranks
from execgraph.tools.trace_files import by_rank, find_traces
from support.builder.records import Group, Tensor
from support.builder.timeline import TraceBuilder
from support.generated import TOGETHER, built_job, here
from support.runs import communications
from support.simulator import Generation, read_files, simulate

pytestmark = pytest.mark.usefixtures("in_this_process")

Play = Callable[[TraceBuilder, Group], None]
SEND, RECV, COLL = NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL


def record(folder: Path, ranks: Sequence[int], world: int, play: Play, torch: str = "2.13") -> None:
    """Traces of some ranks of a job in which every rank does what `play` says."""
    folder.mkdir(exist_ok=True)
    for rank in ranks:
        t = TraceBuilder(torch=torch, rank=rank, world_size=world, pid=1000 + rank)
        with t.op("aten::mm"):
            t.launch("gemm", duration=20 + 5 * rank)
        play(t, t.group(range(world)))
        t.stream_synchronize(20)
        t.write(folder)


def made(folder: Path, **options: bool) -> tuple[BuiltJob, list[ExecutionGraph]]:
    """The build for the simulator, which both generations must play to the end, and its graphs."""
    out = folder.parent / "graphs"
    report = build(folder, out, BuildOptions(target="astra-sim", **options), here)
    assert not report.report.all_failures
    paths = sorted(out.glob("graph.*.et"))
    files = read_files(out / "graph", len(paths))
    for generation in Generation:
        outcome = simulate(files, out / "comm_groups.json", generation)
        assert outcome.good, outcome.trouble
    return report, [ExecutionGraph.read(str(path)) for path in paths]


def pipeline(t: TraceBuilder, group: Group) -> None:
    """Stages that exchange with both neighbours at once, three times."""
    here, last = t.rank or 0, len(group.ranks) - 1
    for _ in range(3):
        neighbours = [peer for peer in (here - 1, here + 1) if 0 <= peer <= last]
        messages: list[tuple[str, int, Tensor]] = []
        for peer in neighbours:
            messages += [
                ("recv", peer, t.tensor((2 + (peer < here), 8))),
                ("send", peer, t.tensor((3 - (peer < here), 8))),
            ]
        t.batch(messages, group=group)
        with t.op("aten::mm"):
            t.launch("gemm", duration=30)


@pytest.mark.parametrize(("torch", "host"), [("2.1", False), ("2.13", True)])
def test_messages_that_were_launched_together_are_played(tmp_path: Path, torch: str, host: bool) -> None:
    record(tmp_path / "traces", range(4), 4, pipeline, torch)
    report, graphs = made(tmp_path / "traces", host=host)
    assert report.report.disagreements == []
    for graph, neighbours in zip(graphs, (1, 2, 2, 1), strict=True):
        types = [node["type"] for node in communications(graph)]
        assert (types.count(SEND), types.count(RECV)) == (3 * neighbours, 3 * neighbours)
    assert abs(replay_ranks(graphs).error_pct or 0) < 1


def test_a_message_that_nobody_receives_is_told_and_takes_its_measured_time(tmp_path: Path) -> None:
    def one_more(t: TraceBuilder, group: Group) -> None:
        for _ in range(2 - (t.rank or 0)):
            t.collective("recv" if t.rank else "send", group=group, peer=1 - (t.rank or 0), tensors=[t.tensor((4,))])

    record(tmp_path / "traces", range(2), 2, one_more)
    report, graphs = made(tmp_path / "traces")
    assert [[node["type"] for node in communications(graph)] for graph in graphs] == [[SEND], [RECV]]
    assert any("rank 0" in text and "send" in text for text in report.report.disagreements)
    assert report.report.ranks[0].target_notes[-1] == "1 communications without a partner, as computation"
    assert report.report.ranks[0].target["communications without a partner, as computation"] == 1


def test_members_of_an_uneven_exchange_have_one_size_and_none_is_empty(tmp_path: Path) -> None:
    def exchange(t: TraceBuilder, group: Group) -> None:
        rank = t.rank or 0
        given, taken = [(0, 12), (12, 0)][rank]
        splits = [0, 0], [0, 12]
        tensors = [t.tensor((given,)), t.tensor((taken,))]
        t.collective("all_to_allv", group=group, tensors=tensors, in_split=[12 * rank, 0], out_split=splits[1 - rank])

    record(tmp_path / "traces", range(2), 2, exchange)
    _, graphs = made(tmp_path / "traces")
    assert [[(node["type"], node["comm_size"]) for node in communications(graph)] for graph in graphs] == [
        [(COLL, 48)]
    ] * 2


def test_a_collective_without_data_is_no_communication_on_any_rank(tmp_path: Path) -> None:
    def nothing(t: TraceBuilder, group: Group) -> None:
        t.collective("_allgather_base", group=group, tensors=[t.tensor((0,))])
        t.collective("allreduce", group=group, tensors=[t.tensor((0,))])

    record(tmp_path / "traces", range(2), 2, nothing)
    report, graphs = made(tmp_path / "traces")
    assert [communications(graph) for graph in graphs] == [[], []]
    assert report.report.ranks[0].target["as computation: without data"] == 2


def test_types_that_do_not_run_are_lowered_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def rooted(t: TraceBuilder, group: Group) -> None:
        for name in ("reduce", "gather", "scatter"):
            t.collective(name, group=group, tensors=[t.tensor((64,)), t.tensor((64,))], root=0)
        t.collective("barrier", group=group, tensors=[t.tensor((1,))])

    record(tmp_path / "traces", range(2), 2, rooted)
    made(tmp_path / "traces")
    with pytest.raises(SystemExit):
        main([*f"--input-dir {tmp_path / 'traces'} --output-dir {tmp_path / 'graphs'} --target astra-sim".split()])
    said = capsys.readouterr().err
    for change in ("reduce as reduce scatter: 2", "gather as all gather: 2", "barrier as all reduce: 2"):
        assert f"lowered: {change}" in said


def test_a_rank_alone_in_its_group_needs_no_number(tmp_path: Path) -> None:
    def alone(t: TraceBuilder, group: Group) -> None:
        t.collective(group=t.group([t.rank or 0]), tensors=[t.tensor((8,))])
        t.collective(group=group, tensors=[t.tensor((8,))])

    record(tmp_path / "traces", range(2), 2, alone)
    _, graphs = made(tmp_path / "traces")
    assert [len(communications(graph)) for graph in graphs] == [1, 1]
    report = build(tmp_path / "traces", tmp_path / "generic", BuildOptions(), here).report
    assert not report.all_failures
    graph = ExecutionGraph.read(str(tmp_path / "generic" / "graph.0.et"))
    rows = [row for row in range(len(graph)) if graph.type[row] == COLL]
    assert [graph.texts("pg_name").codes[row] >= 0 for row in rows] == [False, True]
    assert [graph.texts("pg_recorded")[row] for row in rows] == ["1", "0"]


# some ranks of a job


def two_groups(t: TraceBuilder, group: Group) -> None:
    """All ranks reduce, then either half does."""
    t.collective(group=group, tensors=[t.tensor((64,))])
    half = range(4) if (t.rank or 0) < 4 else range(4, 8)
    t.collective(group=t.group(half, description="half"), tensors=[t.tensor((32,))])


def test_some_ranks_of_a_job_are_renumbered_and_their_groups_reduced(tmp_path: Path) -> None:
    record(tmp_path / "traces", (1, 2, 3, 4), 8, two_groups)
    report, graphs = made(tmp_path / "traces")
    assert [graph.metadata["rank"] for graph in graphs] == [0, 1, 2, 3]
    assert set(read_groups(str(tmp_path / "graphs" / "comm_groups.json"))) == {(0, 1, 2, 3), (0, 1, 2)}
    # of rank 4's half nobody else is there
    assert [len(communications(graph)) for graph in graphs] == [2, 2, 2, 1]
    assert any("4 of 8 members of the group" in note for note in report.report.all_notes)


@pytest.mark.parametrize(
    ("options", "nodes"),
    [({}, {EXCESS_TIME, READY}), ({"excess_time": False}, {READY}), ({"replay": True}, set())],
    ids=["simulated", "network alone", "replay"],
)
def test_only_graphs_for_the_simulated_mode_keep_what_the_network_does_not_give(options, nodes, tmp_path):
    def talk(t: TraceBuilder, group: Group) -> None:
        """No network gives two collectives of one size another length."""
        pipeline(t, group)
        for duration in (50, 900):
            t.collective(group=group, tensors=[t.tensor((64,))], duration=duration)

    record(tmp_path / "traces", range(2), 2, talk)
    _, graphs = made(tmp_path / "traces", **options)
    assert {graphs[0].name[row] for row in range(len(graphs[0]))} & {EXCESS_TIME, READY} == nodes


NAMES = {"world": "0", "tensor": "1", "data": "2"}
OTHER_NAMES = {
    "names of other groups": {"world": "1", "tensor": "2", "data": "3"},
    "addresses": {"world": "94594108284448", "tensor": "94594108284001", "data": "94594108284999"},
}


def record_renamed(folder: Path, *own_names: Mapping[str, str]) -> Path:
    """Traces of ranks that do the same in three groups of all of them, under own names; and exchange a message."""
    folder.mkdir()
    for rank, names in enumerate(own_names):
        t = TraceBuilder(rank=rank, world_size=len(own_names), pid=1000 + rank)
        world, tensor, data = (t.group(range(len(own_names)), names[what], what) for what in NAMES)
        t.work(10 + 5 * rank)
        for size in (8, 16):
            t.collective("allreduce", group=tensor, tensors=[t.tensor((size,))], stream=21)
            t.collective("allreduce", group=data, tensors=[t.tensor((3 * size,))], stream=22)
            t.collective("allgather", group=data, tensors=[t.tensor((4,)), t.tensor((8,))], stream=22)
            t.collective("allreduce", group=world, tensors=[t.tensor((5 * size,))])
        t.collective(("send", "recv")[rank], group=world, tensors=[t.tensor((2,))], peer=1 - rank, stream=23)
        t.device_synchronize()
        t.write(folder)
    return folder


def said(folder: Path) -> dict[str, Any]:
    """What each command says of a job, but for what its groups are called."""
    found: dict[str, Any] = {}
    for target in ("generic", ASTRA_SIM):
        out = folder.parent / f"{folder.name} for {target}"
        report = build(folder, out, BuildOptions(target=target), here).report
        graphs = [ExecutionGraph.read(str(path)) for path in sorted(out.glob("graph.*.et"))]
        found[f"build for {target}"] = report.disagreements, report.all_notes, report.all_failures
        found[f"communication for {target}"] = [int((graph.type != NodeType.COMP).sum()) for graph in graphs]
        replayed = replay_ranks(graphs)
        found[f"replay for {target}"] = replayed.makespan_ns, replayed.end_ns.tolist()
    table = analyse(read_ranks(find_sources([folder]).ranks), ["collectives_over_ranks"])["collectives_over_ranks"]
    found["report"] = [(row["collective"], row["size"], row["present"], row["missing"]) for row in table.rows()]
    merge_for_viewing(by_rank(find_traces([folder]).devices, {})[0], str(folder.parent / "merged.json"))
    rows = json.loads((folder.parent / "merged.json").read_text())["traceEvents"]
    found["merge"] = sorted((row["ts"], row["name"]) for row in rows if row.get("cat") == "kernel")
    return found


def test_every_command_takes_a_group_that_one_rank_calls_otherwise_for_the_same(tmp_path: Path) -> None:
    as_it_is = said(record_renamed(tmp_path / "as it is", NAMES, NAMES))
    assert as_it_is["build for generic"] == ([], [], [])
    assert all(present == 2 for _, _, present, _ in as_it_is["report"])
    for other, names in OTHER_NAMES.items():
        assert said(record_renamed(tmp_path / other, NAMES, NAMES | names)) == as_it_is, other


def test_a_report_calls_a_renamed_group_as_the_first_rank_does(tmp_path: Path) -> None:
    traces = record_renamed(tmp_path / "traces", NAMES, NAMES | {"data": "17"})
    table = analyse(read_ranks(find_sources([traces]).ranks), ["collectives_over_ranks"])["collectives_over_ranks"]
    assert {*table["group"]} == {"0 (0-1)", "1 (0-1)", "2 (0-1)", "send/recv (0-1)"}


def differing(folder: Path, size: int) -> Sequence[str]:
    """What a build says where the second rank of two reduces so much, in a group that it calls otherwise."""
    folder.mkdir()
    for rank in range(2):
        t = TraceBuilder(rank=rank, world_size=2, pid=1000 + rank)
        group = t.group(range(2), "17" if rank else "2")
        t.collective("allreduce", group=group, tensors=[t.tensor((size if rank else 8,))])
        t.device_synchronize()
        t.write(folder)
    return build(folder, folder.parent / "out", BuildOptions(), here).report.disagreements


def test_a_renamed_group_in_which_ranks_differ_is_told_by_what_differs(tmp_path: Path) -> None:
    assert differing(tmp_path / "traces", 9) == [
        "group 0,1 (2): collective with number 1: rank 0 issued allreduce of 8 Float by c10d::allreduce_, "
        "rank 1 issued allreduce of 9 Float by c10d::allreduce_"
    ]


UNEQUAL = {"pipeline", "pipeline_dp"}
"""Its stages have unequal work, which is noted."""


@pytest.mark.parametrize("job", TOGETHER)
def test_a_job_is_built_and_replayed(job: str) -> None:
    report, graphs, makespan_ns = built_job(job, 4)
    assert (report.disagreements, report.all_failures) == ([], [])
    assert job in UNEQUAL or report.all_notes == []
    replayed = replay_ranks(graphs)
    assert replayed.makespan_ns == pytest.approx(makespan_ns, rel=0.003)
    assert replayed.measured_ns == pytest.approx(makespan_ns, rel=0.003)


def test_four_of_eight_ranks_of_a_real_job_replay_as_they_ran(real_traces: Path, tmp_path: Path) -> None:
    """Their windows begin up to 7 ms apart."""
    report = build(real_traces / "dlrm_8gpu", tmp_path, BuildOptions(), here).report
    assert report.disagreements == []
    assert report.absences[:2] == ["4 of 8 ranks are absent: 4-7", "4 of 8 members of the group 0-7 are absent"]
    replayed = replay_ranks([ExecutionGraph.read(str(tmp_path / f"graph.{rank}.et")) for rank in range(4)])
    assert abs(replayed.error_pct or 0) < 0.1
    assert start_error(replayed).p95 < 20
