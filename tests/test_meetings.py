"""Which collectives of different ranks are one."""

from execgraph.converter.targets.meetings import Call, Meeting, meetings

WORLD = "0-1"


def calls(*sequences: int, kind: int = 0, name: str = "0", members: str = WORLD) -> list[Call]:
    return [Call(members, name, kind, sequence) for sequence in sequences]


def met(*ranks: list[Call]) -> int:
    """How many meetings all ranks take part in."""
    found: list[set[Meeting]] = [set(keys) for keys in meetings(ranks)]
    return len(set.intersection(*found))


def test_the_same_numbers_meet() -> None:
    assert met(calls(5, 6, 7), calls(5, 6, 7)) == 3


def test_a_rank_that_began_to_record_later_meets_from_there_on() -> None:
    first, second = meetings([calls(5, 6, 7, 8), calls(7, 8, 9)])
    assert first[2:] == second[:2]
    assert len({*first, *second}) == 5


def test_what_has_no_number_meets_in_order() -> None:
    assert met(calls(-1, -1), calls(-1, -1, -1)) == 2


def test_numbers_that_differ_throughout_are_not_used() -> None:
    # where messages are counted too, ranks that send more have higher numbers
    assert met(calls(*range(30)), calls(*range(0, 90, 3))) == 30


def test_a_few_numbers_that_differ_are_believed() -> None:
    assert met(calls(7), calls(8)) == 0


def test_other_types_do_not_meet() -> None:
    assert met(calls(1, kind=0), calls(1, kind=2)) == 0


def test_groups_of_the_same_members_are_told_apart_by_name() -> None:
    assert met([*calls(1, name="0"), *calls(1, name="3")], [*calls(1, name="3"), *calls(1, name="0")]) == 2


def test_names_that_every_rank_counts_for_itself_are_taken_in_order() -> None:
    mine = [*calls(1, 2, name="9"), *calls(1, name="10", kind=2)]
    theirs = [*calls(1, name="4", kind=2), *calls(1, 2, name="3")]
    assert met(mine, theirs) == 3


def test_a_name_stands_for_other_groups_on_other_ranks() -> None:
    assert met(calls(1, name="1", members="0,1"), calls(1, name="1", members="2,3")) == 0
