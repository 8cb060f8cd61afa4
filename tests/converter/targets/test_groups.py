"""Names of groups: ASTRA-sim finds a group by a number, which it must know and be able to bear."""

from typing import Any

import pytest
from execgraph.converter.targets import for_astra_sim, lower_for_target
from execgraph.schema.errors import DataError
from support.for_simulator import ALL_REDUCE, communicating, lowered, report, targets
from support.graphs import GraphBuilder


def test_a_group_is_named_by_the_number_of_its_ranks() -> None:
    played = targets(communicating(), groups={(0, 1): 7})
    assert played.texts("pg_name")[1] == "7"
    assert played.texts("pg_recorded")[1] == "5"


@pytest.mark.parametrize(("groups", "name"), [({(0, 1): 7}, "7"), (None, "5")])
def test_a_generic_graph_names_groups_by_number_only_if_they_are_given(
    groups: dict[Any, int] | None, name: str
) -> None:
    assert lower_for_target(communicating(), "generic", groups).texts("pg_name")[1] == name


def test_the_group_of_all_simulated_ranks_has_no_name() -> None:
    assert targets(communicating(pg_ranks=[0, 1, 2, 3]), groups={}).texts("pg_name")[1] == ""


def test_all_ranks_in_another_ring_order_are_a_group_of_their_own() -> None:
    assert targets(communicating(pg_ranks=[0, 2, 1, 3]), groups={(0, 2, 1, 3): 1}).texts("pg_name")[1] == "1"


def test_without_numbers_a_rank_numbers_its_own_groups_and_says_so() -> None:
    played, told = lowered(communicating())
    assert played.texts("pg_name")[1] == "1"
    assert played.texts("pg_name")[1] == "1"
    assert any("numbered as this rank knows them" in note for note in told.notes)


def test_a_group_that_the_numbers_lack_is_refused() -> None:
    with pytest.raises(DataError, match=r"lack the ranks \[0, 1\]"):
        for_astra_sim(communicating(), groups={(2, 3): 1})


@pytest.mark.parametrize(("number", "too_large"), [(2_147, False), (2_148, True)])
def test_a_group_number_that_the_simulator_cannot_bear_is_told(number: int, too_large: bool) -> None:
    g = GraphBuilder(rank=0, world_size=4)
    for clock, ranks in enumerate(([0, 1], [0, 2])):
        g.collective(1_000 * clock, 500, ranks=ranks, comm_type=ALL_REDUCE, comm_size=64)
    told = report(g.build(), groups={(0, 1): 1, (0, 2): number})
    assert any("more than the simulator can bear" in note for note in told.notes) == too_large


def test_unknown_ranks_are_taken_as_all_and_told() -> None:
    played, told = lowered(communicating(pg_ranks=[]))
    assert played.texts("pg_name")[1] == ""
    assert told.notes == ["1 collectives without recorded ranks are taken as ones of all ranks"]
