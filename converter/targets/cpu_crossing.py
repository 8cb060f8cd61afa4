"""Makes operations wait for other cpus in a way that LogGOPSim keeps.

In LogGOPSim an operation that requires one on another cpu starts when its own cpu is free, even if the other one has
only begun: `requires` gives the order, but time passes only within a cpu, or through a nic, which sends messages in
order. So an operation that is awaited elsewhere sends the rank a byte when it has ended, and the operation that waits
first sends another byte after that one, both through a nic of their own.
"""

from collections.abc import Sequence
from itertools import count

from .operations import WITHIN_RANK, Operation, in_order

MESSAGES = 0
"""The cpu of messages to other ranks, the same on all ranks: an arriving message blocks the receiver's cpu that has the
number of the sender's.
"""


def cross_by_messages(operations: Sequence[Operation], rank: int, lanes: int) -> list[Operation]:
    """Returns the operations, with messages of the rank to itself where one waits for another cpu. O(n + e).

    Operations on the cpus below `lanes` keep their order.
    """
    awaited = {
        source for operation in operations for source in operation.after if operations[source].cpu != operation.cpu
    }
    crossed: list[Operation] = []
    begin, end, last, tags = list[int](), list[int](), dict[int, int](), count()

    def send_to_itself(cpu: int, after: tuple[int, ...]) -> int:
        tag = next(tags)
        crossed.append(Operation("send", 1, cpu, after, rank, tag, WITHIN_RANK))
        crossed.append(Operation("recv", 1, MESSAGES, (), rank, tag, WITHIN_RANK, (len(crossed) - 1,)))
        return len(crossed) - 2

    for number, operation in enumerate(operations):
        cpu = operation.cpu
        elsewhere = [end[source] for source in operation.after if operations[source].cpu != cpu]
        after = [end[source] for source in operation.after if operations[source].cpu == cpu]
        if MESSAGES < cpu < lanes and cpu in last:
            after.append(last[cpu])
        if elsewhere:
            after = [send_to_itself(cpu, in_order(after + elsewhere))]
        after_begin = tuple(begin[source] for source in operation.after_begin)
        crossed.append(operation._replace(after=in_order(after), after_begin=after_begin))
        position = len(crossed) - 1
        begin.append(position)
        end.append(send_to_itself(cpu, (position,)) if number in awaited else position)
        last[cpu] = end[-1]
    return crossed
