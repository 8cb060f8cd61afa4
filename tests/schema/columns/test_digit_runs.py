"""Texts that differ in digits alone have one shape, and their numbers come in columns."""

import numpy as np
from execgraph.schema.columns import DigitRuns, Interner, labelled
from hypothesis import given, strategies

TEXTS = strategies.lists(strategies.text("0123456789,-.[a", max_size=40), min_size=1, max_size=8)


def runs_of(texts: list[str]) -> tuple[DigitRuns, list[bytes]]:
    shapes = Interner[bytes]()
    runs = DigitRuns.of_texts([text.encode() for text in texts], shapes)
    return runs, list(shapes)


def test_rows_have_the_same_shape_if_they_differ_in_digits_alone() -> None:
    runs, shapes = runs_of(["[1,22]", "[333,4]", "[1]", "[]"])
    assert shapes == [b"[0,0]", b"[0]", b"[]"]
    assert runs.shape.tolist() == [0, 0, 1, 2]
    assert labelled(shapes[0]) == b"[1000,1001]"


def test_numbers_of_up_to_18_digits_are_exact() -> None:
    numbers = [0, 7, 12345678, 123456789, 9876543210987654, 999999999999999999]
    runs, _ = runs_of([f"[{number}]" for number in numbers])
    assert runs.integers(runs.first).tolist() == numbers


@given(TEXTS)
def test_texts_are_their_shapes_with_their_runs(texts: list[str]) -> None:
    runs, shapes = runs_of(texts)
    text = runs.text.tobytes()
    digits = [text[start : start + length] for start, length in zip(runs.starts, runs.lengths, strict=True)]
    bounds = [*runs.first.tolist(), len(digits)]
    for row, shape in enumerate(runs.shape.tolist()):
        rebuilt = shapes[shape].replace(b"0", b"%b") % tuple(digits[bounds[row] : bounds[row + 1]])
        assert rebuilt == texts[row].encode()


def test_a_line_end_within_a_text_is_a_blank() -> None:
    runs, shapes = runs_of(["[1,\n2]", "[3]"])
    assert (runs.shape.tolist(), shapes) == ([0, 1], [b"[0, 0]", b"[0]"])


def test_runs_of_different_digits_have_different_numbers() -> None:
    runs, _ = runs_of(["1", "01", "001", "1", "1" * 30, "1" * 31])
    numbers = runs.distinct_integers()
    assert len({*numbers.tolist()}) == 5
    assert numbers[0] == numbers[3]


def test_of_no_texts_there_are_no_runs() -> None:
    assert np.array_equal(runs_of([""])[0].starts, np.empty(0, np.int64))
