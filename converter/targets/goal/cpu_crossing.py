"""Waits from one cpu for another as LogGOPSim keeps them.

There an operation that requires one on another cpu begins when its own cpu is free, though the other one has only
begun: `requires` tells the order, and time passes on within a cpu alone, or through a nic, which sends no message
before the last one that it sent. So who is awaited elsewhere sends the rank a byte when it has ended, and who waits
sends one after that before it begins, through a nic of their own.
"""

from collections.abc import Sequence

from .operations import OWN, Operation, in_order

MESSAGES = 0
"""The cpu of messages to other ranks, the same on all: a message that arrives holds up the receiver's cpu of the
sender's number.
"""


def cross_by_messages(operations: Sequence[Operation], rank: int, lanes: int) -> list[Operation]:
    """Returns the operations, with messages of the rank to itself where one waits for another cpu; the cpus below
    `lanes` keep their order.

    O(n + e).
    """
    awaited = {source for one in operations for source in one.after if operations[source].cpu != one.cpu}
    found: list[Operation] = []
    end, last, tag = list[int](), dict[int, int](), 0

    def tell(cpu: int, after: tuple[int, ...]) -> int:
        nonlocal tag
        found.append(Operation("send", 1, cpu, after, rank, tag, OWN))
        found.append(Operation("recv", 1, MESSAGES, (len(found) - 1,), rank, tag, OWN, at_start=True))
        tag += 1
        return len(found) - 2

    for number, one in enumerate(operations):
        elsewhere = [end[source] for source in one.after if operations[source].cpu != one.cpu]
        after = [end[source] for source in one.after if operations[source].cpu == one.cpu]
        if MESSAGES < one.cpu < lanes and one.cpu in last:
            after.append(last[one.cpu])
        if elsewhere:
            after = [tell(one.cpu, in_order(after + elsewhere))]
        found.append(one._replace(after=in_order(after)))
        own = len(found) - 1
        end.append(tell(one.cpu, (own,)) if number in awaited else own)
        last[one.cpu] = end[-1]
    return found
