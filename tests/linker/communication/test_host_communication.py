"""gloo: transfers on threads of their own, asked for by c10d ops elsewhere."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.linked import Communication, LinkedTrace
from execgraph.schema.reasons import Reason
from support.builder import Tensor, TraceBuilder
from support.runs import link_run, read_pair

TRACES = os.environ.get("EXECGRAPH_TRACES", "")
FLOAT, BYTE = "float", "bool"


def ask(t: TraceBuilder, name: str, inputs: list[Any], outputs: list[Any] = []) -> None:  # noqa: B006
    t.leaf(f"c10d::{name}", 2, inputs=inputs, outputs=outputs)


def transferred(linked: LinkedTrace) -> list[Communication]:
    """The communications of the host by the start of their transfers."""
    ops = linked.ops
    rows = [row for row in range(len(ops)) if ops.communication_row[row] >= 0]
    return [
        linked.communications[int(ops.communication_row[row])] for row in sorted(rows, key=lambda r: int(ops.start[r]))
    ]


@contextmanager
def transfer(t: TraceBuilder, name: str, tensors: list[Tensor], thread: int, start: float) -> Iterator[None]:
    with t.thread(thread, start=start), t.annotation(f"gloo:{name}", inputs=tensors):
        t.work(10)
        yield


def test_a_transfer_is_what_its_own_tensors_say() -> None:
    t = TraceBuilder(rank=0, world_size=2)
    chunks = [t.tensor((5,)), t.tensor((5,))]
    ask(t, "allreduce_", [[t.tensor((100,))]])
    ask(t, "reduce_scatter_", [[t.tensor((5,))], [chunks], "group"])
    for chunk in chunks:
        with transfer(t, "all_reduce", [chunk], 2, 50):
            pass
    assert [(one.name, one.in_elements, one.dtype) for one in transferred(link_run(t))] == [
        ("allreduce", 5, "float")
    ] * 2


@pytest.mark.parametrize("shapes", [True, False])
@pytest.mark.parametrize("torch", ["2.1", "2.3"])
def test_transfers_that_started_late_belong_to_their_own_requests(torch: str, shapes: bool) -> None:
    t = TraceBuilder(torch=torch, rank=0, world_size=2)
    sizes = (3, 5, 7)
    made = [t.tensor((size,)) for size in sizes]
    for tensor in made:
        ask(t, "allreduce_", [[tensor]])
        # the host trace has the transfer on the thread that asked, the device trace on the one that worked
        t.leaf("gloo:all_reduce", 1, inputs=[tensor], only="host")
    for number, tensor in enumerate(made):
        with (
            t.thread(2 + number % 2, start=50 + 20 * number),
            t.op("gloo:all_reduce", inputs=[tensor] * shapes, only="device"),
        ):
            t.work(10)
    t.wait_until(150)
    t.leaf("aten::add", 5)
    assert [one.in_elements for one in transferred(link_run(t))] == list(sizes)


@pytest.mark.parametrize("with_host", [True, False])
def test_a_message_has_its_peer_and_tag(with_host: bool) -> None:
    t = TraceBuilder(rank=0, world_size=4)
    t.group([0, 1, 2, 3])
    tensor = t.tensor((6,))
    args = {"Concrete Inputs": ["", "", "3", "17"]}
    with t.op("c10d::send", inputs=[[tensor], "group", 3, 17], args=args):
        t.leaf("gloo:send", 2, inputs=[tensor])
    host, device = read_pair(t)
    (found,) = transferred(link(host if with_host else None, device))
    assert (found.name, found.target, found.tag, found.in_elements, found.dtype) == ("send", 3, 17, 6, "float")


def test_a_transfer_that_started_late_was_made_by_the_request_before_it_in_number() -> None:
    t = TraceBuilder(rank=0, world_size=4)
    t.group([0, 1, 2, 3])
    tensor = t.tensor((6,))
    for number, peer in ((10, 1), (20, 2)):
        with t.op("c10d::send", inputs=[[tensor], "group", peer, 0]) as request:
            request.rf_id = number
    for number in (11, 21):
        with t.op("gloo:send", duration=5, inputs=[tensor]) as made:
            made.rf_id = number
    assert [one.target for one in transferred(link_run(t))] == [1, 2]


def test_a_barrier_moves_nothing() -> None:
    t = TraceBuilder(rank=0, world_size=2)
    ask(t, "barrier", [t.tensor((1,), "bool"), "group", [], -1])
    with transfer(t, "barrier", [], 2, 20):
        pass
    (found,) = transferred(link_run(t))
    assert (found.name, found.in_elements) == ("barrier", 0)


def test_where_there_are_several_groups_the_default_one_is_a_guess_that_is_counted() -> None:
    counts = []
    for groups in ([[0, 1, 2, 3]], [[0, 1, 2, 3], [0, 1]]):
        t = TraceBuilder(rank=0, world_size=4)
        for ranks in groups:
            t.group(ranks)
        ask(t, "allreduce_", [[t.tensor((4,))]])
        with transfer(t, "all_reduce", [t.tensor((4,))], 2, 20):
            pass
        linked = link_run(t)
        assert transferred(linked)[0].ranks == [0, 1, 2, 3]
        counts.append(linked.report.guessed.get(Reason.DEFAULT_GROUP, 0))
    assert counts == [0, 1]


@pytest.mark.skipif(not TRACES, reason="EXECGRAPH_TRACES is not set")
@pytest.mark.parametrize("version", ["torch_2.1.2", "torch_2.3.1", "torch_2.4.1", "torch_2.5.1", "torch_2.15.0"])
@pytest.mark.parametrize("rank", [0, 1])
def test_real_gloo_transfers_are_all_known_with_and_without_the_host_trace(version: str, rank: int) -> None:
    folder = Path(TRACES) / "captures" / version / "ddp_gloo"
    device = read_device_trace(str(folder / f"kineto_rank{rank}.json.gz"))
    host = read_host_trace(str(folder / f"et_rank{rank}.json.gz"))
    expected = Counter(
        {("allreduce", 62756, "float"): 2, ("allreduce", 10, "float"): 4, ("broadcast", 10, "float"): 2}
        | {("allgather", 10, "float"): 2, ("send" if rank == 0 else "recv", 10, "float"): 2, ("barrier", 0, ""): 2}
    )
    for linked in (link(host, device), link(None, device)):
        found = transferred(linked)
        assert Counter((one.name, one.in_elements, one.dtype) for one in found) == expected
        message = next(one for one in found if one.name in ("send", "recv"))
        assert (message.source, message.target, message.tag) == ((-1, 1, 0) if rank == 0 else (0, -1, 0))
