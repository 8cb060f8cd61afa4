"""Which sends of a job waited for their receiver, and where the ready message stands in the common order."""

from typing import Any

import pytest
from execgraph.converter.ranks import CommunicationEntry, SimulatedOrder, common_positions, simulated_orders
from execgraph.schema.graph import CollectiveType, NodeType

SEND, RECV = NodeType.COMM_SEND, NodeType.COMM_RECV


def entry(
    node: int, matched: int, start: int, end: int, follows: tuple[int, ...] = (), **more: Any
) -> CommunicationEntry:
    facts = {"type": NodeType.COMM_COLL, "collective": CollectiveType.ALL_REDUCE, "members": 2, "size": 8, "kernel": -1}
    return CommunicationEntry(
        node=node, matched=matched, end_ns=end, length_ns=end - start, transfer_ns=end - start, on_host=False,
        follows=follows, **facts | more,
    )  # fmt: skip


def message(
    type: NodeType, node: int, matched: int, start: int, end: int, follows: tuple[int, ...] = (), **more: Any
) -> CommunicationEntry:
    return entry(node, matched, start, end, follows, type=type, collective=-1, **{"kernel": matched, **more})


def orders(*issued: list[CommunicationEntry]) -> list[SimulatedOrder]:
    return simulated_orders(issued, common_positions(issued))


@pytest.mark.parametrize(("sent_until", "is_awaited"), [(60, True), (50, False)])
def test_a_send_that_ended_after_the_receiver_began_gets_a_ready_message(sent_until: int, is_awaited: bool) -> None:
    sender, receiver = orders([message(SEND, 1, 7, 0, sent_until)], [message(RECV, 2, 7, 50, 70)])
    assert list(sender.ready) == [1] * is_awaited
    assert list(receiver.ready) == [2] * is_awaited
    assert list(sender.ready.values()) == list(receiver.ready.values())


def test_a_receive_stands_where_its_send_is() -> None:
    reduced = entry(5, 1, 80, 90)
    sender, receiver = orders([message(SEND, 1, 7, 0, 60), reduced], [message(RECV, 2, 7, 50, 100), reduced])
    assert sender.positions[1] == receiver.positions[2] < receiver.positions[5] == sender.positions[5]


def test_a_message_whose_receiver_depends_on_what_comes_after_the_send_is_sent_at_once() -> None:
    """The root's broadcast ended before the other rank, which sends first, had begun it."""
    broadcast = {"collective": CollectiveType.BROADCAST}
    root = [entry(1, 1, 0, 10, **broadcast), message(RECV, 2, 7, 20, 40, follows=(0,))]
    sender = [message(SEND, 1, 7, 0, 40), entry(2, 1, 40, 50, (0,), **broadcast)]
    assert [order.ready for order in orders(root, sender)] == [{}, {}]


def test_messages_of_one_kernel_are_ready_when_the_kernel_is() -> None:
    """Two ranks swap messages; the second one of a kernel has its whole length."""

    def swap(sent: int, received: int) -> list[CommunicationEntry]:
        return [
            message(SEND, 1, sent, 0, 0, kernel=3),
            message(RECV, 2, received, 0, 100, (0,), kernel=3),
        ]

    assert [list(order.ready) for order in orders(swap(0, 1), swap(1, 0))] == [[1, 2], [1, 2]]


def test_a_kernel_ends_with_its_longest_message() -> None:
    """The longest one is neither first nor last; rank 1 receives the last one."""
    sender = [message(SEND, node, node, 0, end, kernel=3) for node, end in ((1, 10), (2, 60), (3, 20))]
    mine, theirs = orders(sender, [message(RECV, 4, 3, 50, 70)])
    assert (list(mine.ready), list(theirs.ready)) == ([3], [4])
    assert mine.awaited == theirs.awaited == {3}
