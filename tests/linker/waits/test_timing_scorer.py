"""What times say of the waits of a call site: which ends are too late, and which explain when the blocked work went on.

Times are in ns.
"""

import numpy as np
import pytest
from execgraph.linker.waits import StreamKey, StreamQueues, StreamTails, TimingModel
from execgraph.linker.waits.timing_scorer import TimingScorer
from execgraph.linker.waits.unresolved_waits import HOST, BlockedWork, UnresolvedWait
from execgraph.schema.columns import Bool, Int64
from execgraph.schema.linked import NEVER
from execgraph.schema.machine import ENOUGH, LatencyStats, MachineCalibration
from support.tables import Called, Ran, activities, calls

MACHINE = MachineCalibration(
    clock_error_ns=300,
    launch={"": LatencyStats(2_000, 3_000, ENOUGH)},
    gap={"": LatencyStats(500, 700, ENOUGH)},
    sync_return={"": LatencyStats(1_000, 1_500, ENOUGH)},
)
LAUNCHED, WAITS, RETURNED = Called(0, 100), Called(200, 300, "cudaStreamWaitEvent"), 30_000
"""What runs on stream 7 at first, then a wait and a launch that it may hold up."""
FIRST, DUE = Ran(5_000, 20_000, 0), 20_700
STREAM = StreamKey(0, 7)


def scorer_of(ran: list[Ran], called: list[Called], waits: list[UnresolvedWait]) -> TimingScorer:
    table, rows = activities(*ran), calls(*called)
    return TimingScorer(table, rows, TimingModel(table, rows, MACHINE), StreamTails(StreamQueues(table, rows)), waits)


def scored(
    scorer: TimingScorer, waits: list[UnresolvedWait], blocked: BlockedWork, *of_each: list[int]
) -> tuple[Bool, Int64]:
    """Scores ends, by wait and stream: whether each is too late, and how many waits each stream explains."""
    too_late, explained = scorer.score(waits, np.array([of_each], np.int64), blocked)
    return too_late[0], explained[0]


# streams


def of_stream(*starts: int, ends: list[list[int]]) -> tuple[list[list[bool]], list[int]]:
    """Scores waits that may block what started at these times on stream 7, where work usually follows within 700."""
    ran, called, waits = [FIRST], [LAUNCHED], []
    for start in starts:
        called += [WAITS, LAUNCHED._replace(start=400, end=500)]
        ran.append(Ran(start, start + 10, len(called) - 1))
        waits.append(UnresolvedWait(len(called) - 2, -1, (BlockedWork(STREAM, len(ran) - 1),), NEVER, 0))
    too_late, explained = scored(scorer_of(ran, called, waits), waits, BlockedWork(STREAM, -1), *ends)
    return too_late.tolist(), explained.tolist()


LATE = DUE + 9_300
"""When something started that its stream and its launch would have let start sooner."""


@pytest.mark.parametrize(
    ("end", "is_over", "explains"),
    [
        (LATE + 3, True, False),
        (LATE + 2, False, True),
        (LATE, False, True),
        (LATE - 702, False, True),
        (LATE - 703, False, False),
        (NEVER, False, False),
    ],
)
def test_what_started_late_waited_for_what_ended_right_before(end: int, is_over: bool, explains: bool) -> None:
    """Times of one clock may be misstated by 2; it usually takes up to 700 from an end to the next start."""
    assert of_stream(LATE, ends=[[end]]) == ([[is_over]], [int(explains)])


@pytest.mark.parametrize(("start", "explained"), [(DUE, 0), (DUE + 1, 1)])
def test_what_started_when_it_was_due_waited_for_nothing(start: int, explained: int) -> None:
    assert of_stream(start, ends=[[start - 1]]) == ([[False]], [explained])


@pytest.mark.parametrize(("end", "explained"), [(20_000, 0), (20_001, 1)])
def test_what_ended_before_its_own_stream_was_free_held_nothing_up(end: int, explained: int) -> None:
    assert of_stream(DUE + 1, ends=[[end]]) == ([[False]], [explained])


def test_ends_speak_for_a_call_site_if_they_explain_half_of_the_waits_that_were_held_up() -> None:
    met, missed = LATE - 5, LATE - 5_000
    assert of_stream(LATE, ends=[[met, missed]])[1] == [1, 0]
    after = LATE + 10_000
    one_of_two = [[met, missed, met], [after - 5, after - 5, missed]]
    assert of_stream(LATE, after, ends=one_of_two)[1] == [2, 1, 1]
    last = after + 10_000
    one_of_three = [*one_of_two, [last - 5, last - 5_000, last - 5_000]]
    assert of_stream(LATE, after, last, ends=one_of_three)[1] == [3, 0, 0]


def test_a_wait_that_no_work_followed_says_nothing() -> None:
    waits = [UnresolvedWait(1, -1, (BlockedWork(STREAM, -1),), NEVER, 0)]
    too_late, explained = scored(scorer_of([FIRST], [LAUNCHED, WAITS], waits), waits, waits[0].blocked[0], [1 << 40])
    assert (too_late.tolist(), explained.tolist()) == ([[False]], [0])


def test_the_activity_of_the_first_row_may_be_the_one_held_up() -> None:
    waits = [UnresolvedWait(1, -1, (BlockedWork(STREAM, 0),), NEVER, 0)]
    too_late, explained = scored(
        scorer_of([Ran(9_000, 9_100)], [LAUNCHED, WAITS], waits), waits, waits[0].blocked[0], [8_999]
    )
    assert (too_late.tolist(), explained.tolist()) == ([[False]], [1])


def max_reaction(start: int, other_end: int, launch: int = 400) -> int:
    """What starts in the first row after a wait, on a stream that is free at 20000, when another stream's work has
    ended.
    """
    ran = [Ran(start, start + 10, 3), FIRST, Ran(5_000, other_end, 1, stream=8)]
    called = [LAUNCHED, Called(100, 150), WAITS, Called(launch, launch + 100)]
    return scorer_of(ran, called, [UnresolvedWait(2, -1, (BlockedWork(STREAM, 0),), NEVER, 0)]).max_reaction_ns


def test_a_stream_reacts_to_another_as_late_as_late_work_does() -> None:
    assert max_reaction(29_900, 29_000) == 901
    assert max_reaction(29_900, 29_300) == 700
    assert max_reaction(29_900, 20_001) == 9_900


def test_work_that_is_not_late_or_did_not_wait_for_another_stream_shows_no_reaction() -> None:
    assert max_reaction(29_900, 20_000) == 700
    assert max_reaction(29_900, 29_901) == 700
    assert max_reaction(31_100, 29_000, launch=28_000) == 700
    assert max_reaction(31_101, 29_000, launch=28_000) == 2_102


# the host


def of_host(end: int, returned: int = RETURNED, reach: int = 1_500, is_query: bool = False) -> tuple[bool, bool]:
    """Whether an end is too late for, and explains, a call that waited from 10000 on."""
    called = [LAUNCHED, Called(10_000, returned, "cudaEventSynchronize")]
    timing = TimingModel(activities(FIRST), calls(*called), MACHINE)
    clock = timing.clock_uncertainty_ns, timing.max_clock_lead_ns
    waits = [UnresolvedWait(1, -1, (HOST,), 10_000, reach, *clock, is_query=is_query)]
    too_late, explained = scored(scorer_of([FIRST], called, waits), waits, HOST, [end])
    return bool(too_late[0, 0]), bool(explained[0])


DOUBT = 300 + 2 + 1_000
"""How far host and device may disagree: by the clock's error, the resolution, and what calls take to return."""
AHEAD = DOUBT + 5_000
"""The device's clock may besides be ahead by as much as the soonest activity started after its launch call had."""


@pytest.mark.parametrize(
    ("end", "is_over", "explains"),
    [
        (RETURNED + AHEAD + 1, True, False),
        (RETURNED + AHEAD, False, True),
        (RETURNED - 1_500 - DOUBT, False, True),
        (RETURNED - 1_500 - DOUBT - 1, False, False),
    ],
)
def test_a_call_that_returned_late_waited_for_what_had_just_ended(end: int, is_over: bool, explains: bool) -> None:
    assert of_host(end) == (is_over, explains)


@pytest.mark.parametrize(("returned", "explains"), [(11_500, False), (11_501, True)])
def test_a_call_that_returned_as_soon_as_such_calls_do_says_nothing(returned: int, explains: bool) -> None:
    assert of_host(returned - 10, returned) == (False, explains)


def test_a_call_that_asks_is_answered_at_once() -> None:
    assert of_host(9_950, 10_000, reach=0) == (False, False)
    assert of_host(9_950, 10_000, reach=0, is_query=True) == (False, True)


# how soon streams go on


def reach_of(*gaps: int, stream: int = 20) -> int:
    """Returns the longest usual reaction of waits that blocked what started so long after an end on another stream."""
    ran, called, waits = [FIRST], [LAUNCHED], []
    for number, gap in enumerate(gaps):
        at = 100_000 * (number + 1)
        called += [Called(at, at + 100), Called(at + 200, at + 300, "cudaStreamWaitEvent"), Called(at + 400, at + 500)]
        ran += [
            Ran(at + 5_000, at + 20_000, len(called) - 3, stream=stream),
            Ran(at + 20_000 + gap, at + 30_000, len(called) - 1),
        ]
        waits.append(UnresolvedWait(len(called) - 2, -1, (BlockedWork(STREAM, len(ran) - 1),), NEVER, 0))
    return scorer_of(ran, called, waits).max_reaction_ns


def test_streams_go_on_after_others_within_what_is_usual_of_the_trace() -> None:
    assert reach_of() == 700
    assert reach_of(1_000, 1_000, 1_000) == 1_001
    assert reach_of(600, 600, 600) == 700
    assert reach_of(5_000, 5_000, 5_000) == 5_001


def test_what_follows_its_own_stream_does_not_tell_of_others() -> None:
    assert reach_of(1_000, 1_000, 1_000, stream=7) == 700


def test_what_was_known_to_hold_an_activity_up_no_longer_has_to_be_explained() -> None:
    ran, called = [FIRST, Ran(LATE, LATE + 10, 2), Ran(5_000, LATE - 5, stream=20)], [LAUNCHED, WAITS, LAUNCHED]
    waits = [UnresolvedWait(1, -1, (BlockedWork(STREAM, 1),), NEVER, 0)]
    scorer = scorer_of(ran, called, waits)
    assert scored(scorer, waits, waits[0].blocked[0], [LATE - 5])[1].tolist() == [1]
    scorer.add_dependency(1, 2)
    assert scored(scorer, waits, waits[0].blocked[0], [LATE - 5])[1].tolist() == [0]
