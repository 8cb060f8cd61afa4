"""From traces to communication nodes: which kernel did what, with whom, and what both ends call it."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from execgraph.linker.link import link
from execgraph.schema.columns import Ragged
from execgraph.schema.graph import CollectiveType
from execgraph.tools.replay import replay_ranks
from support import runs
from support.builder.records import LAYOUTS, Comms, Group, Tensor
from support.builder.timeline import TraceBuilder
from support.runs import COLL, INTEGERS, RECV, SEND, communications, convert_linked, convert_run, link_run, read_pair

KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
EVERY_VERSION = pytest.mark.parametrize("torch", LAYOUTS)


def together(nodes: runs.Nodes, label: str) -> list[tuple[int, ...]]:
    """(source, destination, tag, size) of the messages that one kernel carried."""
    columns = [nodes.graph.attributes.get(name.replace("comm", "coalesced")) for name in INTEGERS]
    return list(zip(*(c[nodes.row(label)].tolist() for c in columns if isinstance(c, Ragged)), strict=True))


def of_two() -> tuple[TraceBuilder, Group]:
    """A rank of two, and their group."""
    t = TraceBuilder(rank=0, world_size=2)
    return t, t.group(range(2))


def test_a_barrier_that_is_an_all_reduce_is_a_barrier() -> None:
    t, group = of_two()
    with t.op("c10d::barrier"), t.op("record_param_comms", comms=Comms("barrier", group, 1, 0)):
        t.collective("allreduce", group=group, tensors=[t.tensor((1,))])
    t.collective("allreduce", group=group, tensors=[t.tensor((1,))])
    found = communications(convert_run(t).graph)
    assert [node["comm_type"] for node in found] == [CollectiveType.BARRIER, CollectiveType.ALL_REDUCE]


def test_without_records_the_annotation_around_the_launch_tells() -> None:
    t = TraceBuilder(rank=0, world_size=2)
    tensors = {"nccl:all_to_all": t.tensor((6,), "c10::Half"), "xccl:reduce_scatter": t.tensor((8,), "int")}
    for name, tensor in tensors.items():
        with t.op("c10d::something_new"), t.annotation(name, inputs=[tensor]):
            t.launch(KERNEL, stream=20)
    found = [(node["comm_type"], node["comm_size"]) for node in communications(convert_run(t).graph)]
    assert found == [(CollectiveType.ALL_TO_ALL, 12), (CollectiveType.REDUCE_SCATTER, 32)]


def test_an_annotation_is_completed_by_the_shapes_in_the_device_trace_where_the_host_trace_has_none() -> None:
    t = TraceBuilder(rank=0, world_size=2)
    shapes = {"Input Dims": [[6]], "Input type": ["c10::Half"]}
    with t.annotation("nccl:all_to_all", args=shapes):
        t.launch(KERNEL, stream=20)
    (found,) = communications(convert_run(t).graph)
    assert (found["comm_type"], found["comm_size"]) == (CollectiveType.ALL_TO_ALL, 12)


def test_a_record_may_be_the_first_op_of_a_device_trace_alone() -> None:
    t = TraceBuilder(rank=0, world_size=2)
    group, tensor = t.group(range(2)), t.tensor((4,))
    with t.op("record_param_comms", comms=Comms("allreduce", group, 1, 0, tensor, tensor)):
        t.launch("ncclDevKernel_Generic", stream=20)
    t.launch("ncclDevKernel_Generic", stream=20)
    nodes = convert_linked(link(None, read_pair(t)[1]))
    (found,) = communications(nodes.graph)
    assert (found["comm_type"], found["comm_size"]) == (CollectiveType.ALL_REDUCE, 16)
    assert nodes.report.unknown_communications == 1


# messages that are launched together


def batches(t: TraceBuilder, group: Group, **options: Any) -> None:
    """Rank 1 of 3, in the middle of a pipeline."""
    there, back = t.tensor((16, 8), "c10::Half"), t.tensor((4, 8), "c10::Half")
    messages: list[tuple[str, int, Tensor]] = [
        ("recv", 0, there),
        ("send", 0, back),
        ("send", 2, there),
        ("recv", 2, back),
    ]
    for _ in range(2):
        t.batch(messages, group=group, **options)


@EVERY_VERSION
@pytest.mark.parametrize("annotated", [True, False])
def test_one_kernel_carries_the_messages_that_were_given_before_it(torch: str, annotated: bool) -> None:
    t = TraceBuilder(torch=torch, rank=1, world_size=3)
    batches(t, t.group(range(3)), annotated=annotated)
    nodes = convert_run(t)
    assert [together(nodes, f"{KERNEL}#{number}") for number in (0, 1)] == [
        [(1, 0, 0, 64), (1, 2, 0, 256), (0, 1, 0, 256), (2, 1, 0, 64)],
        [(1, 0, 1, 64), (1, 2, 1, 256), (0, 1, 1, 256), (2, 1, 1, 64)],
    ]
    assert [node["type"] for node in communications(nodes.graph)] == [RECV, RECV]


def test_a_batch_of_one_message_is_that_message() -> None:
    t = TraceBuilder(rank=1, world_size=2)
    t.batch([("send", 0, t.tensor((4,)))], group=t.group(range(2)))
    nodes = convert_run(t)
    assert [(node["type"], node["comm_dst"], node["comm_size"]) for node in communications(nodes.graph)] == [
        (SEND, 0, 16)
    ]
    assert "coalesced_size" not in nodes.graph.attributes


def give(t: TraceBuilder, group: Group, name: str) -> None:
    """A message or collective that the library is given but does not launch yet."""
    tensor = t.tensor((4,))
    with t.op("record_param_comms", inputs=[tensor], outputs=[tensor], comms=Comms(name, group, 1, 1, tensor, tensor)):
        t.work(5)


def launch(t: TraceBuilder, count: int = 1, thread: int = 1, coalesced: bool = False) -> None:
    """Kernels of no record, on a thread, in an op that launches what went together or in none."""
    with (
        t.thread(thread) if thread > 1 else nullcontext(),
        t.annotation("nccl:coalesced") if coalesced else nullcontext(),
    ):
        for _ in range(count):
            t.launch(KERNEL, stream=20)


Action = Callable[[TraceBuilder, Group], object]
TAKEN: dict[str, tuple[list[str | Action], list[str]]] = {
    "a kernel of its own record did that alone": (
        ["send", lambda t, group: t.collective("allreduce", group=group)], ["allreduce"],
    ),
    "what had a kernel of its own is not taken again": (
        [lambda t, group: t.wait_collective(t.collective("allreduce", group=group)), lambda t, _: launch(t)], ["allreduce", ""],
    ),
    "a kernel without a launch call took nothing": (
        ["allreduce", lambda t, _: launch(t), lambda t, _: t.activity(KERNEL, 21, 0, 5)], ["allreduce", ""],
    ),
    "kernels outside any record did what was given before each": (
        ["allreduce", lambda t, _: launch(t), "broadcast", lambda t, _: launch(t, 2)], ["allreduce", "broadcast", ""],
    ),
    "several kernels of one launching op did what was given before the first": (
        ["allreduce", lambda t, _: launch(t, 2, coalesced=True), lambda t, _: launch(t, coalesced=True)],
        ["allreduce", "allreduce", ""],
    ),
    "the kernels of a graph were captured before": (
        ["send", lambda t, _: t.graph_launch([(KERNEL, 20, 10), (KERNEL, 20, 10)])], ["", ""],
    ),
    "what was given on another thread is not taken": (["send", lambda t, _: launch(t, thread=2)], [""]),
    "collectives of several kinds stay apart": (["allreduce", "broadcast", lambda t, _: launch(t)], ["allreduce broadcast"]),
}  # fmt: skip
"""What a library is given, and what launches; what each kernel did, by its start."""


@pytest.mark.parametrize("torch", ["2.1", "2.13"])
@pytest.mark.parametrize("case", TAKEN)
def test_kernels_take_what_was_given_before_them(case: str, torch: str) -> None:
    actions, expected = TAKEN[case]
    t = TraceBuilder(torch=torch, rank=0, world_size=2)
    group = t.group(range(2))
    for action in actions:
        give(t, group, action) if isinstance(action, str) else action(t, group)
    linked = link_run(t)
    did = [linked.communications[row] for row in linked.activities.communication_row.tolist()]
    assert [" ".join(part.name for part in one.coalesced) or one.name for one in did] == expected
    assert convert_run(t).report.unknown_communications == expected.count("")


def test_collectives_of_one_kind_that_went_together_are_one_of_their_summed_size() -> None:
    t, group = of_two()
    for _ in range(3):
        give(t, group, "allreduce")
    with t.annotation("nccl:coalesced"):
        t.launch(KERNEL, stream=20)
    (found,) = communications(convert_run(t).graph)
    assert (found["comm_type"], found["comm_size"]) == (CollectiveType.ALL_REDUCE, 3 * 16)


def test_the_launching_op_of_several_kernels_may_be_the_first_of_a_device_trace_alone() -> None:
    t = TraceBuilder(rank=0, world_size=2)
    with t.op("mine::all_reduce"):
        give(t, t.group(range(2)), "allreduce")
        t.launch(KERNEL, stream=20)
        t.launch(KERNEL, stream=20)
    (communication,) = link(None, read_pair(t)[1]).communications
    assert communication.name == "allreduce"


@pytest.mark.parametrize(("told", "expected"), [("allreduce", CollectiveType.ALL_REDUCE), ("coalesced", None)])
def test_a_kernel_that_says_what_it_did_takes_nothing_given_before(told: str, expected: CollectiveType | None) -> None:
    """But for one that says no more than that several went together."""
    t = TraceBuilder(rank=0, world_size=2)
    give(t, t.group(range(2)), "send")
    t.launch(KERNEL, stream=20, **{"Collective name": told, "dtype": "Float", "In msg nelems": 5})
    (found,) = communications(convert_run(t).graph)
    assert (found["type"], found["comm_type"]) == ((COLL, expected) if expected is not None else (SEND, -1))


def test_parts_of_a_collective_that_launched_are_not_given_again() -> None:
    t, group = of_two()
    tensor = t.tensor((4,))
    # shards of different sizes are gathered by a broadcast from each member
    with t.op(
        "record_param_comms", inputs=[tensor], outputs=[tensor], comms=Comms("all_gather", group, 1, 0, tensor, tensor)
    ):
        t.launch(KERNEL, stream=20)
        give(t, group, "_broadcast_oop")
    t.launch(KERNEL, stream=20)
    nodes = convert_run(t)
    assert [node["comm_type"] for node in communications(nodes.graph)] == [CollectiveType.ALL_GATHER]
    assert nodes.report.unknown_communications == 1


def test_messages_of_one_kernel_are_waited_for_by_all_their_peers() -> None:
    graphs = []
    for rank, delay in enumerate((0, 300, 0)):
        t = TraceBuilder(rank=rank, world_size=3)
        group = t.group(range(3))
        with t.op("aten::mm"):
            t.launch("gemm", duration=10 + delay)
        peers = [peer for peer in (rank - 1, rank + 1) if 0 <= peer < 3]
        both = [(name, peer, t.tensor((4,))) for peer in peers for name in ("send", "recv")]
        t.batch(both, group=group, duration=20)
        graphs.append(convert_run(t).graph)
    played = replay_ranks(graphs)
    ends = [int(played.end_ns[row]) for row in range(len(played.work)) if played.work.duration_ns[row] == 20_000]
    assert len(ends) == 3
    assert len(set(ends)) == 1


# waits


@pytest.mark.parametrize("torch", ["2.1", "2.5", "2.13"])
def test_a_wait_is_for_the_collective_with_its_number(torch: str) -> None:
    """Nothing else recorded: not for the last one that ran, nor for an older one of another group with this number."""
    t = TraceBuilder(torch=torch, rank=0, world_size=4, sync_records=False)
    world, pair = t.group(range(4)), t.group([0, 1])
    with t.op("aten::mm"):
        t.launch("gemm")
    other = t.collective("allreduce", group=world, kernel="ncclDevKernel_AllReduce_other", stream=20)
    awaited = t.collective("allreduce", group=pair, kernel="ncclDevKernel_AllReduce_awaited", stream=24)
    t.collective("allreduce", group=pair, kernel="ncclDevKernel_AllReduce_later", stream=28)
    assert other.seq == awaited.seq
    with t.op("record_param_comms", duration=1, comms=Comms("wait", pair, awaited.seq, 0)):
        t.call("cudaStreamWaitEvent", 2)
    with t.op("aten::add"):
        t.launch("waits", start=500)
    linked = link_run(t)
    waits, name = linked.device_waits, linked.activities.name
    edges = zip(waits.source_row.tolist(), waits.target_row.tolist(), waits.known_by.codes.tolist(), strict=True)
    found = {(name[source], waits.known_by.table[code]) for source, target, code in edges if name[target] == "waits"}
    assert found == {("ncclDevKernel_AllReduce_awaited", "record")}


# the group's name


@EVERY_VERSION
def test_the_recorded_name_of_the_group_stays(torch: str) -> None:
    t = TraceBuilder(torch=torch, rank=0, world_size=2)
    t.collective(group=t.group(range(2), "7"))
    graph = convert_run(t).graph
    row = int(np.flatnonzero(graph.type == COLL)[0])
    assert graph.texts("pg_recorded")[row] == ("94594108284448" if LAYOUTS[torch].group_address else "7")
