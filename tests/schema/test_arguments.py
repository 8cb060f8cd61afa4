"""Arguments of calls, and files of communicator groups, that users give."""

import io
import json
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from execgraph.schema import arguments
from execgraph.schema.arguments import is_path, non_negative, number, path_of, texts, two_ends, whole_numbers
from execgraph.schema.comm_groups import check_simulators_read, number_groups, read_groups, write_groups
from execgraph.schema.errors import DataError, RequestError


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


LISTS = [(0, 1), (2, 3), (0, 1, 2, 3), (1, 3), (0, 2)]


def test_groups_are_numbered_in_any_order_alike_the_largest_first_by_ring_order_and_only_with_two_known_members():
    numbered = {tuple(sorted(number_groups(order).items())) for order in permutations(LISTS)}
    assert len(numbered) == 1
    assert sorted(number_groups(LISTS).values()) == [1, 2, 3, 4, 5]
    assert number_groups(LISTS)[0, 1, 2, 3] == 1
    assert number_groups([[0, 1, 2], [2, 1, 0], [0, 1, 2]]) == {(0, 1, 2): 1, (2, 1, 0): 2}
    assert number_groups([[3], [0, 1], [0, -1, 2]]) == {(0, 1): 1}


def test_a_file_gives_the_same_numbers_also_behind_a_byte_order_mark_and_of_two_for_one_list_the_smaller(tmp_path):
    path, groups = str(tmp_path / "comm_groups.json"), number_groups(LISTS)
    write_groups(path, groups)
    assert read_groups(path) == groups
    assert list(json.loads(Path(path).read_text())) == ["1", "2", "3", "4", "5"]
    path = tmp_path / "groups.json"
    path.write_text('{"1": [0, 1]}', encoding="utf-8-sig")
    assert read_groups(str(path)) == {(0, 1): 1}
    path = tmp_path / "groups.json"
    path.write_text('{"7": [0, 1], "3": [0, 1]}')
    assert read_groups(str(path)) == {(0, 1): 3}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"0": [0, 1]}', "the key '0' is no whole number from 1"),
        ('{"01": [0, 1]}', "the key '01' is no whole number"), ('{"default_pg": [0, 1]}', "the key 'default_pg'"),
        ('{"2147483648": [0, 1]}', "from 1 to 2147483647"), ('{"": [0, 1]}', "the key ''"),
        ('{"-1": [0, 1]}', "the key '-1'"), ('{"1": [0, -1]}', "group '1' is not a list of ranks"),
        ('{"1": []}', "group '1' is not a list of ranks"), ('{"1": [0, 0]}', "group '1' has a rank twice"),
        ('{"1": [0, "1"]}', "Expected `int`, got `str`"), ("[[0, 1]]", "is no communicator-group file"),
        ("{", "is no communicator-group file"),
    ],
)  # fmt: skip
def test_a_file_that_simulators_could_not_use_is_refused_with_the_place(tmp_path, content, complaint):
    path = tmp_path / "groups.json"
    path.write_text(content)
    with pytest.raises(DataError) as refused:
        read_groups(str(path))
    assert complaint in str(refused.value)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("number", [0, -1, 1 << 31])
def test_a_number_that_simulators_stop_at_is_not_written(tmp_path: Path, number: int) -> None:
    with pytest.raises(DataError, match="no whole number from 1"):
        write_groups(str(tmp_path / "groups.json"), {(0, 1): number})


def test_two_groups_of_one_number_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the same number"):
        write_groups(str(tmp_path / "groups.json"), {(0, 1): 1, (0, 2): 1})


def test_a_folder_whose_files_simulators_take_for_none_is_refused_for_them(tmp_path: Path) -> None:
    folder = tmp_path / "not_empty"
    folder.mkdir()
    with pytest.raises(RequestError, match="choose a folder without that word"):
        check_simulators_read(folder)
    check_simulators_read(tmp_path)
    write_groups(str(folder / "groups.json"), {(0, 1): 1})
    assert read_groups(str(folder / "groups.json")) == {(0, 1): 1}
