"""An argument of the wrong kind is answered with what the call takes."""

import numpy as np
import pytest
from execgraph.schema.arguments import (
    WHOLE,
    flags,
    non_negative,
    number,
    texts,
    two_ends,
    whole_number,
    whole_numbers,
    wrong_argument,
)


def test_the_answer_names_what_is_taken_and_what_was_given() -> None:
    assert str(wrong_argument("replay(graph)", "a graph", 3)) == "replay(graph) takes a graph, not int"


def test_whole_numbers_of_any_library_are_taken_and_nothing_else() -> None:
    assert whole_number(np.int32(3), "f(n)") == 3 and whole_numbers(np.array([1, 2]), "f(n)") == (1, 2)
    for argument in ("3", 1.5, None, [3]):
        with pytest.raises(TypeError, match=r"f\(n\) takes a whole number, not "):
            whole_number(argument, "f(n)")
    for several in (3, "3", ["3"], [1.5]):
        with pytest.raises(TypeError, match=r"f\(n\) takes whole numbers in a list, such as \[0, 1\], not "):
            whole_numbers(several, "f(n)")
    with pytest.raises(ValueError, match=r"f\(n\) takes 1 or more, not 0"):
        whole_number(0, "f(n)", least=1)


def test_one_text_is_not_taken_for_several() -> None:
    assert texts(["mm", "add"], "f(names)") == ("mm", "add")
    with pytest.raises(TypeError, match="takes texts in a list, not str"):
        texts("mm", "f(names)")


def test_numbers_are_no_texts_and_factors_are_not_negative() -> None:
    assert number(np.float32(0.5), "f(x)") == non_negative(0.5, "f(x)") == 0.5
    with pytest.raises(TypeError, match=r"f\(x\) takes a number, not str"):
        number("0.5", "f(x)")
    for factor in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"f\(x\) takes a number of 0 or more, not "):
            non_negative(factor, "f(x)")


def test_a_period_has_a_beginning_before_its_end() -> None:
    two_ends([0, 1.5], "f(ends)", "two times")
    for argument in (1, "01", (1,), (0, 1, 2), ("0", "1")):
        with pytest.raises(TypeError, match=r"f\(ends\) takes two times, not "):
            two_ends(argument, "f(ends)", "two times")
    with pytest.raises(TypeError):
        two_ends((0, 1.5), "f(ends)", "two steps", WHOLE)
    with pytest.raises(ValueError, match="2 is not before 2"):
        two_ends((2, 2), "f(ends)", "two times")


def test_a_flag_is_true_or_false() -> None:
    flags("f", strict=True, modules=np.True_)
    with pytest.raises(TypeError, match=r"f\(modules=…\) takes True or False, not str"):
        flags("f", strict=True, modules="yes")
