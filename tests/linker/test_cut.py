"""A part of a linked trace: what belongs to it, what is cut at its borders, what is lost there."""

from dataclasses import replace

import numpy as np
import pytest
from execgraph.linker.cut import cut, of_both
from execgraph.linker.windows import Period
from execgraph.schema.columns import ABSENT, Categorical
from execgraph.schema.linked import LinkedTrace, ThreadHandoffs
from support.references import Act, Call, Op, linked_of
from support.tables import column

PERIOD = Period(100, 200)
DEVICE, HOST = "device waits across the borders of the window", "host waits across the borders of the window"
OVER = "hand-offs across the borders of the window"


def ops_kept(*spans: tuple[int, int]) -> list[int]:
    """The starts of the ops that are kept, as they were."""
    ops = [Op(start, end, name=str(start)) for start, end in spans]
    part = cut(linked_of([], [], ops), PERIOD).linked.ops
    return [int(part.name[row]) for row in range(len(part))]


def test_ops_that_overlap_the_period_are_kept() -> None:
    assert ops_kept((50, 100), (60, 101), (100, 100), (199, 300), (200, 300), (10, 400), (99, 99)) == [60, 100, 199, 10]


def test_ops_are_cut_to_the_period_and_own_what_is_left_of_them() -> None:
    linked = linked_of([], [], [Op(50, 300), Op(80, 120, 0), Op(150, 160, 0), Op(110, 115, 1)])
    linked.ops.exclusive = column(200, 35, 10, 5)
    part = cut(linked, PERIOD)
    assert (part.linked.ops.start.tolist(), part.linked.ops.end.tolist()) == (
        [100, 100, 150, 110],
        [200, 120, 160, 115],
    )
    assert (part.linked.ops.exclusive.tolist(), part.shortened) == ([70, 15, 10, 5], 2)


def test_activities_follow_their_call_and_those_without_one_their_start() -> None:
    calls = [Call(90, 95), Call(150, 155)]
    acts = [Act(150, 160, call=0), Act(500, 510, call=1), Act(100, 110), Act(199, 250), Act(200, 210), Act(99, 150)]
    part = cut(linked_of(acts, calls), PERIOD)
    assert (part.linked.activities.start.tolist(), part.calls.tolist()) == ([500, 100, 199], [False, True])


def test_a_part_in_which_only_step_marks_are_is_empty() -> None:
    def is_empty(acts: list[Act], calls: list[Call], ops: list[Op]) -> bool:
        return cut(linked_of(acts, calls, ops), PERIOD).is_empty

    assert is_empty([], [], []) and is_empty([], [], [Op(0, 500, name="ProfilerStep#1"), Op(150, 150)])
    assert not is_empty([Act(150, 160)], [], [])
    assert not is_empty([], [Call(150, 160)], [])
    assert not is_empty([], [], [Op(0, 500)])


def test_waits_with_one_end_in_the_part_are_counted() -> None:
    calls = [Call(50, 55), Call(150, 155), Call(160, 165)]
    acts = [Act(50, 60, call=0, stream=1), Act(150, 160, call=1, stream=2), Act(170, 180, call=2, stream=3)]
    linked = linked_of(acts, calls, device_waits=[(1, 0), (2, 1)], host_waits=[(1, 0), (2, 1), (2, -1), (0, 0)])
    part = cut(linked, PERIOD)
    assert part.lost == {DEVICE: 1, HOST: 1, OVER: 0}
    assert part.linked.info.backlog_until == {acts_id(linked, 1): 60}


def acts_id(linked: LinkedTrace, row: int) -> int:
    return int(linked.activities.id[row])


def test_what_ran_before_on_the_stream_is_carried_in_unless_it_is_in_the_part() -> None:
    calls = [Call(50, 55), Call(150, 155), Call(160, 165)]
    acts = [Act(50, 130, call=0), Act(150, 160, call=1), Act(170, 180, call=2), Act(150, 160, call=2, stream=9)]
    linked = linked_of(acts, calls)
    assert cut(linked, PERIOD).linked.info.backlog_until == {acts_id(linked, 1): 130}
    assert linked.info.backlog_until is None


# hand-offs between threads


@pytest.mark.parametrize(
    ("given", "taken", "since", "kept", "lost"),
    [
        (120, 130, 110, [110], 0),
        (120, 130, 50, [100], 0),
        (120, 130, ABSENT, [ABSENT], 0),
        (100, 130, ABSENT, [], 1),
        (101, 199, ABSENT, [ABSENT], 0),
        (120, 200, ABSENT, [], 1),
        (50, 60, ABSENT, [], 0),
        (50, 60, 40, [], 0),
        (250, 260, 199, [], 1),
        (250, 260, 200, [], 0),
        (50, 101, ABSENT, [], 1),
        (50, 100, 40, [], 1),
        (250, 260, 50, [], 1),
    ],
)
def test_handoffs_inside_are_kept_and_those_across_a_border_counted(
    given: int, taken: int, since: int, kept: list[int], lost: int
) -> None:
    linked = linked_of([], [], [Op(0, 500)])
    over = ThreadHandoffs(column(1), column(given), column(2), column(taken), column(since), Categorical.of(["record"]))
    part = cut(replace(linked, handoffs=over), PERIOD)
    assert (part.linked.handoffs.waiting_since.tolist(), part.lost[OVER]) == (kept, lost)


# ops of the host trace alone


def timed_by_device(first: int, last: int, count: int = 100) -> LinkedTrace:
    """Host ops of which the device trace holds those from the first up to but without the last."""
    linked = linked_of([], [], [Op(10 * number, 10 * number + 5) for number in range(count)])
    held = (np.arange(count) >= first) & (np.arange(count) < last)
    times = {name: np.where(held, getattr(linked.ops, name), ABSENT) for name in ("start", "end")}
    return replace(linked, ops=replace(linked.ops, **times))


@pytest.mark.parametrize(
    ("first", "last", "kept"), [(0, 100, 100), (5, 100, 100), (6, 100, 94), (3, 98, 100), (3, 97, 94), (0, 0, 100)]
)
def test_host_ops_before_or_after_all_of_the_device_trace_are_left_out_if_they_are_many(
    first: int, last: int, kept: int
) -> None:
    assert len(of_both(timed_by_device(first, last)).linked.ops) == kept


def test_untimed_ops_belong_where_the_timed_one_before_them_does() -> None:
    linked = timed_by_device(0, 100)
    for row in (0, 9, 11, 20):
        linked.ops.start[row] = linked.ops.end[row] = ABSENT
    part = cut(linked, PERIOD).linked.ops
    assert part.id.tolist() == [*range(11, 21), 21]
