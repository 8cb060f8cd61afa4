"""What becomes of each column when two traces are linked, and what the report counts: by rows made by hand.

`link` takes traces or their files, reads each as it is read by itself, and answers wrong arguments in its own words.
"""

from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.link import link, read_traces
from execgraph.linker.readers import DeviceTrace, read_device_trace, read_host_trace
from execgraph.linker.windows import Window
from execgraph.schema.columns import ABSENT
from execgraph.schema.errors import DataError
from execgraph.schema.linked import NO_TENSORS, LinkedTrace
from execgraph.schema.reasons import Reason
from support.runs import read_pair, small_run
from support.tables import ActivityRow, CallRow, NodeRow, OpRow, SyncRow, device_trace, host_trace

HOST = host_trace(
    NodeRow(1, "[pytorch|profiler|execution_trace|process]"),
    NodeRow(4, "aten::mm", parent=1, schema_text="mm()", rf_id=7, fw_parent=2, scope=3, tid=1, fw_tid=9),
    NodeRow(5, "aten::lost", parent=4, rf_id=9),
    NodeRow(6, "aten::add", parent=4, rf_id=8, seq_id=0),
)
DEVICE = device_trace(
    ops=[
        OpRow(0, 100, "outer", annotation=1),
        OpRow(10, 60, "aten::mm", rf_id=7, sequence=21, forward_thread=31),
        OpRow(20, 40, "aten::add", rf_id=8, sequence=22, forward_thread=32),
        OpRow(25, 30, "inner", sequence=23, forward_thread=33),
    ]
)


def linked_pair() -> LinkedTrace:
    return link(HOST, DEVICE)


# ops


def test_ops_are_the_host_nodes_and_those_of_the_device_trace_alone_with_its_times_and_parents() -> None:
    ops = linked_pair().ops
    assert ops.id.tolist() == [1, 4, 5, 6, 7, 8]
    assert [ops.name[row] for row in range(2, 6)] == ["aten::lost", "aten::add", "outer", "inner"]
    assert ops.recorded_by_host.tolist() == [True] * 4 + [False] * 2
    assert ops.start.tolist() == [ABSENT, 10, ABSENT, 20, 0, 25]
    assert ops.end.tolist() == [ABSENT, 60, ABSENT, 40, 100, 30]
    assert ops.exclusive.tolist() == [ABSENT, 30, ABSENT, 15, 50, 5]
    assert ops.thread.tolist() == [ABSENT, 1, ABSENT, 1, 1, 1]
    assert ops.parent_id.tolist() == [-1, 7, 4, 4, -1, 6]


def test_an_op_that_the_device_trace_nests_in_none_is_outermost_if_the_host_trace_has_it_inside_its_own_child() -> None:
    host = host_trace(
        NodeRow(1, "[pytorch|profiler|execution_trace|process]"),
        NodeRow(4, "aten::mm", parent=5, rf_id=7),
        NodeRow(5, "aten::add", parent=1, rf_id=8),
    )
    device = device_trace(ops=[OpRow(10, 60, "aten::mm", rf_id=7), OpRow(20, 40, "aten::add", rf_id=8)])
    assert link(host, device).ops.parent_id.tolist() == [-1, -1, 4]


def test_what_the_host_trace_says_of_an_op_counts_and_what_it_does_not_is_filled_up() -> None:
    ops = linked_pair().ops
    assert ops.rf_id.tolist() == [0, 7, 9, 8, 0, 0]
    assert ops.fw_parent.tolist() == [0, 2, 0, 0, 0, 0]
    assert ops.seq_id.tolist() == [-1, 21, -1, 0, -1, 23]
    assert ops.fw_tid.tolist() == [0, 9, 0, 32, 0, 33]
    assert ops.tid.tolist() == [0, 1, 0, 0, -1, -1]
    assert ops.scope.tolist() == [0, 3, 0, 0, 7, 0]
    assert [ops.op_schema[row] for row in range(6)] == ["", "mm()", "", "", "", ""]
    assert ops.communication_row.tolist() == [-1] * 6


def test_without_a_host_trace_all_ops_are_the_devices_with_their_arguments() -> None:
    device = device_trace([OpRow(0, 9, arguments='{"values": [1]}'), OpRow(10, 19)])
    linked = link(None, device)
    assert linked.ops.id.tolist() == [1, 2]
    assert linked.ops.inputs == [b'{"values":[1]}', NO_TENSORS]
    assert linked.ops.outputs == [NO_TENSORS, NO_TENSORS]
    assert linked.report.notes == [
        "no host trace: 1 of 2 ops have shapes and types, but tensor ids were not recorded, so data dependencies cannot be derived"
    ]
    assert (linked.report.matched_by, linked.report.agreement_pct, linked.report.host_ops) == ("", 0, 0)


# calls and activities


def with_work() -> DeviceTrace:
    return device_trace(
        ops=[OpRow(0, 100, "outer"), OpRow(10, 60, "inner")],
        calls=[CallRow(20, 25, 5), CallRow(70, 75, 6), CallRow(200, 205, 7)],
        activities=[
            *(
                ActivityRow(start, start + 5, number, stream=number)
                for number, start in ((50, 500), (5, 50), (6, 80), (7, 210))
            ),
            ActivityRow(900, 910),
        ],
        syncs=[SyncRow(correlation=6), SyncRow(correlation=0), SyncRow(correlation=99)],
    )


def test_activities_belong_to_their_call_and_the_op_around_it() -> None:
    linked = link(None, with_work())
    assert linked.calls.op_row.tolist() == [1, 0, -1]
    assert linked.activities.call_row.tolist() == [-1, 0, 1, 2, -1]
    assert linked.activities.op_row.tolist() == [-1, 1, 0, -1, -1]
    assert linked.activities.id.tolist() == [3, 4, 5, 6, 7]
    report = linked.report
    assert (report.calls, report.activities, report.linked, report.device_ops) == (3, 5, 3, 2)
    assert report.oddities[Reason.ACTIVITIES_WITHOUT_CALL] == 2
    assert report.oddities[Reason.ACTIVITIES_OUTSIDE_OPS] == 1
    assert report.dropped[Reason.SYNC_RECORDS_WITHOUT_CALL] == 2
    assert linked.info.sync_records == 3


# what the trace says of itself


def test_process_rank_and_world_size_are_those_recorded_the_process_the_hosts_first() -> None:
    ops = [OpRow(process=8, rf_id=7), OpRow(process=6)]
    assert link(None, device_trace(ops)).info.pid == 6
    assert link(None, device_trace(activities=[ActivityRow(0, 5)])).info.pid == -1
    assert link(host_trace(NodeRow(1, rf_id=7), pid=8), device_trace(ops)).info.pid == 8
    assert link(host_trace(NodeRow(1, rf_id=7)), device_trace(ops)).info.pid == 6
    unknown = link(None, device_trace([OpRow()]))
    assert (unknown.info.rank, unknown.info.world_size, unknown.report.world_size) == (-1, -1, -1)
    known = link(None, device_trace([OpRow()], rank=0, world_size=1))
    assert (known.info.rank, known.info.world_size, known.report.world_size) == (0, 1, 1)
    assert link(None, device_trace([OpRow()]), rank=0).info.rank == 0


def test_another_rank_is_refused_unless_that_is_allowed() -> None:
    trace = device_trace([OpRow()], rank=0)
    with pytest.raises(DataError, match=r"device.json: is of rank 0, not 1; leave the rank out"):
        link(None, trace, rank=1)
    assert link(None, trace, rank=0).info.rank == link(None, trace, rank=1, allow_mismatch=True).info.rank == 0


def test_files_and_times_are_those_of_the_host_trace() -> None:
    info = linked_pair().info
    assert (info.source_host, info.source_device, info.schema) == ("host.json", "device.json", "1.1.1")
    assert (info.time, info.start_ts, info.finish_ts) == ("today", 1, 2)


# the report


def test_what_was_matched_and_what_was_not_is_counted_and_agreement_is_in_percent() -> None:
    report = linked_pair().report
    assert (report.host_ops, report.device_ops, report.matched) == (3, 4, 2)
    assert (report.matched_by, report.agreement_pct) == ("record function id", 100)
    assert report.oddities == {Reason.DEVICE_ONLY_OPS: 2}
    assert report.dropped == {Reason.HOST_OPS_WITHOUT_TIMES: 1}
    host = host_trace(*(NodeRow(number, name, rf_id=number) for number, name in enumerate("abc", 1)))
    device = device_trace([OpRow(10 * n, 10 * n + 5, name, rf_id=n) for n, name in enumerate("abx", 1)])
    report = link(host, device).report
    assert report.agreement_pct == 66.67
    assert report.oddities[Reason.MISNAMED_OPS] == 1


def test_what_lies_outside_the_window_is_counted_by_table() -> None:
    linked = link(None, with_work(), window=Window(clock=(0, 0.06)))
    assert (len(linked.ops), len(linked.calls), len(linked.activities)) == (2, 1, 1)
    assert linked.report.dropped == {
        Reason.CALLS_OUTSIDE: 2,
        Reason.ACTIVITIES_OUTSIDE: 4,
        Reason.SYNC_RECORDS_OUTSIDE: 1,
        Reason.SYNC_RECORDS_WITHOUT_CALL: 2,
    }
    assert linked.report.oddities[Reason.SHORTENED_OPS] == 1
    assert linked.report.notes[0] == "the window is from 0.000 to 0.060 µs of the trace"


def test_a_window_of_ops_alone_is_not_empty_and_one_of_nothing_is() -> None:
    trace = device_trace([OpRow(0, 100), OpRow(5_000, 5_100)])
    assert len(link(None, trace, window=Window(clock=(0, 1))).ops) == 1
    with pytest.raises(DataError, match=r"nothing was recorded in the window, 1.000 to 2.000 µs of the trace"):
        link(None, trace, window=Window(clock=(1, 2)))


# traces, or their files


def test_both_traces_are_those_that_are_read_alone(data: Path) -> None:
    host_path, device_path = (str(data / "training" / f"{kind}_rank0.json.gz") for kind in ("host", "device"))
    read = list[int]()
    host, device = read_traces(host_path, device_path, on_progress=read.append)
    assert host is not None and host.id.tolist() == read_host_trace(host_path).id.tolist()
    assert device.activities.start.tolist() == read_device_trace(device_path).activities.start.tolist()
    assert sum(read) > 0


def test_without_a_host_trace_the_arguments_of_ops_come_from_the_device_trace(data: Path) -> None:
    path = str(data / "training" / "device_rank0.json.gz")
    host, device = read_traces(None, path)
    expected = read_device_trace(path, arguments=True).ops.arguments
    assert host is None and len(expected.table) > 1 and device.ops.arguments.table == expected.table


def test_the_first_trace_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path / 'host'}: cannot be read"):
        read_traces(str(tmp_path / "host"), str(tmp_path / "device"))


FILES = [Path("tests/data/training") / f"{kind}_rank0.json.gz" for kind in ("host", "device")]
PAIR = read_pair(small_run())


def test_files_link_as_the_traces_in_them_and_a_device_trace_alone_keeps_its_arguments() -> None:
    linked = link(FILES[0], str(FILES[1]))
    assert linked.report.matched == linked.report.host_ops == 200
    assert "0 of 200 ops have shapes" not in link(None, FILES[1]).report.notes[-1]


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("a",), r"lacks the device trace; without a host trace write link\(None, device\)"),
        ((PAIR[1], PAIR[0]), "these two are swapped"),
        ((["a"],), r"takes a HostTrace, the path of a host trace, or None first, not list"),
        ((3, PAIR[1]), "takes a HostTrace, the path of a host trace, or None first, not int"),
        ((PAIR[0], [PAIR[1]]), "takes a DeviceTrace or the path of a device trace second, not list"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[Any, ...], answer: str) -> None:
    with pytest.raises(TypeError, match=answer):
        link(*arguments)


def test_swapped_files_are_told_apart_without_the_options_of_a_command() -> None:
    with pytest.raises(DataError, match=r"a device trace \(it has traceEvents\)") as raised:
        link(FILES[1], FILES[0])
    assert "--" not in str(raised.value)
