"""Streams as queues, and the threads that launch to them, by rows made by hand; times are in ns.

Call sites: which calls are the same call of every step.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from execgraph.linker.waits import submissions
from execgraph.linker.waits.submissions import MOST_STREAMS, StreamKey, StreamQueues, StreamTails, ThreadLaunches
from execgraph.schema.columns import ABSENT
from execgraph.schema.linked import Activities, Calls
from support.tables import Called, Op, Ran, activities, calls, column, growth, ops

FIRST, SECOND, OTHER = StreamKey(0, 7), StreamKey(0, 20), StreamKey(1, 7)
CALLED = [Called(100 * number, 100 * number + 50) for number in range(6)]


def queues(*ran: Ran) -> StreamQueues:
    return StreamQueues(activities(*ran), calls(*CALLED))


# what had been submitted


def test_streams_hold_their_activities_in_the_order_they_ran_in_each_submitted_with_its_call_and_all_before() -> None:
    streams = queues(Ran(900, 950, 2), Ran(500, 600, 0), Ran(500, 550, 1), Ran(700, 800, 3, stream=20))
    assert {key: [*rows] for key, rows in streams.rows.items()} == {FIRST: [2, 1, 0], SECOND: [3]}
    streams = queues(
        Ran(500, 600, 0), Ran(500, 600, 1, device=1), Ran(500, 600, 2, stream=20), Ran(700, 800, 3, device=1)
    )
    assert {key: [*rows] for key, rows in streams.rows.items()} == {FIRST: [0], SECOND: [2], OTHER: [1, 3]}
    streams = queues(Ran(500, 600, 2), Ran(700, 800, 1), Ran(850, 900, -1), Ran(950, 990, 4))
    assert [*streams.submitted[FIRST]] == [200, 200, 200, 400]
    assert streams.submitted_until.tolist() == [200, 200, 200, 400]
    assert [streams.position(FIRST, time) for time in (200, 201, 400, 401)] == [0, 3, 3, 4]
    streams = queues(Ran(500, 600, 1), Ran(700, 800, 2))
    assert [streams.next(FIRST, time) for time in (0, 100, 101, 200, 201)] == [0, 0, 1, 1, -1]
    assert queues().rows == {}
    assert StreamTails(queues()).before([1]).tolist() == [[]]


def test_a_stream_is_found_by_number_and_hands_waits_on_if_nothing_ran_on_it() -> None:
    streams = queues(Ran(500, 600, 0), Ran(500, 600, 1, device=1), Ran(500, 600, 2, device=1, stream=20))
    assert [streams.find(device, 7) for device in (0, 1, 5)] == [FIRST, OTHER, FIRST]
    assert streams.find(0, 20) == StreamKey(1, 20)
    assert streams.find(0, -1) is None
    assert StreamKey(0, 24) not in streams.rows
    streams = queues(Ran(500, 600, 0))
    idle = streams.find(0, 0)
    assert idle == StreamKey(0, 0)
    assert streams.add_wait(idle, 150, (0,)) == -1
    assert streams.sources(idle, 200) == (0,)


def test_of_several_on_a_stream_only_the_last_is_waited_for() -> None:
    streams = queues(Ran(500, 600, 0), *(Ran(700 + row, 701 + row, 1, stream=20) for row in range(3)))
    for time, source in ((150, 1), (160, 3), (170, 2)):
        streams.add_wait(FIRST, time, (source,))
    assert [streams.sources(FIRST, time) for time in (150, 151, 161, 171)] == [(0,), (0, 1), (0, 3), (0, 3)]


@pytest.mark.parametrize("count", range(1, 8))
def test_a_stream_follows_all_streams_that_it_was_told_to_wait_for(count: int) -> None:
    streams = queues(Ran(500, 600, 0), *(Ran(700 + row, 701 + row, 1, stream=20 + row) for row in range(count)))
    for row in range(count):
        streams.add_wait(FIRST, 150 + row, (1 + row,))
    assert streams.sources(FIRST, 150 + count) == tuple(range(1 + count))


def waits_without_work(count: int) -> Callable[[], object]:
    """A stream that waits for each kernel of another one, and for whose waits the host asks each time."""
    streams = queues(*(Ran(500 + row, 501 + row, 1, stream=20) for row in range(count)), Ran(90, 91, 0))

    def wait() -> None:
        for row in range(count):
            streams.add_wait(FIRST, 100 + row, (row,))
            assert streams.sources(FIRST, 101 + row) == (row, count)

    return wait


def test_the_effort_grows_with_the_waits_and_the_streams_that_one_waits_for_and_not_with_their_square() -> None:
    assert growth(waits_without_work, 50) < 2.5
    assert growth(waits_for_streams, 50) < 2.5


def waits_for_streams(count: int) -> Callable[[], object]:
    """A stream that waits for each of very many others, some of which are named by another device."""
    found = queues(*(Ran(500 + row, 501 + row, 1, stream=20 + row) for row in range(count)), Ran(90, 91, 0))

    def wait() -> None:
        for row in range(count):
            assert found.find(5, 20 + row) == StreamKey(0, 20 + row)
            found.add_wait(FIRST, 100 + row, (row,))
        assert found.sources(FIRST, 101 + count) == tuple(range(count + 1))

    return wait


def test_a_wait_holds_back_what_is_submitted_next() -> None:
    streams = queues(Ran(500, 600, 0), Ran(700, 800, 2), Ran(700, 800, 1, stream=20))
    assert streams.add_wait(FIRST, 150, (2,)) == 1
    assert streams.add_wait(FIRST, 250, (2,)) == -1
    assert streams.add_wait(SECOND, 250, (0,)) == -1


def test_what_is_submitted_follows_the_last_activity_and_the_waits_after_it() -> None:
    streams = queues(
        Ran(500, 600, 0),
        Ran(700, 800, 2),
        Ran(700, 800, 3, stream=20),
        Ran(900, 950, 1, stream=24),
        Ran(960, 970, 4, stream=28),
    )
    streams.add_wait(FIRST, 150, (2,))
    streams.add_wait(FIRST, 250, (3,))
    streams.add_wait(FIRST, 300, (4,))
    assert streams.sources(FIRST, 0) == ()
    assert streams.sources(FIRST, 150) == (0,)
    assert streams.sources(FIRST, 151) == (0, 2)
    assert streams.sources(FIRST, 201) == (1,)
    assert streams.sources(FIRST, 300) == (1, 3)
    assert streams.sources(FIRST, 301) == (1, 3, 4)


def test_what_follows_graphs_follows_the_last_activity_of_each_of_their_branches() -> None:
    graph = [Ran(500, 600, 0), Ran(600, 700, 0), Ran(500, 900, 0, stream=20), Ran(500, 600, 1, stream=24)]
    assert queues(*graph).sources(FIRST, 50) == queues(*graph).sources(SECOND, 50) == (1, 2)
    assert queues(*graph).sources(StreamKey(0, 24), 150) == (3,)
    assert queues(*graph, Ran(950, 990, 2)).sources(FIRST, 250) == (4,)
    first = [Ran(500, 600, 0), Ran(500, 650, 0, stream=20)]
    second = [Ran(700, 800, 1), Ran(700, 900, 1, stream=20)]
    assert queues(*first, *second).sources(FIRST, 150) == (2, 3)
    assert queues(Ran(500, 600, 0), Ran(500, 600, 0, device=1)).sources(FIRST, 50) == (0, 1)
    assert queues(Ran(500, 600), Ran(500, 600, stream=20)).sources(FIRST, 0) == (0,)


def test_tails_are_the_last_activities_submitted_before() -> None:
    tails = StreamTails(queues(Ran(500, 600, 0), Ran(700, 800, 2), Ran(700, 800, 1, stream=20)))
    assert (tails.streams, tails.number) == ([FIRST, SECOND], {FIRST: 0, SECOND: 1})
    assert tails.before([0, 1, 101, 200, 201]).tolist() == [[-1, -1], [0, -1], [0, 2], [0, 2], [1, 2]]


@pytest.mark.parametrize("others", [MOST_STREAMS - 1, MOST_STREAMS])
def test_only_the_streams_with_most_activities_are_tried(others: int) -> None:
    rows = [Ran(500, 600, 0), *(Ran(700 + step, 701 + step, 1, 20 + row) for row in range(others) for step in range(2))]
    tails = StreamTails(queues(*rows))
    assert len(tails.streams) == MOST_STREAMS
    assert tails.is_partial == (FIRST not in tails.streams) == (others == MOST_STREAMS)


# threads


def launches(*ran: Ran, communicates: tuple[int, ...] = ()) -> ThreadLaunches:
    table: Activities = activities(*ran)
    table.communication_row[list(communicates)] = 0
    return ThreadLaunches(table, replace(calls(*CALLED[:6]), thread=column(1, 2, 1, 2, 1, 2)))


def test_launches_before_and_after_a_time_are_those_of_the_thread_the_first_of_a_graph_first() -> None:
    streams = launches(Ran(900, 950, 0), Ran(500, 600, 1), Ran(700, 800, 2), Ran(100, 200))
    threads, times = column(1, 1, 1, 1, 9), column(0, 1, 200, 201, 100)
    assert streams.next(threads, times).tolist() == [0, 2, 2, -1, -1]
    assert streams.last(threads, times).tolist() == [-1, 0, 0, 2, -1]
    streams = launches(Ran(900, 950, 0), Ran(500, 600, 0, stream=20))
    assert (streams.next(column(1), column(0)), streams.last(column(1), column(1))) == ([1], [0])
    assert launches(Ran(500, 600, 0), Ran(700, 800, 0, stream=20)).streams() == {FIRST}
    assert launches(Ran(500, 600), Ran(700, 800, stream=20)).streams() == {FIRST, SECOND}


def test_streams_in_use_are_the_threads_own_the_last_used_one_first_then_those_of_others_that_compute() -> None:
    streams = launches(Ran(500, 600, 0), Ran(700, 800, 1, stream=20), Ran(700, 800, 2, device=1))
    assert streams.streams_before(1, 300) == [OTHER, FIRST, SECOND]
    assert streams.streams_before(2, 300) == [SECOND, OTHER, FIRST]
    assert streams.streams_before(1, 200) == [FIRST, SECOND]
    assert streams.streams_before(9, 101) == [SECOND, FIRST]
    assert streams.streams_before(1, 0) == []
    streams = launches(Ran(500, 600, 0), Ran(700, 800, 2, stream=20), communicates=(1,))
    assert streams.streams_before(1, 300) == [FIRST]


def test_streams_in_use_are_found_however_many_changes_of_stream_lie_between() -> None:
    streams = [24, *(7 + 13 * (number % 2) for number in range(1_000))]
    ran = [Ran(1_000 * number, 1_000 * number + 9, number, stream) for number, stream in enumerate(streams)]
    table = calls(*(Called(10 * number, 10 * number + 5) for number in range(len(ran))))
    streams = ThreadLaunches(activities(*ran), table).streams_before(0, 10 * len(ran))
    assert streams == [StreamKey(0, 20), StreamKey(0, 7), StreamKey(0, 24)]


@pytest.mark.parametrize("others", [MOST_STREAMS - 2, MOST_STREAMS - 1])
def test_where_a_thread_uses_very_many_streams_only_the_latest_changes_are_looked_at(others: int) -> None:
    streams = [*range(100, 100 + others), *(7 + 13 * (number % 2) for number in range(submissions.LATEST_CHANGES))]
    ran = [Ran(1_000 * number, 1_000 * number + 9, number, stream) for number, stream in enumerate(streams)]
    table = calls(*(Called(10 * number, 10 * number + 5) for number in range(len(ran))))
    found = ThreadLaunches(activities(*ran), table).streams_before(0, 10 * len(ran))
    assert found[:2] == [StreamKey(0, 20), StreamKey(0, 7)]
    assert len(found) == (MOST_STREAMS if others == MOST_STREAMS - 2 else 2)


STEPS = [Op("ProfilerStep#1", 0), Op("ProfilerStep#2", 1_000)]


def call_sites(op_rows, parent, *named, names=(), threads=()):
    """Of calls 100 apart, each in an op or, for -1, in none."""
    rows = [Called(100 * number, 100 * number + 50) for number in range(len(op_rows))]
    if names:
        rows = [row._replace(name=name) for row, name in zip(rows, names, strict=True)]
    table: Calls = replace(calls(*rows), op_row=op_rows)
    if threads:
        table = replace(table, thread=column(*threads))
    return submissions.CallSites(table, ops(*named), column(*parent))


def test_a_path_is_given_by_the_names_of_the_enclosing_ops_that_mark_no_step() -> None:
    named = [Op("a"), Op("b"), Op("a"), Op("b"), Op("b")]
    sites = call_sites(column(1, 3, 4, 0, 2, -1), [-1, 0, -1, 2, -1], *named)
    paths = sites.path.tolist()
    assert paths[0] == paths[1]
    assert paths[3] == paths[4]
    assert len(set(paths)) == 4
    named = [*STEPS, Op("a"), Op("a"), Op("a")]
    sites = call_sites(column(2, 3, 4, 0), [-1, -1, 0, 1, -1], *named)
    assert sites.path[0] == sites.path[1] == sites.path[2]
    assert sites.path[3] == -1


def test_a_call_is_in_the_step_marked_last_and_its_occurrence_in_that_is_its_call_site() -> None:
    starts = [
        Op("ProfilerStep#1", 100),
        Op("ProfilerStep#1", 100),
        Op("ProfilerStep#2", 300),
        Op("ProfilerStep#3", ABSENT),
    ]
    sites = call_sites(column(-1, -1, -1, -1, -1), [-1, -1, -1, -1], *starts)
    assert sites.step.tolist() == [0, 1, 1, 2, 2]
    starts = [Op("ProfilerStep#1", 0), Op("ProfilerStep#2", 200)]
    sites = call_sites(column(-1, -1, -1, -1, -1), [-1, -1], *starts)
    assert sites.groups([0, 1, 2, 3, 4]) == [[0, 2], [1, 3], [4]]
    assert call_sites(column(-1, -1, -1), []).groups([2, 1]) == [[0], [1]]


def test_calls_of_other_threads_names_paths_or_columns_are_at_other_call_sites() -> None:
    starts = [Op("ProfilerStep#1", 0), Op("ProfilerStep#2", 100)]
    for kept in (
        call_sites(column(-1, -1), [-1, -1], *starts),
        call_sites(column(2, 3), [-1, -1, -1, -1], *starts, Op(), Op()),
    ):
        assert kept.groups([0, 1]) == kept.groups([0, 1], [5, 5]) == [[0, 1]]
        assert kept.groups([0, 1], [5, 6]) == [[0], [1]]
    for other in (
        call_sites(column(-1, -1), [-1, -1], *starts, threads=(1, 2)),
        call_sites(column(-1, -1), [-1, -1], *starts, names=("one", "other")),
        call_sites(column(2, -1), [-1, -1, -1], *starts, Op()),
    ):
        assert other.groups([0, 1]) == [[0], [1]]
