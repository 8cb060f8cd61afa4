"""The order of every two groups that share several ranks, beside a reference that looks at all pairs."""

from collections.abc import Callable
from itertools import permutations

from execgraph.converter.ranks import Group, ranks_of
from execgraph.tools.job.rank_comms import _digest, _orders
from hypothesis import given, strategies as st
from support.effort import growth

RANKS = st.sampled_from(["0", "0-1", "0,2", "0-3", "1-2", "0-7:7", ""])


def reference(groups: list[Group], in_order: list[Group]) -> list[tuple[int, int, str]]:
    members = [{*ranks_of(group.ranks)} for group in groups]
    return [
        (one, other, _digest(group == groups[one] for group in in_order if group in (groups[one], groups[other])))
        for one, other in permutations(range(len(groups)), 2)
        if len(members[one] & members[other]) > 1 and (one < other or groups[one].ranks == groups[other].ranks)
    ]


@given(st.lists(st.builds(Group, RANKS, st.sampled_from("ab"), st.just("")), max_size=6, unique=True), st.data())
def test_groups_that_share_several_ranks_have_an_order(groups: list[Group], data: st.DataObject) -> None:
    in_order = data.draw(st.lists(st.sampled_from(groups), max_size=9)) if groups else []
    assert _orders(groups, in_order) == reference(groups, in_order)


def groups_of_two(count: int) -> Callable[[], object]:
    groups = [Group(f"0,{rank}", str(rank), "") for rank in range(1, count)]
    return lambda: _orders(groups, groups)


def overlapping_groups(count: int) -> Callable[[], object]:
    groups = [Group(f"0,{rank}-{rank + 2}", str(rank), "") for rank in range(1, count)]
    return lambda: _orders(groups, groups)


def test_the_effort_of_orders_grows_with_the_groups_and_not_with_their_square() -> None:
    assert growth(groups_of_two, 50) < 2.5
    assert growth(overlapping_groups, 50) < 2.5
