"""Numbers of communicator groups, and the file that tells simulators who is in them."""

import json
from itertools import permutations
from pathlib import Path

import pytest
from execgraph.schema.comm_groups import check_simulators_read, number_groups, read_groups, write_groups
from execgraph.schema.errors import DataError, RequestError

LISTS = [(0, 1), (2, 3), (0, 1, 2, 3), (1, 3), (0, 2)]


def test_the_numbers_do_not_depend_on_the_order_in_which_the_groups_are_known() -> None:
    numbered = {tuple(sorted(number_groups(order).items())) for order in permutations(LISTS)}
    assert len(numbered) == 1
    assert sorted(number_groups(LISTS).values()) == [1, 2, 3, 4, 5]


def test_the_largest_group_comes_first() -> None:
    assert number_groups(LISTS)[0, 1, 2, 3] == 1


def test_another_ring_order_is_another_group() -> None:
    assert number_groups([[0, 1, 2], [2, 1, 0], [0, 1, 2]]) == {(0, 1, 2): 1, (2, 1, 0): 2}


def test_a_group_of_one_or_with_a_member_that_is_not_there_gets_no_number() -> None:
    assert number_groups([[3], [0, 1], [0, -1, 2]]) == {(0, 1): 1}


def test_a_file_read_back_gives_the_same_numbers(tmp_path: Path) -> None:
    path, groups = str(tmp_path / "comm_groups.json"), number_groups(LISTS)
    write_groups(path, groups)
    assert read_groups(path) == groups
    assert list(json.loads(Path(path).read_text())) == ["1", "2", "3", "4", "5"]


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    path.write_text('{"1": [0, 1]}', encoding="utf-8-sig")
    assert read_groups(str(path)) == {(0, 1): 1}


def test_of_two_numbers_for_one_rank_list_the_smaller_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    path.write_text('{"7": [0, 1], "3": [0, 1]}')
    assert read_groups(str(path)) == {(0, 1): 3}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"0": [0, 1]}', "the key '0' is no whole number from 1"),
        ('{"01": [0, 1]}', "the key '01' is no whole number"),
        ('{"default_pg": [0, 1]}', "the key 'default_pg'"),
        ('{"2147483648": [0, 1]}', "from 1 to 2147483647"),
        ('{"": [0, 1]}', "the key ''"),
        ('{"-1": [0, 1]}', "the key '-1'"),
        ('{"1": [0, -1]}', "group '1' is not a list of ranks"),
        ('{"1": []}', "group '1' is not a list of ranks"),
        ('{"1": [0, 0]}', "group '1' has a rank twice"),
        ('{"1": [0, "1"]}', "Expected `int`, got `str`"),
        ("[[0, 1]]", "is no communicator-group file"),
        ("{", "is no communicator-group file"),
    ],
)
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
