"""Which call launched an activity, and which op: by rows made by hand."""

import numpy as np
from execgraph.linker.launches import enclosing_ops, external_ids_name_ops, launching_calls, launching_ops
from execgraph.schema.columns import ThreadIntervals, nest
from support.device_rows import ActivityRow, CallRow, OpRow, activity_rows, call_rows, op_rows
from support.tables import column


def launched_by(activities: list[int], *calls: CallRow) -> list[int]:
    """The rows of the calls that launched activities of these correlations."""
    return launching_calls(activity_rows(*(ActivityRow(correlation=n) for n in activities)), call_rows(*calls)).tolist()


def test_an_activity_finds_the_call_of_its_correlation() -> None:
    assert launched_by([9, 5, 7, 4, 6], CallRow(correlation=5), CallRow(correlation=9)) == [1, 0, -1, -1, -1]


def test_a_correlation_of_zero_is_none() -> None:
    assert launched_by([0, 5], CallRow(), CallRow(correlation=5)) == [-1, 1]
    assert launched_by([0, 5], CallRow()) == launched_by([0, 5]) == [-1, -1]


def test_negative_correlations_are_some() -> None:
    assert launched_by([-5, 0], CallRow(correlation=-5), CallRow(correlation=0)) == [0, -1]


def test_of_calls_with_one_correlation_the_earlier_one_launched() -> None:
    assert launched_by([5], CallRow(3, 4, 5), CallRow(2, 6, 5)) == [1]


# ops


def op_of(external: list[int], *ops: OpRow, call_row: int = -1, named: bool = True, calls: int = 1) -> list[int]:
    activities = activity_rows(*(ActivityRow(external_id=number) for number in external))
    rows = np.full(len(external), call_row, np.int64)
    return launching_ops(activities, rows, np.full(calls, 1, np.int64), op_rows(*ops), named).tolist()


def test_the_op_around_the_call_launched_whatever_the_external_id_says() -> None:
    ops = OpRow(external_id=3), OpRow(external_id=4)
    assert op_of([3, 0], *ops, call_row=0) == [1, 1]


def test_without_a_call_the_op_of_the_external_id_launched() -> None:
    ops = OpRow(external_id=8), OpRow(external_id=3)
    assert op_of([3, 8, 5, 9, 0], *ops) == op_of([3, 8, 5, 9, 0], *ops, calls=0) == [1, 0, -1, -1, -1]
    assert op_of([0], OpRow(external_id=0)) == [-1]
    assert op_of([3], *ops, named=False) == op_of([3]) == [-1]


def test_external_ids_that_all_repeat_the_correlation_name_no_ops() -> None:
    def name_ops(*pairs: tuple[int, int]) -> bool:
        return external_ids_name_ops(activity_rows(*(ActivityRow(external_id=e, correlation=c) for e, c in pairs)))

    assert name_ops((5, 5), (6, 7)) and name_ops((6, 7))
    assert not name_ops((5, 5), (0, 7), (7, 0))
    assert not name_ops()


def around(calls: list[CallRow], ops: list[OpRow], *steps: int) -> list[int]:
    table = op_rows(*ops)
    nesting = nest(ThreadIntervals(table.thread, table.start, table.end))
    is_step = np.isin(np.arange(len(ops)), steps)
    return enclosing_ops(call_rows(*calls), table, nesting, is_step).tolist()


def test_the_innermost_op_on_the_thread_is_around_a_call() -> None:
    ops = [OpRow(0, 100), OpRow(10, 50), OpRow(0, 100, thread=2)]
    calls = [CallRow(20, 30), CallRow(60, 70), CallRow(20, 30, thread=2), CallRow(20, 30, thread=3), CallRow(200, 210)]
    assert around(calls, ops) == [1, 0, 2, -1, -1]


def test_step_marks_are_around_nothing() -> None:
    ops = [OpRow(0, 100), OpRow(10, 90), OpRow(20, 50)]
    calls = [CallRow(30, 40), CallRow(60, 70), CallRow(92, 95)]
    assert around(calls, ops) == [2, 1, 0]
    assert around(calls, ops, 0) == [2, 1, -1]
    assert around(calls, ops, 0, 1, 2) == [-1, -1, -1]


def test_without_ops_calls_are_in_none() -> None:
    assert around([CallRow(0, 1)], []) == [-1]
    assert column().tolist() == around([], [OpRow()])
