"""A group that one rank calls otherwise is the same group to every command."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from execgraph.schema.arguments import ASTRA_SIM
from execgraph.schema.graph import ExecutionGraph, NodeType
from execgraph.tools.analyses import analyse
from execgraph.tools.job import BuildOptions, build, merge_for_viewing
from execgraph.tools.replay import replay_ranks
from execgraph.tools.report import find_sources, read_ranks
from execgraph.tools.trace_files import by_rank, find_traces
from support.generated import here

from support.builder import TraceBuilder

NAMES = {"world": "0", "tensor": "1", "data": "2"}
OTHER_NAMES: dict[str, dict[str, str]] = {
    "one group": {"data": "17"},
    "all groups": {"world": "5", "tensor": "6", "data": "7"},
    "names of other groups": {"world": "1", "tensor": "2", "data": "3"},
    "names that say nothing": {"world": "z", "tensor": "y", "data": "x"},
    "addresses": {"world": "94594108284448", "tensor": "94594108284001", "data": "94594108284999"},
}


def record(folder: Path, *own_names: Mapping[str, str]) -> Path:
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


@pytest.mark.parametrize("other", OTHER_NAMES)
def test_every_command_takes_a_group_that_one_rank_calls_otherwise_for_the_same(tmp_path: Path, other: str) -> None:
    renamed = NAMES | OTHER_NAMES[other]
    as_it_is, again = (said(record(tmp_path / str(names["data"]), NAMES, names)) for names in (NAMES, renamed))
    assert as_it_is["build for generic"] == ([], [], [])
    assert all(present == 2 for _, _, present, _ in as_it_is["report"])
    assert again == as_it_is


def test_a_report_calls_a_renamed_group_as_the_first_rank_does(tmp_path: Path) -> None:
    traces = record(tmp_path / "traces", NAMES, NAMES | {"data": "17"})
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
