"""Which messages and collectives ASTRA-sim plays; the others become computation of the measured time."""

from typing import Any

import pytest
from execgraph.schema.columns import ABSENT
from execgraph.schema.graph import Change, NodeType
from support.for_simulator import ALL_GATHER, ALL_REDUCE, SEND, UNKNOWN, communicating, lowered, report, targets, value
from support.graphs import PROGRAM_ORDER, GraphBuilder


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"pg_ranks": [0]}, "in a group of one"),
        ({"pg_ranks": [1, 2]}, "in a group without this rank"),
        ({"pg_ranks": [0, 9]}, "in a group with ranks that are not simulated"),
        ({"comm_type": 42}, "of an unknown type"),
        ({"comm_type": ABSENT}, "of an unknown type"),
        ({"comm_size": 0}, "without data"),
        ({"comm_type": ALL_GATHER, "comm_size": 0}, "without data"),
        ({**SEND, "comm_dst": -1}, UNKNOWN),
        ({**SEND, "comm_dst": ABSENT}, UNKNOWN),
        ({**SEND, "comm_src": 2}, "of another rank"),
        ({**SEND, "comm_dst": 0}, "to the rank itself"),
        ({**SEND, "comm_dst": 4}, UNKNOWN),
        ({**SEND, "comm_tag": -1}, "with a tag out of range"),
        ({**SEND, "comm_size": 0}, "without data"),
    ],
)
def test_what_the_simulator_cannot_play_becomes_computation_of_the_measured_time(
    attributes: dict[str, Any], reason: str
) -> None:
    played, told = lowered(communicating(**attributes))
    assert played.type[1] == NodeType.COMP
    assert played.duration_micros[1] == 5
    assert told.reasons(Change.AS_COMPUTATION) == {reason: 1}
    assert played.texts("pg_name").codes[1] == -1


def test_messages_of_a_graph_that_does_not_know_its_rank_cannot_be_played() -> None:
    assert report(communicating(**{**SEND, "comm_src": ABSENT}, rank=-1)).reasons(Change.AS_COMPUTATION) == {UNKNOWN: 1}


def test_a_side_and_a_tag_that_are_not_recorded_are_the_own_rank_and_zero() -> None:
    names = ("comm_src", "comm_dst", "comm_tag")
    received = targets(communicating(type=NodeType.COMM_RECV, rank=2, comm_src=1))
    assert received.type[1] == NodeType.COMM_RECV
    assert [value(received, name) for name in names] == [1, 2, 0]
    sent = targets(communicating(type=NodeType.COMM_SEND, rank=2, comm_dst=1))
    assert sent.type[1] == NodeType.COMM_SEND
    assert [value(sent, name) for name in names] == [2, 1, 0]
    assert [value(sent, name, 0) for name in names] == [ABSENT] * 3
    assert "comm_src" not in targets(communicating()).attributes


def test_communication_that_the_host_recorded_is_not_on_the_host() -> None:
    g = GraphBuilder(rank=0, world_size=2)
    g.host("gloo", 0, 5_000, type=NodeType.COMM_COLL, comm_type=ALL_REDUCE, comm_size=8, pg_ranks=[0, 1])
    g.host("after", 5_000, 5_000, after=[(1, PROGRAM_ORDER)])
    assert targets(g.build()).integers("is_cpu_op").tolist() == [0, 1]
