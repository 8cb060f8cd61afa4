"""When members of a ring end: the closed form against sending message by message."""

import numpy as np
from execgraph.tools.replay.simulator import direct_ends, ring_ends
from hypothesis import given, strategies as st

TIMES = st.integers(0, 1_000_000)


def message_by_message(arrival: list[int], hop_ns: list[int], steps: int) -> list[int]:
    """Each member sends when it came and whenever it received; it receives when it has sent."""
    ready = arrival
    for _ in range(steps):
        ready = [max(ready[member], ready[member - 1] + hop_ns[member - 1]) for member in range(len(ready))]
    return ready


@given(st.data(), st.integers(2, 9), st.integers(0, 30))
def test_a_ring_ends_as_if_each_message_were_sent(data: st.DataObject, count: int, more_steps: int) -> None:
    arrival, hops = (data.draw(st.lists(TIMES, min_size=count, max_size=count)) for _ in range(2))
    steps = count - 1 + more_steps
    found = ring_ends(np.array([arrival]), np.array([hops]), steps)
    assert found.tolist() == [message_by_message(arrival, hops, steps)]


def test_a_late_member_finds_messages_that_wait_for_it() -> None:
    ends = ring_ends(np.array([0, 0, 0, 1_000]), np.full(4, 100), 6)
    # together they would take 600 from the last arrival on
    assert ends.tolist() == [1_500, 1_600, 1_300, 1_400]


def test_direct_messages_come_from_the_last_of_the_others() -> None:
    took = np.full((3, 3), 50)
    assert direct_ends(np.array([0, 10, 900]), took).tolist() == [950, 950, 900]
