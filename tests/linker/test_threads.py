"""Hand-off between host threads, to the nanosecond: by rows made by hand."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from execgraph.linker.threads import MADE_WITHIN, thread_handoffs
from execgraph.schema.columns import ABSENT, TOLERANCE
from execgraph.schema.linked import Provenance, ThreadHandoffs
from execgraph.schema.machine import ANY_THREAD
from support.tables import Called, Counted, Op, calls, column, counting_columns, growth, ops

MAIN, WORKER, OTHER = 1, 2, 3
BACKWARD = "autograd::engine::evaluate_function: MmBackward0"
FORWARD = Op("aten::mm", 0, 10_000, MAIN, sequence=5)
BLOCKED = Op("## backward ##", 20_000, 100_000, MAIN)
WORK = Op(BACKWARD, 30_000, 80_000, WORKER, sequence=5)


class Handoff(NamedTuple):
    """One thread reaches a time, and another one, which had been waiting since, goes on."""

    source: int
    at: int
    target: int
    until: int
    since: int
    known_by: str


def handoffs_of(*rows, inside=None, called=None):
    """`inside` is the enclosing op of an op, by row, `called` a call by thread."""
    parent = column(*((inside or {}).get(row, -1) for row in range(len(rows))))
    threads = list(called or {})
    made = replace(calls(*(called or {}).values()), thread=column(*threads))
    table = thread_handoffs(ops(*rows), parent, made, (), column())
    columns = ("source_thread", "source_time", "target_thread", "target_time", "waiting_since")
    numbers = (getattr(table, column).tolist() for column in columns)
    return [Handoff(*row) for row in zip(*numbers, table.known_by, strict=True)]


def call(first: int, since: int = ABSENT, worker: int = WORKER, started: int | None = None) -> Handoff:
    return Handoff(MAIN, first, worker, first if started is None else started, since, Provenance.RECORD.value)


def back(last: int, since: int, worker: int = WORKER, returned: int | None = None) -> Handoff:
    return Handoff(worker, last, MAIN, last if returned is None else returned, since, Provenance.RECORD.value)


CALLED_AND_RETURNED = [call(30_000), back(80_000, 30_000)]


# segments of autograd workers


def test_a_worker_is_called_when_its_first_op_begins_and_returns_when_its_last_one_ends_in_any_gap() -> None:
    assert handoffs_of(FORWARD, BLOCKED, WORK) == CALLED_AND_RETURNED
    late = WORK._replace(start=85_000, end=90_000)
    assert handoffs_of(FORWARD, BLOCKED, WORK, late) == [call(30_000), back(90_000, 30_000)]
    after = Op("aten::add", 100_000, 110_000, MAIN)
    assert handoffs_of(FORWARD, after, WORK) == CALLED_AND_RETURNED
    assert handoffs_of(FORWARD, WORK) == [call(30_000)]
    assert handoffs_of(FORWARD._replace(start=90_000, end=95_000), WORK) == CALLED_AND_RETURNED


@pytest.mark.parametrize("blocked", [BLOCKED._replace(name="aten::to"), BLOCKED._replace(schema="mine::op() -> ()")])
def test_an_op_that_computes_is_not_blocked(blocked: Op) -> None:
    assert handoffs_of(FORWARD, blocked, WORK) == []


def test_calls_and_inner_ops_of_the_caller_end_a_gap_and_ops_inside_a_workers_op_are_no_calls_of_their_own() -> None:
    assert handoffs_of(FORWARD, BLOCKED, WORK, called={MAIN: Called(25_000, 90_000)}) == []
    assert handoffs_of(FORWARD, BLOCKED, WORK, called={MAIN: Called(20_000, 25_000)}) == CALLED_AND_RETURNED
    assert handoffs_of(FORWARD, BLOCKED, WORK, called={OTHER: Called(25_000, 90_000)}) == CALLED_AND_RETURNED
    inner = Op("aten::to", 25_000, 90_000, MAIN)
    assert handoffs_of(FORWARD, BLOCKED, WORK, inner, inside={3: 1}) == []
    assert handoffs_of(FORWARD, BLOCKED, WORK, inner._replace(name="inner"), inside={3: 1}) == CALLED_AND_RETURNED
    inner = Op("aten::mm", 40_000, 99_000, WORKER)
    assert handoffs_of(FORWARD, BLOCKED, WORK, inner, inside={3: 2}) == CALLED_AND_RETURNED


@pytest.mark.parametrize(
    ("early", "late", "belongs"),
    [(1, 0, True), (1, 1, True), (1_000, 1_000, True), (1_001, 0, False), (0, 1_001, False)],
)
def test_what_begins_or_ends_a_little_outside_of_a_gap_belongs_to_it(early: int, late: int, belongs: bool) -> None:
    assert TOLERANCE == 1_000
    work = WORK._replace(start=20_000 - early, end=100_000 + late)
    busy = Op("aten::add", 10_000, 20_000, MAIN)
    after = Op("aten::add", 100_000, 110_000, MAIN)
    first = max(work.start, 20_000)
    expected = [call(first, since=work.start), back(100_000, first)]
    assert handoffs_of(FORWARD, busy, BLOCKED, after, work) == expected * belongs


@pytest.mark.parametrize("early", [-1, 0, 1, 1_000])
def test_a_worker_that_began_a_little_before_the_gap_had_been_idle_before(early: int) -> None:
    before, busy = Op("mine", 1_000, 2_000, WORKER), Op("aten::add", 10_000, 20_000, MAIN)
    handoffs = handoffs_of(FORWARD, busy, BLOCKED, before, WORK._replace(start=20_000 - early))
    assert handoffs[0] == call(max(20_000 - early, 20_000), since=2_000)
    first_work = handoffs_of(FORWARD, busy, BLOCKED, WORK._replace(start=20_000 - early))
    assert first_work[0].since == (20_000 - early if early > 0 else ABSENT)
    until_then = handoffs_of(
        FORWARD, busy, BLOCKED, before._replace(end=20_000 - early), WORK._replace(start=20_000 - early)
    )
    assert until_then[0].since == until_then[0].until


def test_several_segments_are_told_apart_by_what_the_caller_does_in_between_which_none_overlaps() -> None:
    between = Op("aten::add", 50_000, 60_000, MAIN)
    rows = [WORK._replace(end=45_000), WORK._replace(start=65_000)]
    found = handoffs_of(FORWARD, BLOCKED, between, *rows, inside={2: 1})
    assert found == [call(30_000), back(45_000, 30_000), call(65_000, since=45_000), back(80_000, 65_000)]
    between = Op("aten::add", 50_000, 60_000, MAIN)
    rows = [WORK._replace(end=55_000), WORK._replace(start=65_000)]
    found = handoffs_of(FORWARD, BLOCKED, between, *rows, inside={2: 1})
    assert found == [call(65_000, since=55_000), back(80_000, 65_000)]


def test_a_worker_that_was_busy_until_it_began_had_not_been_waiting() -> None:
    busy = Op("mine", 5_000, 30_000, WORKER)
    assert handoffs_of(FORWARD, BLOCKED, WORK, busy) == [call(30_000, since=30_000), back(80_000, 30_000)]
    before = busy._replace(end=25_000)
    assert handoffs_of(FORWARD, BLOCKED, WORK, before) == [call(30_000, since=25_000), back(80_000, 30_000)]
    assert handoffs_of(FORWARD, BLOCKED, WORK, called={WORKER: Called(5_000, 30_000)})[0].since == 30_000


def test_one_call_starts_all_workers_of_a_gap_and_ends_when_all_have_returned() -> None:
    second = WORK._replace(thread=OTHER, start=40_000, end=90_000)
    assert handoffs_of(FORWARD, BLOCKED, WORK, second) == [
        call(30_000),
        back(80_000, 30_000, returned=90_000),
        call(30_000, worker=OTHER, started=30_000),
        back(90_000, 30_000, worker=OTHER),
    ]
    busy = Op("mine", 5_000, 40_000, OTHER)
    for end in (40_000, 30_000):
        handoffs = handoffs_of(FORWARD, BLOCKED, WORK, second, busy._replace(end=end))
        assert handoffs[2] == Handoff(MAIN, 30_000, OTHER, end, end, "record")


# who called whom


def recorded_pairs(handoffs: list[Handoff]) -> set[tuple[int, int]]:
    return {(handoff.source, handoff.target) for handoff in handoffs if handoff.known_by == "record"}


def test_a_worker_is_one_by_its_name_or_by_the_thread_that_its_forward_op_ran_on() -> None:
    named = WORK._replace(name="mine", forward=MAIN)
    assert handoffs_of(FORWARD, BLOCKED, named) == CALLED_AND_RETURNED
    assert not recorded_pairs(handoffs_of(FORWARD, BLOCKED, WORK._replace(name="mine")))


@pytest.mark.parametrize("sequence", [0, 6])
def test_callers_share_the_sequence_numbers_of_their_workers(sequence: int) -> None:
    forward, work = FORWARD._replace(sequence=sequence), WORK._replace(sequence=sequence)
    assert handoffs_of(forward, BLOCKED, work) == CALLED_AND_RETURNED
    assert not recorded_pairs(handoffs_of(FORWARD, BLOCKED, WORK._replace(sequence=sequence)))


def test_the_caller_is_the_thread_that_shares_most_and_was_first_or_of_two_the_larger_one() -> None:
    third = [Op("aten::mm", 1_000 * number, 1_000 * number + 9, OTHER, sequence=5) for number in range(9)]
    assert recorded_pairs(handoffs_of(FORWARD, BLOCKED, WORK, *third)) == {(OTHER, WORKER)}
    handoffs = handoffs_of(FORWARD._replace(thread=OTHER), FORWARD._replace(start=12_000, end=13_000), BLOCKED, WORK)
    assert recorded_pairs(handoffs) == {(OTHER, WORKER)}
    rows = [FORWARD, BLOCKED, WORK, Op("aten::mm", 81_000, 82_000, WORKER, sequence=6)]
    other = Op(BACKWARD, 85_000, 90_000, MAIN, sequence=6)
    handoffs = handoffs_of(*rows, other, inside={4: 1})
    assert handoffs[0] == call(30_000)
    assert recorded_pairs(handoffs) == {(MAIN, WORKER), (WORKER, MAIN)}


def test_step_marks_ops_without_times_and_a_single_thread_give_no_handoffs() -> None:
    mark = Op("ProfilerStep#1", 25_000, 90_000, MAIN)
    assert handoffs_of(FORWARD, BLOCKED, mark, WORK, Op("aten::mm", thread=MAIN)) == CALLED_AND_RETURNED
    assert handoffs_of(FORWARD, BLOCKED) == []
    assert handoffs_of() == []


# by timing


MEDIAN, MOST = ANY_THREAD.median, ANY_THREAD.upper
LATER = 1_000_000
GAP = Op("waiting", LATER, 2 * LATER, MAIN)
BUSY = [Op("mine", number, number + 1, MAIN) for number in range(5)]


def by_timing(start: int, end: int, *before: Op) -> list[Handoff]:
    """What a thread without sequence numbers does while the main one has a gap."""
    return handoffs_of(*BUSY, GAP, Op("mine", LATER + start, LATER + end, WORKER), *before)


def called_by_timing(at: int, since: int = ABSENT) -> Handoff:
    return Handoff(MAIN, LATER + at, WORKER, LATER + at, since, Provenance.TIMING.value)


def returned_by_timing(at: int, since: int) -> Handoff:
    return Handoff(WORKER, LATER + at, MAIN, LATER + at, since, Provenance.TIMING.value)


@pytest.mark.parametrize(("start", "is_called"), [(0, True), (MOST, True), (MOST + 1, False)])
def test_a_thread_that_starts_right_after_a_gap_of_the_main_one_began_was_called(start: int, is_called: bool) -> None:
    assert by_timing(start, start + 10_000) == [called_by_timing(start)] * is_called


@pytest.mark.parametrize(("idle", "is_called"), [(MEDIAN - 1, False), (MEDIAN, True)])
def test_a_thread_that_had_just_worked_was_not_called(idle: int, is_called: bool) -> None:
    before = Op("mine", LATER - 50_000, LATER + 100 - idle, WORKER)
    handoffs = by_timing(100, 200, before)
    assert (called_by_timing(100, LATER + 100 - idle) in handoffs) == is_called


@pytest.mark.parametrize(("left", "returns"), [(MOST, False), (MOST - 1, True), (0, True), (-TOLERANCE, True)])
def test_the_main_thread_goes_on_right_after_a_worker_has_ended(left: int, returns: bool) -> None:
    at = min(LATER - left, LATER)
    handoffs = by_timing(MADE_WITHIN + 1, LATER - left)
    assert handoffs == [returned_by_timing(at, LATER)] * returns


def test_the_worker_that_ended_last_returns_to_the_main_thread_which_had_been_waiting_since_it_called() -> None:
    assert by_timing(50, LATER - 1) == [called_by_timing(50), returned_by_timing(LATER - 1, LATER + 50)]
    last = Op("mine", LATER + MADE_WITHIN + 1, 2 * LATER - 3, OTHER)
    handoffs = by_timing(MADE_WITHIN + 1, LATER - 5, last)
    assert handoffs == [Handoff(OTHER, 2 * LATER - 3, MAIN, 2 * LATER - 3, LATER, Provenance.TIMING.value)]


def test_a_thread_that_was_made_in_a_gap_which_ended_with_its_work_was_called_at_its_begin() -> None:
    assert by_timing(MADE_WITHIN, LATER - 1) == [called_by_timing(0), returned_by_timing(LATER - 1, LATER)]
    assert by_timing(MADE_WITHIN, LATER // 2 + 1) == []


def test_gaps_of_one_kind_that_end_a_usual_time_after_a_worker_has_ended_were_waits() -> None:
    rows, ends = (
        [Op("load", 500 * LATER, 501 * LATER, WORKER)],
        [number * 90 * LATER + long * LATER for number, long in enumerate((30, 12, 20, 25, 14))],
    )
    for end in ends:
        rows += [
            Op("mine", begin := end // (90 * LATER) * 90 * LATER, begin + 1, MAIN),
            Op("load", end - LATER, end, WORKER),
        ]
        rows.append(Op("take", end + 2 * MOST, end + 3 * MOST, MAIN))
    assert [handoff.at for handoff in handoffs_of(*rows) if handoff.target == MAIN] == ends


# many threads


def many_threads(count: int, *, recorded: bool) -> Callable[[], ThreadHandoffs]:
    """Workers that run one after the other while the main thread has a gap."""
    rows = []
    for worker in range(count):
        at, sequence = 100_000 * worker, worker if recorded else -1
        name = BACKWARD if recorded else "aten::mm"
        rows.append(Op("aten::mm", at, at + 10_000, MAIN, sequence=sequence))
        rows.append(Op(name, at + 11_000, at + 80_000, WORKER + worker, sequence=sequence))
    table, parent = counting_columns(ops(*rows)), np.full(len(rows), -1).view(Counted)
    made = counting_columns(replace(calls(*(Called(row.start, row.start + 1) for row in rows)), thread=table.thread))
    return lambda: thread_handoffs(table, parent, made, (), column())


@pytest.mark.parametrize("recorded", [True, False])
def test_the_effort_grows_with_the_threads_and_not_with_their_square(recorded: bool) -> None:
    assert len(many_threads(50, recorded=recorded)().known_by) >= 50
    assert growth(partial(many_threads, recorded=recorded), 50) < 2.5
