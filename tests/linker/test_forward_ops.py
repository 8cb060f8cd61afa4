"""Which op of the forward pass a backward op differentiates, by rows made by hand."""

from dataclasses import replace

from execgraph.linker.forward_ops import forward_ops
from support.tables import Op, column, ops

FORWARD, OTHER, BACKWARD = 1, 2, 3
"""Threads."""


def forward(sequence: int, start: int = 0, thread: int = FORWARD) -> Op:
    return Op(start=start, end=start + 5, thread=thread, sequence=sequence)


def backward(sequence: int, start: int = 50, forward_thread: int = 7) -> Op:
    return Op(start=start, end=start + 5, thread=BACKWARD, sequence=sequence, forward=forward_thread)


def forward_rows(*rows: Op, numbers: dict[int, int] | None = None) -> list[int]:
    """`numbers` are the host trace's numbers of ops, by row."""
    table = ops(*rows)
    tid = column(*((numbers or {}).get(row, -1) for row in range(len(rows))))
    return forward_ops(replace(table, tid=tid)).tolist()


def test_a_backward_op_differentiates_the_last_forward_op_with_its_number() -> None:
    assert forward_rows(forward(0), backward(0)) == [-1, 0]
    assert forward_rows(forward(0), forward(0, start=10), forward(1, start=20), backward(0)) == [-1, -1, -1, 1]


def test_a_forward_op_is_earlier_and_has_the_same_number() -> None:
    assert forward_rows(forward(4), backward(5), backward(3)) == [-1, -1, -1]
    assert forward_rows(forward(5, start=49), backward(5)) == [-1, 0]
    assert forward_rows(forward(5, start=50), backward(5)) == [-1, -1]
    assert forward_rows(backward(5), backward(5, start=40)) == [-1, -1]


def test_an_op_without_a_number_or_a_time_is_no_forward_op() -> None:
    assert forward_rows(forward(-1), backward(-1)) == [-1, -1]
    assert forward_rows(Op(thread=FORWARD, sequence=5), backward(5)) == [-1, -1]


def test_the_forward_thread_has_most_of_the_numbers() -> None:
    rows = [forward(5, thread=OTHER), forward(5, start=10), forward(6, start=20), backward(5), backward(6), backward(9)]
    assert forward_rows(*rows) == [-1, -1, -1, 1, 2, -1]


def test_the_forward_thread_is_one_that_the_host_trace_names_if_it_has_any_of_the_numbers() -> None:
    rows = [forward(5, thread=OTHER), forward(5, start=10), forward(6, start=20), backward(5), backward(6)]
    assert forward_rows(*rows, numbers={0: 7}) == [-1, -1, -1, 0, -1]
    assert forward_rows(forward(4, thread=OTHER), *rows[1:], numbers={0: 7}) == [-1, -1, -1, 1, 2]
