"""Transfers of the host: who asked for each, on which lane it is, who used the result, which thread did nothing.

gloo: transfers on threads of their own, asked for by c10d ops elsewhere.
"""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execgraph.linker.communication import host_communications, host_transfers, messages_in_flight, transfer_waits
from execgraph.linker.communication.transfers import (
    WAITS,
    Bytes,
    Transfers,
    TransferWaits,
    Users,
    byte_ranges,
    thread_gaps,
)
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.linker.threads import Gap, ThreadActivity, Wait
from execgraph.schema.columns import ABSENT, BytesColumn, OpRows, ThreadIntervals, nest
from execgraph.schema.linked import FOREVER, NO_TENSORS, Args, Arguments, Communication, LinkedTrace, Ops, ProcessGroup
from execgraph.schema.reasons import Reason
from msgspec import Raw
from support.builder.records import Tensor
from support.builder.timeline import TraceBuilder
from support.runs import link_run, read_pair
from support.tables import Called, Op, calls, column, ops

MAIN, GLOO, OTHER = 1, 2, 3
REQUEST, TRANSFER = "c10d::allreduce_", "gloo:all_reduce"
NO_CALLS = calls()


def inputs(*tensors: str, said: str = "") -> bytes:
    """The arguments of an op as the host trace has them: tensors, then a truth value."""
    values, types = [*tensors, *([said] if said else [])], ['"Tensor(float)"'] * len(tensors) + ['"Bool"'] * bool(said)
    return f'{{"values":[{",".join(values)}],"types":[{",".join(types)}]}}'.encode()


def tensor(storage: int, offset: int = 0, count: int = 4, size: int = 4) -> str:
    return f'[9,{storage},{offset},{count},{size},"cpu"]'


def asked(name: str = REQUEST, start: int = 0, end: int = 10, **more: object) -> Op:
    return Op(name, start, end, **({"thread": MAIN, "inputs": NO_TENSORS} | more))


def ran(start: int, end: int, name: str = TRANSFER, thread: int = GLOO) -> Op:
    return Op(name, start, end, thread, inputs=NO_TENSORS)


def transfers(table: Ops, op: int = 1, request: int = 0, numbered: bool = True) -> Transfers:
    return Transfers(table, {}, column(op), column(op), column(request), np.array([numbered]))


def waits(*rows: Op, numbered: bool = True) -> TransferWaits:
    """Around the second of the rows, which the first one asked for."""
    return waits_around(transfers(ops(*rows), numbered=numbered))


def waits_around(known: Transfers) -> TransferWaits:
    return transfer_waits(known, nested_in(known.ops), NO_CALLS)


# Quiet stretches of a thread


def quiet(*rows: Op, called: tuple[Called, ...] = ()) -> ThreadActivity:
    table = ops(*rows)
    return thread_gaps(table, nested_in(table), calls(*called))(0)


def nested_in(table: Ops) -> OpRows:
    return OpRows(nest(ThreadIntervals(table.thread, table.start, table.end)).parent)


def test_a_thread_is_quiet_outside_ops_and_inside_those_that_only_annotate_or_wait() -> None:
    thread = quiet(Op("aten::mm", 10, 20), Op("step", 30, 60), Op("aten::add", 40, 50), Op(WAITS, 70, 80, schema="x"))
    around = {5: (ABSENT, 10), 10: (10, 10), 15: (15, 15), 20: (20, 30), 35: (30, 40), 45: (45, 45), 50: (50, 60)}
    around |= {75: (70, 80), 80: (80, FOREVER), 99: (80, FOREVER)}
    assert {time: thread.gap_at(time) for time in around} == {time: Gap(*pause) for time, pause in around.items()}


@pytest.mark.parametrize("name", ["aten::mm", "c10d::send", "gloo:send"])
def test_an_op_that_computes_or_communicates_is_not_quiet(name: str) -> None:
    assert quiet(Op(name, 10, 20)).gap_at(15) == Gap(15, 15)
    assert quiet(Op("mine", 10, 20, schema="mine()")).gap_at(15) == Gap(15, 15)
    assert quiet(Op("mine", 10, 20)).gap_at(15) == Gap(10, 20)


def test_neither_a_call_nor_what_other_threads_do_is_quiet_time_of_a_thread() -> None:
    thread = quiet(Op("aten::mm", 10, 20, thread=1), Op("aten::mm"), called=(Called(30, 40),))
    assert thread.gap_at(15) == Gap(ABSENT, 30)
    assert thread.gap_at(35) == Gap(35, 35)


@pytest.mark.parametrize(
    ("end", "since", "until", "pause"),
    [
        (30, 20, 99, (20, 40)), (39, 10, 99, (20, 40)), (20, 10, 99, (20, 40)), (19, 10, 99, None), (60, 10, 99, (20, 40)),
        (61, 10, 99, None), (30, 10, 20, None), (30, 10, 21, (20, 40)), (82, 50, 99, None), (65, 50, 99, (60, 65)),
        (70, 50, 99, (60, 65)), (71, 50, 99, None),
    ],
)  # fmt: skip
def test_the_longest_pause_was_a_wait_for_what_ended_about_then(end, since, until, pause):
    thread = quiet(Op(start=0, end=20), Op(start=40, end=60), Op(start=65, end=90))
    assert thread.waiting_for(Gap(0, end), since, until, column(end)) == pause


@pytest.mark.parametrize(
    ("start", "end", "until", "other", "begin"),
    [
        (500_019, 500_035, FOREVER, 500_035, 20), (500_020, 500_035, FOREVER, 500_035, 500_030),
        (0, 500_035, FOREVER, 500_005, 20), (0, 500_035, FOREVER, 500_006, 500_030),
        (0, 700_020, FOREVER, 700_020, 20), (0, 700_021, FOREVER, 700_021, None), (0, 900_000, 700_020, 900_000, 20),
    ],
)  # fmt: skip
def test_an_earlier_pause_was_a_wait_if_the_end_may_be_recorded_late_and_nothing_else_ended_then(
    start: int, end: int, until: int, other: int, begin: int | None
) -> None:
    thread = quiet(Op(start=0, end=20), Op(start=500_020, end=500_030), Op(start=500_040, end=999_000))
    pause = thread.waiting_for(Gap(start, end), 10, until, np.sort(column(other, end)))
    assert (pause and pause.begin) == begin


def test_a_thread_that_did_nothing_else_waited_however_late_it_went_on() -> None:
    thread = quiet(Op(start=0, end=20), Op(start=90, end=95))
    assert thread.waiting_for(Gap(0, 21), 20, FOREVER, column(21)) == Gap(20, 90)
    assert quiet(Op(start=0, end=20), Op(start=25, end=95)).waiting_for(Gap(0, 31), 20, FOREVER, column(31)) is None


# Users of storages


def test_tensors_of_one_storage_cover_it_from_the_first_to_the_last_byte() -> None:
    text = inputs(tensor(5, 2, 4), tensor(5, 1, 1), tensor(6, 0, 3, 2), tensor(5, 3, 2))
    found = byte_ranges(Arguments(BytesColumn.of([text]), BytesColumn.of(())).tensors)
    assert found == {5: Bytes(4, 24), 6: Bytes(0, 6)}


def first_user(*rows: Op, since: int = 0) -> int:
    """Of bytes 16 to 32 of storage 5."""
    written = {5: Bytes(16, 32)}
    return Users(ops(*rows), [written], np.array([7])).first(written, since)


@pytest.mark.parametrize(("offset", "count", "uses"), [(0, 4, False), (0, 5, True), (7, 4, True), (8, 4, False)])
def test_an_op_uses_what_it_shares_a_byte_with(offset: int, count: int, uses: bool) -> None:
    assert first_user(Op(start=0, end=1, inputs=inputs(tensor(5, offset, count)))) == (0 if uses else -1)


def test_the_first_user_from_then_on_is_meant() -> None:
    def use(start: int, storage: int = 5, **more: str) -> Op:
        return Op(start=start, end=start + 1, inputs=inputs(tensor(storage, 4)), **more)

    assert first_user(use(30), use(20), use(10), since=20) == 1
    assert first_user(use(10, storage=6), use(20), since=0) == 1
    assert first_user(use(10, schema="aten::view(Tensor(a) self) -> Tensor(a)"), use(20)) == 1
    assert first_user(use(10, schema="aten::add_(Tensor(a!) self) -> Tensor(a!)"), use(20)) == 0
    assert first_user(use(10, schema="aten::relu(Tensor self) -> Tensor"), use(20)) == 0
    assert first_user(use(10, name="gloo:send"), use(ABSENT), use(20)) == 2
    assert first_user(use(0), use(20)) == 0
    assert first_user(use(10, thread=7), use(20)) == 1


def test_of_several_storages_the_earliest_user_of_any_is_meant() -> None:
    written = {5: Bytes(0, 8), 6: Bytes(0, 8)}
    table = ops(Op(start=20, end=21, inputs=inputs(tensor(5))), Op(start=10, end=11, inputs=inputs(tensor(6))))
    for each, first in (([{5: Bytes(0, 8)}, {6: Bytes(0, 8)}], 1), ([], -1)):
        assert Users(table, each, np.empty(0, np.int64)).first(written, 0) == first


# Requests


def requests(*rows: Op, rf_id: list[int] | None = None, of_host: list[bool] | None = None) -> Transfers:
    by_host, number = np.array(of_host or [True] * len(rows)), column(*(rf_id or [0] * len(rows)))
    table, t = replace(ops(*rows), rf_id=number, recorded_by_host=by_host), TraceBuilder()
    t.leaf("aten::mm", 1)
    return host_transfers(table, read_pair(t)[1], column(0))


def test_a_transfer_belongs_to_the_last_request_before_its_number_or_else_the_earliest_of_its_name() -> None:
    rows = [asked(), asked(start=20, end=30), asked(start=40, end=50), ran(60, 70), ran(61, 70), ran(62, 70)]
    found = requests(*rows, rf_id=[5, 3, 0, 6, 4, 3])
    assert found.request.tolist() == [0, 1, 1]
    assert found.has_request_id.all()
    assert requests(*rows, rf_id=[5, 3, 0, 2, 1, 3]).request.tolist() == [-1, -1, 1]
    assert requests(ran(60, 70), rf_id=[1]).request.tolist() == [-1]
    assert requests(asked(), ran(60, 70), rf_id=[1, 1]).request.tolist() == [0]
    rows = [asked(start=20), asked(start=10), asked("c10d::send", start=0), ran(20, 70), ran(10, 70), ran(9, 70)]
    found = requests(*rows)
    assert found.op.tolist() == [5, 4, 3]
    assert found.request.tolist() == [-1, 1, 0]
    assert not found.has_request_id.any()
    rows = [asked(start=0), asked(start=5), ran(20, 30), ran(25, 30)]
    found = requests(*rows, rf_id=[3, 0, 4, 0])
    assert (found.request.tolist(), found.has_request_id.tolist()) == ([0, 1], [True, False])
    assert requests(*rows, rf_id=[3, 5, 4, 0]).ops.rf_id.tolist() == [3, 5, 4, 5]


def test_nodes_of_the_host_trace_alone_stand_for_as_many_transfers_in_order() -> None:
    rows = [Op(TRANSFER), Op(TRANSFER), ran(30, 40), ran(20, 25), Op("gloo:send"), ran(50, 60, "gloo:recv")]
    of_host = [True, True, False, False, True, False]
    assert requests(*rows, of_host=of_host).node.tolist() == [0, 1, 5]
    assert requests(*rows[1:], of_host=of_host[1:]).node.tolist() == [2, 1, 4]
    assert requests(*rows, of_host=[True, True, True, True, True, False]).node.tolist() == [3, 2, 5]


def test_threads_that_transfer_are_those_on_which_nothing_is_asked() -> None:
    table = ops(asked(), ran(20, 30), ran(20, 30, thread=MAIN), ran(20, 30, thread=OTHER))
    found = Transfers(table, {}, column(1, 2, 3), column(1, 2, 3), column(0, 0, -1), np.array([True] * 3))
    assert found.threads.tolist() == [GLOO, OTHER]


# Lanes of messages


def lanes(*messages: tuple[int, int, int]) -> list[int]:
    """The threads that messages, each given by thread, start and end, are put on."""
    t = TraceBuilder()
    for _ in messages:
        t.leaf("gloo:send", 5)
    device, (thread, start, end) = read_pair(t)[1], (column(*values) for values in zip(*messages, strict=True))
    device = replace(device, ops=replace(device.ops, thread=thread, start=start, end=end))
    return messages_in_flight(device).ops.thread.tolist()


def test_messages_share_a_lane_of_their_thread_that_is_free() -> None:
    assert lanes((1, 0, 10), (1, 10, 20), (1, 20, 30)) == [-2, -2, -2]
    assert lanes((1, 0, 10), (1, 9, 20), (1, 19, 30), (1, 20, 30)) == [-2, -3, -2, -3]
    assert lanes((1, 0, 10), (1, 9, 20), (1, 10, 30), (1, 19, 25)) == [-2, -3, -2, -4]
    assert lanes((2, 50, 60), (1, 0, 10)) == [-3, -2]
    assert lanes((1, 20, 30), (1, 0, 10)) == [-2, -2]


# Who waited


def test_a_transfer_follows_its_request_and_the_end_of_what_its_thread_did_before() -> None:
    begun = [Wait(MAIN, 10, GLOO, 20, 20, "record"), Wait(MAIN, 10, GLOO, 10, 5, "record")]
    assert waits(asked(), ran(21, 40), Op(start=15, end=20, thread=GLOO)).handoffs[:1] == begun[:1]
    assert waits(asked(), ran(21, 40), Op(start=0, end=5, thread=GLOO)).handoffs[:1] == begun[1:]
    at_once = waits(asked(end=30), ran(21, 40), Op(start=0, end=21, thread=GLOO), numbered=False).handoffs[0]
    assert at_once == Wait(MAIN, 21, GLOO, 21, 20, "call order")


@pytest.mark.parametrize(("said", "found"), [("false", "record"), ("true", "timing"), ("", "timing")])
def test_a_request_that_is_not_asynchronous_is_waited_for(said: str, found: str) -> None:
    rows = (asked(inputs=inputs(said=said)), ran(20, 40), Op(start=45, end=50, thread=MAIN))
    assert waits(*rows).handoffs[1:] == [Wait(GLOO, 40, MAIN, 40, 10, found)]


def test_the_last_truth_value_says_whether_a_request_blocks() -> None:
    both = b'{"values":[false,true],"types":["Bool","Bool"]}'
    found = waits(asked(inputs=both), ran(20, 40), Op(start=45, end=50, thread=MAIN)).handoffs[1]
    assert found.known_by == "timing"


@pytest.mark.parametrize(("text", "found"), [('["False"]', "record"), ('["True"]', "timing"), ('["", "1"]', "timing")])
def test_what_only_the_device_trace_has_says_whether_a_request_blocks(text: str, found: str) -> None:
    table = ops(asked(), ran(20, 40), Op(start=45, end=50, thread=MAIN))
    table = replace(table, recorded_by_host=np.array([False] * 3))
    known = replace(transfers(table), recorded={0: Args(concrete_inputs=Raw(text.encode()))})
    assert [wait.known_by for wait in waits_around(known).handoffs] == ["record", found]


def test_the_first_op_of_all_may_be_the_user() -> None:
    given = inputs(tensor(5))
    table = ops(Op(start=45, end=50, thread=OTHER, inputs=given), asked(inputs=given), ran(20, 40))
    found = waits_around(transfers(table, op=2, request=1))
    assert found.handoffs[1] == Wait(GLOO, 40, OTHER, 45, 45, "record")
    assert (found.without_request, found.without_wait) == (0, 0)


def test_to_ask_for_another_transfer_of_the_same_tensor_is_not_to_wait_for_the_first() -> None:
    given, use = inputs(tensor(5)), Op(start=45, end=50, thread=OTHER, inputs=inputs(tensor(5)))
    again = asked(start=25, end=30, inputs=given)
    assert waits(asked(inputs=given), ran(20, 40), again, use).handoffs[1:] == [Wait(GLOO, 40, OTHER, 45, 45, "record")]


def test_a_message_ends_with_the_wait_for_it_on_the_thread_that_asked() -> None:
    rows = (asked("c10d::send"), ran(12, 40, "gloo:send", thread=-2))
    assert waits(*rows, Op(start=15, end=30, thread=MAIN)).handoffs[1:] == [Wait(-2, 40, MAIN, 40, 30, "record")]
    assert waits(*rows).handoffs[1:] == [Wait(-2, 40, MAIN, 40, 10, "record")]
    busy = waits(*rows, Op(start=15, end=50, thread=MAIN))
    assert (len(busy.handoffs), busy.without_request, busy.without_wait) == (1, 0, 1)


@pytest.mark.parametrize(("name", "known"), [(REQUEST, True), ("c10d::send", False), ("c10d::barrier", False)])
def test_who_uses_what_a_request_writes_has_waited(name: str, known: bool) -> None:
    given = inputs(tensor(5), tensor(6))
    rows = (asked(name, inputs=given), ran(20, 40), Op(start=10, end=38, thread=MAIN))
    first, second = (Op(start=45, end=50, thread=OTHER, inputs=inputs(tensor(storage))) for storage in (5, 6))
    user = [Wait(GLOO, 40, OTHER, 45, 45, "record")]
    assert (waits(*rows, first).handoffs[1:] == user) == known
    assert waits(*rows, second).handoffs[1:] != user


def test_a_user_without_a_pause_had_what_it_used_by_its_start_and_a_wait_by_its_end() -> None:
    rows = (asked(inputs=inputs(tensor(5))), ran(20, 40), Op(start=10, end=45, thread=MAIN))
    use = Op(start=45, end=60, thread=MAIN, inputs=inputs(tensor(5)))
    assert waits(*rows, use).handoffs[1:] == [Wait(GLOO, 40, MAIN, 45, 45, "record")]
    early = use._replace(start=39)
    assert waits(*rows[:2], rows[2]._replace(end=39), early).handoffs[1] == Wait(GLOO, 39, MAIN, 39, 39, "record")
    exact = use._replace(start=40)
    found = waits(*rows[:2], rows[2]._replace(end=40), exact).handoffs[1:]
    assert found == [Wait(GLOO, 40, MAIN, 40, 40, "record")]
    found = waits(*rows[:2], rows[2]._replace(end=39), early._replace(name=WAITS)).handoffs[1:]
    assert found == [Wait(GLOO, 40, MAIN, 40, 39, "record")]


def test_who_waits_for_transfers_on_the_thread_that_asked_or_of_unknown_requests_is_nobody() -> None:
    assert waits(asked(), ran(2, 8, thread=MAIN)).handoffs == []
    table = ops(Op(REQUEST, thread=MAIN, inputs=NO_TENSORS), ran(20, 40))
    for request in (-1, 0):
        found = waits_around(transfers(table, request=request))
        assert (found.handoffs, found.without_request, found.without_wait) == ([], 1, 0)


# What was transferred


def test_a_transfer_is_completed_by_what_its_request_says() -> None:
    def told(request: str, transfer: str, numbers: str, groups: list[ProcessGroup]) -> Communication:
        given = f'{{"values":[{tensor(5)},{numbers}],"types":["Tensor(float)","Int","Int"]}}'.encode()
        rows = ops(asked(request, inputs=given, outputs=given), ran(20, 40, transfer)._replace(inputs=given))
        (found,), position = host_communications(transfers(rows), groups)
        assert position.tolist() == [-1, 0]
        return found

    pair = ProcessGroup("g", "d", [0, 1], 2)
    send = told("c10d::send", "gloo:send", "3,7", [pair, ProcessGroup("h")])
    assert (send.name, send.dtype, send.in_elements, send.out_elements) == ("send", "float", 4, 4)
    assert (send.group_rank, send.tag) == (3, 7)
    assert (send.group, send.description, send.group_size, send.ranks) == ("g", "d", 2, [0, 1])
    root = told("c10d::broadcast_", "gloo:broadcast", "1,7", [])
    assert (root.group_rank, root.tag, root.group) == (1, -1, "")
    assert told("c10d::allreduce_", "gloo:all_reduce", "1,7", []).group_rank == -1
    assert told("c10d::reduce_scatter_", "gloo:gather", "1,7", []).group_rank == -1
    assert told("c10d::barrier", "gloo:barrier", "1,7", []).in_elements == 0


def test_numbers_that_only_the_device_trace_has_are_read_from_its_text() -> None:
    table = replace(ops(asked("c10d::recv_"), ran(20, 40, "gloo:recv")), recorded_by_host=np.array([False, False]))
    for text, place, tag in (('["", "-1", "12"]', -1, 12), ('["x", "2"]', 2, -1), ("[]", -1, -1)):
        found = replace(transfers(table), recorded={0: Args(concrete_inputs=Raw(text.encode()))})
        (told,), _ = host_communications(found, [])
        assert (told.group_rank, told.tag) == (place, tag)


def test_without_tensors_in_the_host_trace_those_of_the_device_trace_count() -> None:
    def given(host: bytes) -> tuple[str, int]:
        rows = ops(asked(), ran(20, 40)._replace(inputs=host))
        known = {1: Args(collective="all_reduce", dtype="Float", in_elements=6)}
        (told,), _ = host_communications(replace(transfers(rows, request=-1), recorded=known), [])
        return told.dtype, told.in_elements

    assert given(NO_TENSORS) == ("Float", 6)
    assert given(inputs(tensor(5, count=0))) == ("float", 0)
    assert given(inputs(tensor(5, count=1))) == ("float", 1)
    rows = ops(asked(inputs=inputs(tensor(5, count=9))), ran(20, 40))
    assert host_communications(transfers(rows), [])[0][0].in_elements == 9


TRACES = os.environ.get("EXECGRAPH_TRACES", "")


def ask(t: TraceBuilder, name: str, inputs: list[Any], outputs: list[Any] = []) -> None:  # noqa: B006
    t.leaf(f"c10d::{name}", 2, inputs=inputs, outputs=outputs)


def transferred(linked: LinkedTrace) -> list[Communication]:
    """The communications of the host by the start of their transfers."""
    ops = linked.ops
    rows = sorted(np.flatnonzero(ops.communication_row >= 0).tolist(), key=lambda row: int(ops.start[row]))
    return [linked.communications[int(ops.communication_row[row])] for row in rows]


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
    found = [(one.name, one.in_elements, one.dtype) for one in transferred(link_run(t))]
    assert found == [("allreduce", 5, "float")] * 2


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
        given = {"inputs": [tensor] * shapes, "only": "device"}
        with t.thread(2 + number % 2, start=50 + 20 * number), t.op("gloo:all_reduce", **given):
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
