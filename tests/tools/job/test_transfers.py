"""How long collectives took from the last arrival on, and what of that is more than the network gives."""

from typing import Any

from execgraph.converter.ranks import GIB, CommunicationEntry, Network
from execgraph.converter.targets import LEAST_BYTES
from execgraph.schema.graph import CollectiveType, NodeType
from execgraph.tools.job.job_plan import ExcessTime, complete_matches, excess_times

KB = 1_000
NETWORK = Network(bandwidth_gib_s=1e9 / GIB, latency_ns=0.0)
"""A byte takes a ns; so an all-reduce of two members takes a ns for each byte."""


def entry(matched: int, start_ns: int, end_ns: int, size: int = KB, **more: Any) -> CommunicationEntry:
    length = end_ns - start_ns
    facts = {
        "type": NodeType.COMM_COLL,
        "collective": CollectiveType.ALL_REDUCE,
        "members": 2,
        "kernel": -1,
        "on_host": False,
    }
    return CommunicationEntry(
        node=matched + 10, matched=matched, size=size, end_ns=end_ns, length_ns=length, transfer_ns=length, follows=(),
        **facts | more,
    )  # fmt: skip


def excess(
    *issued: list[CommunicationEntry], order: list[int] | None = None, network: Network = NETWORK
) -> list[ExcessTime]:
    positions = [order or [*range(len(entries))] for entries in issued]
    return excess_times(issued, positions, complete_matches(issued, frozenset()), network)


def test_the_excess_is_what_the_last_to_come_took_beyond_the_network() -> None:
    early, late = [entry(0, 0, 5_000)], [entry(0, 1_500, 5_000)]
    assert excess(early, late) == [ExcessTime({10: 2_500}, 3_500, {})] * 2
    assert excess([entry(0, 0, KB)], [entry(0, 0, KB)]) == [ExcessTime({}, KB, {})] * 2


def test_what_ran_at_the_same_time_counts_once() -> None:
    both = [entry(0, 0, 3_000), entry(1, 0, 5_000)]
    assert excess(both, both) == [ExcessTime({10: 2_000, 11: 1_000}, 5_000, {})] * 2


def test_a_collective_beside_others_has_the_bytes_of_the_time_that_these_leave_it() -> None:
    both = [entry(0, 0, 4_000, size=4_000), entry(1, 1_000, 2_000)]
    assert excess(both, both, order=[1, 0]) == [ExcessTime({}, 3_000, {10: 2_000})] * 2
    assert excess(both, both, order=[0, 1]) == [ExcessTime({}, 4_000, {11: LEAST_BYTES})] * 2


def test_a_collective_of_all_ranks_that_others_hide_for_longer_than_its_latency_keeps_its_time() -> None:
    """An all-reduce of two members takes four latencies; the second has 100 ns alone."""
    slow = Network(bandwidth_gib_s=1e9 / GIB, latency_ns=50.0)
    both = [entry(0, 0, 4_000), entry(1, 1_000, 4_100)]
    assert [of.hidden for of in excess(both, both, network=slow)] == [(11,)] * 2
    assert [of.sizes for of in excess(both, both, network=slow)] == [{}] * 2
    assert [of.hidden for of in excess(both, both, [], network=slow)] == [()] * 3, "all ranks have to leave it out"


def test_bytes_that_fit_the_time_between_others_stay() -> None:
    both = [entry(0, 0, 4_000, size=1_500), entry(1, 1_000, 2_000)]
    assert excess(both, both, order=[1, 0]) == [ExcessTime({10: 500}, 3_000, {})] * 2


def test_what_the_network_gives_too_much_is_taken_off_the_next_of_the_group() -> None:
    one = [entry(0, 0, 400), entry(1, 1_000, 2_500), entry(2, 3_000, 4_800)]
    assert excess(one, one) == [ExcessTime({12: 700}, 3_700, {})] * 2


def test_host_threads_end_each_by_itself() -> None:
    first, second = [entry(0, 0, 5_000, on_host=True)], [entry(0, 1_000, 2_500, on_host=True)]
    assert excess(first, second) == [ExcessTime({10: 3_000}, 4_000, {}), ExcessTime({10: 500}, 1_500, {})]


def test_messages_and_what_no_network_was_fitted_for_have_no_excess() -> None:
    send, receive = (entry(0, 0, 9_000, type=kind, collective=-1) for kind in (NodeType.COMM_SEND, NodeType.COMM_RECV))
    rooted = entry(1, 10_000, 19_000, collective=CollectiveType.BROADCAST)
    barrier = entry(2, 20_000, 21_000, collective=CollectiveType.BARRIER, size=0)
    assert excess([send, rooted, barrier], [receive, rooted, barrier]) == [ExcessTime({12: 1_000}, 1_000, {})] * 2
    assert excess([entry(0, 0, 9_000)]) == [ExcessTime({}, 0, {})]
