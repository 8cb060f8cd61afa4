"""Collectives get types that ASTRA-sim runs, and sizes on which it does not hang."""

import pytest
from execgraph.converter.targets import LEAST_BYTES
from execgraph.converter.targets.communication import LOWERED, PLAYED, simulated_as
from execgraph.schema.graph import Change, CollectiveType, NodeType
from support.for_simulator import ALL_GATHER, ALL_REDUCE, communicating, lowered, report, targets, value


@pytest.mark.parametrize("kind", CollectiveType)
def test_every_collective_gets_a_type_that_runs(kind: CollectiveType) -> None:
    played, told = lowered(communicating(comm_type=kind))
    assert played.type[1] == NodeType.COMM_COLL
    assert value(played, "comm_type") in PLAYED
    assert value(played, "comm_size") == 4096
    assert bool(told.reasons(Change.LOWERED)) == (kind in LOWERED)


def test_a_type_is_simulated_as_itself_or_the_one_in_its_place_and_an_unknown_one_stays() -> None:
    assert [simulated_as(int(kind)) for kind in CollectiveType] == [LOWERED.get(kind, kind) for kind in CollectiveType]
    assert simulated_as(-1) == -1


def test_a_lowered_type_is_counted_by_name() -> None:
    assert report(communicating(comm_type=CollectiveType.GATHER)).reasons(Change.LOWERED) == {"gather as all_gather": 1}


def test_a_barrier_without_data_still_holds_the_ranks_together() -> None:
    played = targets(communicating(comm_type=CollectiveType.BARRIER, comm_size=0))
    assert (played.type[1], value(played, "comm_type")) == (NodeType.COMM_COLL, ALL_REDUCE)
    assert value(played, "comm_size") == LEAST_BYTES


def test_a_small_all_gather_is_padded_and_a_large_one_is_not() -> None:
    small, told = lowered(communicating(comm_type=ALL_GATHER, comm_size=3))
    assert (value(small, "comm_size"), told[Change.PADDED]) == (LEAST_BYTES, 1)
    assert (
        value(targets(communicating(comm_type=ALL_GATHER, comm_size=LEAST_BYTES + 1)), "comm_size") == LEAST_BYTES + 1
    )
    assert value(targets(communicating(comm_size=3)), "comm_size") == 3
