"""Storages live from the op that makes them to the last that names them, be numbers used again or results those of
other ops.
"""

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from execgraph.converter.work import Lifetimes, highest_within, lifetimes, live_bytes
from execgraph.converter.work.kernel_work import BEFORE
from execgraph.schema.columns import Series
from execgraph.schema.linked import HOST
from hypothesis import given, strategies as st
from support.builder.timeline import TraceBuilder
from support.runs import link_run
from support.tables import Op, ops

Span = tuple[int, int, int, int, int]
"""Number, bytes, begin, until, the row of the op that made it."""


def spans(found: Lifetimes) -> set[Span]:
    return set(
        zip(
            *(column.tolist() for column in (found.storage, found.size, found.begin, found.until, found.op_row)),
            strict=True,
        )
    )


def of(t: TraceBuilder) -> Lifetimes:
    return lifetimes(link_run(t).ops)


def in_us(found: Lifetimes) -> list[tuple[float, float]]:
    zero = found.begin.min()
    return [
        ((begin - zero) / 1000, (until - zero) / 1000) for begin, until in zip(found.begin, found.until, strict=True)
    ]


@pytest.mark.parametrize("torch", ["2.1", "2.13"])
def test_a_storage_lives_from_its_making_to_the_end_of_the_last_reader(torch: str) -> None:
    t = TraceBuilder(torch=torch)
    made = t.tensor((8, 8))
    t.leaf("aten::empty", 5, outputs=[made])
    t.idle(7)
    t.leaf("aten::sum", 3, inputs=[t.tensor((2,), storage=made, offset=4)])
    t.leaf("aten::add", 9)
    assert in_us(of(t)) == [(0, 15)]
    assert of(t).size.tolist() == [256]


def test_what_is_read_before_it_is_made_was_there_before() -> None:
    t = TraceBuilder()
    weight = t.tensor((4,))
    t.leaf("aten::add", 5)
    t.leaf("aten::mul", 5, inputs=[weight], outputs=[t.tensor((4,))])
    found = of(t)
    assert in_us(found) == [(0, 10), (5, 10)]
    assert (found.op_row == BEFORE).tolist() == [True, False]


def test_ops_that_hand_on_what_others_made_make_nothing() -> None:
    """`linear` returns what `addmm` made, which got it from `empty`; `add_` returns what it was given."""
    t = TraceBuilder()
    made = t.tensor((4,))
    with t.op("aten::linear", outputs=[made]):
        t.idle(1)
        with t.op("aten::addmm", outputs=[made]):
            t.leaf("aten::empty", 2, outputs=[made])
            t.idle(3)
    t.leaf("aten::add_", 4, inputs=[made], outputs=[made])
    assert in_us(of(t)) == [(0, 9)]


def test_a_number_that_is_used_again_is_another_storage() -> None:
    t = TraceBuilder()
    first = t.tensor((4,))
    again = t.tensor((16,), storage=first)
    t.leaf("aten::empty", 2, outputs=[first])
    t.leaf("aten::relu", 2, inputs=[first])
    t.idle(10)
    t.leaf("aten::empty", 2, outputs=[again])
    found = of(t)
    assert in_us(found) == [(0, 4), (14, 16)]
    assert found.size.tolist() == [16, 64]


def test_devices_are_apart_and_what_has_no_memory_is_left_out() -> None:
    t = TraceBuilder()
    places = ["cpu", "meta", "cuda:0", "cuda:3", "mps"]
    t.leaf("aten::empty", 2, outputs=[t.tensor((4,), device=one) for one in places])
    t.leaf("aten::empty", 2, outputs=[t.tensor((0,))])
    assert sorted(of(t).device.tolist()) == [HOST, 0, 0, 3]


def test_without_tensors_nothing_lives() -> None:
    t = TraceBuilder()
    t.leaf("aten::empty", 2)
    assert len(of(t).storage) == 0
    assert highest_within(live_bytes(of(t)), np.array([0]), np.array([9])).tolist() == [0]


@dataclass
class Program:
    """Plays nested ops that make storages and use those that live, and keeps what becomes of each."""

    chance: random.Random
    clock: int = 0
    rows: list[Op] = field(default_factory=list)
    live: dict[int, Span] = field(default_factory=dict)
    gone: list[Span] = field(default_factory=list)

    def named(self, number: int) -> str:
        return f'[9,{number},0,{self.live[number][1]},1,"cuda:0"]'

    def op(self, depth: int = 0) -> set[int]:
        """One op with those that it calls; what it and these have made."""
        start, given = self.clock, set(self.some())
        self.clock += self.chance.randint(0, 2)
        made: set[int] = set()
        for _ in range(self.chance.randint(0, 3) if depth < 3 else 0):
            made |= self.op(depth + 1)
            self.clock += self.chance.randint(0, 1)
        self.clock += 1
        if not made and self.chance.random() < 0.6:
            number = self.chance.choice([n for n in range(1, 9) if n not in self.live] or [100 + len(self.rows)])
            self.live[number] = (number, self.chance.randint(1, 50), start, self.clock, len(self.rows))
            made = {number}
        results = {one for one in made if self.chance.random() < 0.7 or len(made) == 1} | {
            one for one in given if self.chance.random() < 0.3
        }
        for number in given | results:
            name, size, begin, until, by = self.live[number]
            self.live[number] = name, size, begin, max(until, self.clock), by
        lists = (f'{{"values":[{",".join(map(self.named, sorted(one)))}]}}'.encode() for one in (given, results))
        self.rows.append(Op("aten::op", start, self.clock, 0, -1, 0, "", *lists))
        return made

    def some(self) -> list[int]:
        return [one for one in self.live if self.chance.random() < 0.3]

    def play(self, count: int) -> "Program":
        self.live = {number: (number, 5 * number, BEFORE, BEFORE, BEFORE) for number in (7, 8)}
        for _ in range(count):
            self.op()
            self.clock += self.chance.randint(1, 3)
            for number in self.some():
                self.gone.append(self.live.pop(number))
        self.gone += self.live.values()
        # what was there before begins with the recording, if any op names it
        self.gone = [(n, s, max(b, 0), u, by) for n, s, b, u, by in self.gone if u >= 0]
        return self


@given(st.integers(0, 1 << 32))
def test_whatever_ops_make_and_use_each_storage_is_found(seed: int) -> None:
    program = Program(random.Random(seed)).play(8)
    found = lifetimes(ops(*program.rows))
    assert spans(found) == set(program.gone)
    steps = live_bytes(found)

    def live(time: int) -> int:
        return sum(size for _, size, begin, until, _ in program.gone if begin <= time < until)

    start, end = (np.array(one) for one in zip(*((row.start, row.end) for row in program.rows), strict=True))
    expected = [max(map(live, range(row.start, max(row.end, row.start + 1)))) for row in program.rows]
    assert highest_within(steps, start, end).tolist() == expected


def test_the_highest_of_a_span_of_no_length_is_what_is_there() -> None:
    curve = Series(np.array([10, 20]), np.array([5, 0]))
    moments = np.array([9, 10, 15, 20])
    assert highest_within(curve, moments, moments).tolist() == [0, 5, 5, 0]


def test_the_highest_of_spans_of_any_length_that_overlap() -> None:
    curve = Series(np.arange(0, 200, 2), np.random.default_rng(3).integers(0, 1000, 100))
    start, length = (column.reshape(-1) for column in np.meshgrid(np.arange(-3, 205), np.arange(70)))
    expected = [
        max(
            [0, *curve.value[: np.searchsorted(curve.time, begin, side="right")]][-1:]
            + curve.value[(curve.time > begin) & (curve.time < begin + lasts)].tolist()
        )
        for begin, lasts in zip(start.tolist(), length.tolist(), strict=True)
    ]
    assert highest_within(curve, start, start + length).tolist() == expected
