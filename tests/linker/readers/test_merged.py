"""What tells a merged trace, and a rank's rows taken out of one, by rows made by hand."""

import pytest
from execgraph.linker.readers import DeviceTrace, merging_signs, one_rank
from execgraph.linker.readers.device_trace import ranks_of_processes
from execgraph.schema.errors import DataError
from execgraph.schema.linked import LARGEST_ID, MergedRank
from msgspec import Raw
from support.tables import ActivityRow, CallRow, EventRecordRow, OpRow, SyncRow, device_trace


def calls(*rows: CallRow) -> DeviceTrace:
    return device_trace(calls=rows)


def labelled(*ranks: int) -> DeviceTrace:
    return device_trace(labels=[(100 + rank, f"rank {rank}") for rank in ranks])


# whose processes they are


@pytest.mark.parametrize("text", ["rank 3", "Rank: 3", "python rank3", "rank_=#3 (host)"])
def test_a_label_tells_the_rank_of_its_process(text: str) -> None:
    assert ranks_of_processes(device_trace(labels=[(7, text)])) == {7: {3}}


@pytest.mark.parametrize("text", ["", "CPU", "GPU 3", "frank 3", "rank"])
def test_other_labels_do_not(text: str) -> None:
    assert ranks_of_processes(device_trace(labels=[(7, text)])) == {}


def test_a_trace_without_signs_is_itself_and_records_tell_more_than_labels() -> None:
    records = [MergedRank(rank=0, processes={7: 1, 8: 2}), MergedRank(rank=1, processes={8: 2})]
    assert ranks_of_processes(device_trace(labels=[(7, "rank 5")], merged=records)) == {7: {0}, 8: {0, 1}}
    trace = labelled(3)
    assert one_rank(trace, None) is trace and one_rank(trace, 9) is trace


# signs


def test_several_labels_are_a_sign_and_so_are_records_instead() -> None:
    assert merging_signs(labelled(3)) == []
    assert merging_signs(labelled(3, 4)) == ["2 rank labels"]
    trace = labelled(3, 4)
    trace.merged, trace.merge_marks = [MergedRank(rank=0)], ["a mark"]
    assert merging_signs(trace) == ["a mark", "1 ranks recorded as merged"]


def test_a_correlation_launched_by_several_processes_but_not_by_a_device_is_a_sign_and_is_not_counted_again() -> None:
    first, other = CallRow(correlation=5, process=1), CallRow(correlation=5, process=2)
    assert merging_signs(calls(first, other)) == ["1 correlations launched by several processes"]
    assert merging_signs(calls(first, other._replace(correlation=6))) == []
    assert merging_signs(calls(first._replace(correlation=0), other._replace(correlation=0))) == []
    assert merging_signs(calls(*(CallRow(100 * number, 100 * number + 10) for number in range(9)))) == []
    rows = [CallRow(0, 10, 5, process=1), CallRow(20, 30, 5, process=2), CallRow(40, 50, 5, process=2)]
    assert merging_signs(calls(*rows)) == ["1 correlations launched by several processes"]
    pair = [CallRow(correlation=5, process=1), CallRow(correlation=5, process=2)]
    on_device = device_trace(calls=pair, activities=[ActivityRow(process=2)])
    assert merging_signs(on_device) == []
    with_ops = device_trace(ops=[OpRow(process=2)], calls=pair, activities=[ActivityRow(process=2)])
    assert merging_signs(with_ops) == ["1 correlations launched by several processes"]


def test_more_than_a_tenth_of_calls_after_another_with_their_correlation_is_a_sign() -> None:
    once = [CallRow(100 * number, 100 * number + 10, number) for number in range(1, 9)]
    again = [CallRow(2000, 2010, 1), CallRow(3000, 3010, 2)]
    assert merging_signs(calls(*once, once[0]._replace(correlation=20), again[0])) == []
    assert merging_signs(calls(*once, *again)) == ["2 correlations launched more than once"]


@pytest.mark.parametrize(("start", "end", "is_sign"), [(10, 15, True), (9, 15, False), (2, 8, False), (12, 12, False)])
def test_a_call_is_after_another_if_it_begins_when_that_has_ended_and_lasts(start, end, is_sign):
    found = merging_signs(calls(CallRow(0, 10, 5), CallRow(start, end, 5)))
    assert found == (["1 correlations launched more than once"] if is_sign else [])


# one rank


@pytest.mark.parametrize(("count", "ending"), [(16, r"14, 15 \("), (17, r"14, 15 … \(")])
def test_up_to_sixteen_ranks_are_listed(count: int, ending: str) -> None:
    with pytest.raises(DataError, match=ending):
        one_rank(labelled(*range(count)), None)


def test_a_rank_has_the_rows_of_its_processes_and_what_they_launched_elsewhere() -> None:
    trace = device_trace(
        ops=[OpRow(process=100), OpRow(process=101)],
        calls=[*(CallRow(correlation=number, process=100) for number in (0, 1)), CallRow(correlation=6, process=101)],
        activities=[
            *(ActivityRow(correlation=number, process=0, stream=number) for number in (0, 1, 6)),
            *(ActivityRow(correlation=number, process=102, stream=20 + number) for number in (0, 1)),
        ],
        syncs=[SyncRow(correlation=1, process=0, stream=1), SyncRow(correlation=6, process=0, stream=6)],
        event_records=[EventRecordRow(process=100, event=1), EventRecordRow(process=101, event=2)],
        labels=[(100, "rank 0"), (101, "rank 1"), (102, "rank 2")],
        merge_marks=["a mark"],
    )
    taken = one_rank(trace, 0)
    assert (taken.rank, taken.labels, taken.merged, taken.merge_marks, taken.notes) == (0, [], [], [], [])
    assert (taken.processes, taken.activities.stream.tolist()) == ([100], [1])
    assert (taken.syncs.stream.tolist(), taken.event_records.event.tolist()) == ([1], [1])
    assert one_rank(trace, 2).activities.stream.tolist() == [20, 21]
    trace.skipped["damaged"] = 1
    assert one_rank(trace, 0).notes == ["device.json: what was left out of it is counted over all its ranks"]


RECORD = MergedRank(
    rank=3,
    time_shift_ns=50,
    id_offset=100,
    processes={1000: 10, 5: 0},
    threads={77: 7},
    metadata=Raw(b'{"distributedInfo": {"rank": 3, "world_size": 8}, "baseTimeNanoseconds": 9}'),
)


def restored(**other: object) -> DeviceTrace:
    large = 100 + LARGEST_ID
    return one_rank(
        device_trace(
            ops=[OpRow(60, 70, "mine", process=1000, thread=77), OpRow(name="of another", process=2000)],
            calls=[CallRow(60, 70, number, process=1000, thread=5) for number in (101, 100, large, large + 1)],
            activities=[
                ActivityRow(80, 90, 101, process=5, device=5, stream=77),
                ActivityRow(80, 90, 101, process=5, device=9, stream=7),
            ],
            syncs=[SyncRow(60, 70, process=5, correlation=101, record_correlation=-1)],
            event_records=[EventRecordRow(process=5, correlation=102)],
            merged=[RECORD, MergedRank(rank=4, processes={2000: 0})],
            **other,
        ),
        3,
    )


def test_what_merging_did_to_a_rank_is_undone() -> None:
    own = restored(recording_start=60)
    assert (own.rank, own.world_size, own.base_time_ns, own.recording_start) == (3, 8, 9, 10)
    assert (own.ops.process.tolist(), own.ops.thread.tolist(), own.ops.name.table) == ([10], [7], ["mine"])
    assert (own.ops.start.tolist(), own.ops.end.tolist()) == ([10], [20])
    assert own.calls.correlation.tolist() == [1, 100, LARGEST_ID, 101 + LARGEST_ID]
    assert own.calls.thread.tolist() == [5] * 4
    assert (own.activities.process.tolist(), own.activities.device.tolist()) == ([0, 0], [0, 9])
    assert (own.activities.stream.tolist(), own.activities.start.tolist()) == ([-1, 7], [30, 30])
    assert (own.syncs.correlation.tolist(), own.syncs.record_correlation.tolist()) == ([1], [-1])
    assert own.event_records.correlation.tolist() == [2]


def test_where_recording_began_stays_unknown() -> None:
    assert restored().recording_start is None
