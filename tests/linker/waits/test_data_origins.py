"""Which streams the data of launches comes from: by hand-made ops with their tensors."""

from dataclasses import replace
from itertools import count

from execgraph.linker.waits import StreamKey
from execgraph.linker.waits.data_origins import DataOrigins
from support.tables import Called, Op, Ran, activities, calls, column, ops

CALLED = [Called(100 * number, 100 * number + 50) for number in range(5)]
FIRST, SECOND, THIRD = (StreamKey(0, stream) for stream in (7, 20, 24))


TENSORS = count(100)


def tensor(storage: int, device: str = "cuda:0") -> bytes:
    """A tensor of its own in a storage."""
    return f'{{"values":[[{next(TENSORS)}, {storage}, 0, 16, 4, "{device}"]]}}'.encode()


def origins(*rows: tuple[Ran, Op]) -> DataOrigins:
    ran = activities(*(row for row, _ in rows))
    ran = replace(ran, op_row=column(*range(len(rows))))
    return DataOrigins(ops(*(op for _, op in rows)), ran, calls(*CALLED))


def wrote(number: int, stream: int, storage: int) -> tuple[Ran, Op]:
    return Ran(1_000 + number, 2_000, number, stream), Op(outputs=tensor(storage))


def read(number: int, stream: int, storage: int, device: str = "cuda:0") -> tuple[Ran, Op]:
    return Ran(1_000 + number, 2_000, number, stream), Op(inputs=tensor(storage, device))


def test_data_comes_from_the_stream_that_touched_it_last() -> None:
    by_data = origins(wrote(0, 7, 1), read(1, 20, 1), wrote(2, 7, 2), read(3, 24, 1))
    assert by_data.streams([3], 0, 1_000) == [SECOND]
    assert by_data.streams([1], 0, 1_000) == [FIRST]
    assert by_data.streams([0, 2], 0, 1_000) == []


def test_data_of_the_own_stream_comes_from_nowhere_else() -> None:
    assert origins(wrote(0, 7, 1), read(1, 7, 1)).streams([1], 0, 1_000) == []


def test_streams_are_told_once_the_one_that_launched_last_first() -> None:
    by_data = origins(wrote(0, 7, 1), wrote(1, 20, 2), wrote(2, 7, 3), read(3, 24, 1), read(4, 24, 2))
    assert by_data.streams([3, 4], 0, 1_000) == [SECOND, FIRST]
    by_data = origins(wrote(0, 7, 1), wrote(1, 20, 2), wrote(2, 7, 3), read(3, 24, 1), read(4, 24, 3))
    assert by_data.streams([3, 4], 0, 1_000) == [FIRST]


def test_what_was_launched_outside_of_the_time_does_not_count() -> None:
    by_data = origins(wrote(1, 7, 1), read(2, 20, 1))
    assert [by_data.streams([1], *time) for time in ((100, 101), (101, 900), (0, 100))] == [[FIRST], [], []]


def test_the_hosts_tensors_and_storages_without_a_number_belong_to_no_stream() -> None:
    assert origins(wrote(0, 7, 1), read(1, 20, 1, "cpu")).streams([1], 0, 1_000) == []
    assert origins(wrote(0, 7, 0), read(1, 20, 0)).streams([1], 0, 1_000) == []


def test_launches_count_in_the_order_of_their_calls_then_of_their_starts() -> None:
    late, early = wrote(0, 7, 1), wrote(1, 20, 1)
    assert origins(early, late, read(2, 24, 1)).streams([2], 0, 1_000) == [SECOND]
    graph = [(Ran(start, 2_000, 0, stream), Op(outputs=tensor(1))) for start, stream in ((1_500, 7), (1_400, 20))]
    assert origins(*graph, read(2, 24, 1)).streams([2], 0, 1_000) == [FIRST]


def test_activities_without_a_call_or_an_op_tell_nothing() -> None:
    without_call = Ran(1_000, 2_000, -1), Op(outputs=tensor(1))
    assert origins(without_call, read(2, 24, 1)).streams([0, 1], 0, 1_000) == []
    rows = wrote(0, 7, 1), read(1, 20, 1)
    ran = activities(*(row for row, _ in rows))
    assert DataOrigins(ops(*(op for _, op in rows)), ran, calls(*CALLED)).streams([1], 0, 1_000) == []
