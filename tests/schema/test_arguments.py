"""Arguments of the wrong kind are answered with what the call takes; paths are told from objects, and endings apart."""

import io
from pathlib import Path

import numpy as np
import pytest
from execgraph.schema import arguments
from execgraph.schema.arguments import is_path, non_negative, number, path_of, texts, two_ends, whole_numbers


def test_the_answer_names_what_is_taken_and_what_was_given() -> None:
    assert str(arguments.wrong_argument("replay(graph)", "a graph", 3)) == "replay(graph) takes a graph, not int"


def test_whole_numbers_of_any_library_are_taken_and_nothing_else() -> None:
    assert arguments.whole_number(np.int32(3), "f(n)") == 3 and whole_numbers(np.array([1, 2]), "f(n)") == (1, 2)
    for argument in ("3", 1.5, None, [3]):
        with pytest.raises(TypeError, match=r"f\(n\) takes a whole number, not "):
            arguments.whole_number(argument, "f(n)")
    for several in (3, "3", ["3"], [1.5]):
        with pytest.raises(TypeError, match=r"f\(n\) takes whole numbers in a list, such as \[0, 1\], not "):
            whole_numbers(several, "f(n)")
    with pytest.raises(ValueError, match=r"f\(n\) takes 1 or more, not 0"):
        arguments.whole_number(0, "f(n)", least=1)


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
        two_ends((0, 1.5), "f(ends)", "two steps", arguments.WHOLE)
    with pytest.raises(ValueError, match="2 is not before 2"):
        two_ends((2, 2), "f(ends)", "two times")


def test_a_flag_is_true_or_false() -> None:
    arguments.flags("f", strict=True, modules=np.True_)
    with pytest.raises(TypeError, match=r"f\(modules=…\) takes True or False, not str"):
        arguments.flags("f", strict=True, modules="yes")


@pytest.mark.parametrize("name", ["graph.0.et", "G.JSON.GZ", "graph", "rank.7", "-", "a.json/graph"])
def test_a_name_that_says_the_same_or_nothing_is_fine(name: str) -> None:
    assert arguments.other_ending(name, ".et", ".json") == ""


@pytest.mark.parametrize("name", ["a.txt", "a.TXT.gz", "a.svg", "a.csv"])
def test_a_name_that_says_another_thing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"name a file that ends in \.et or \.json"):
        arguments.check_ending(name, ".et", ".json")


def test_text_and_paths_are_files_and_nothing_else_is() -> None:
    assert is_path("graph.0.et") and is_path(Path("graph.0.et"))
    assert not is_path(None) and not is_path(["graph.0.et"])


def test_an_open_file_is_read_from_where_it_stands_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "host_rank3.json").write_bytes(b"skipped {}")
    with (tmp_path / "host_rank3.json").open("rb") as stream:
        stream.seek(8)
        with path_of(stream) as path:
            assert (Path(path).name, Path(path).read_bytes()) == ("host_rank3.json", b"{}")
    assert not Path(path).exists()


def test_a_file_without_a_name_is_read_too_and_one_that_is_open_as_text_is_refused() -> None:
    assert arguments.is_file(io.BytesIO()) and not arguments.is_file([])
    with path_of(io.BytesIO(b"{}")) as path:
        assert Path(path).read_bytes() == b"{}"
    with pytest.raises(TypeError, match="open it with mode 'rb'"), path_of(io.StringIO()):  # type: ignore[arg-type]
        pass
    with pytest.raises(TypeError, match="is wanted, not int"), path_of(3):  # type: ignore[arg-type]
        pass
