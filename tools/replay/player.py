"""Plays a graph: when each of its rows ends, by the rules of a run, of full devices, or of ASTRA-sim.

What is limited by nothing but dependencies is swept over once, in any topological order (`earliest_ends`). Else `play`
takes events in the order of time, and rules (`Slots`, `OneOfAKind`) say what they settle.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ...converter.rewiring import COMMUNICATION, control_edges, data_edges
from ...schema.columns import Int64, Ns, Ragged, Rows, numbers
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph, NodeType
from .workload import SlotPool

Event = tuple[int, int]
"""A time in ns, and the row that it is about."""
HOST, COMPUTATION, TRANSFER, RECEIVE = range(4)
"""What a node of ASTRA-sim needs. A rank has one of each of the first three, and as many receives as there are."""
EndsKnown = Callable[[Event], Iterable[Event]]
"""Takes when a row starts, and returns the ends of rows that are known by that."""


def play(source: Rows, target: Rows, lag_ns: Ns, rules: "Slots | OneOfAKind") -> Ns:
    """Returns when each row ends, -1 for rows that never do. O((n + e) log n).

    A row is ready `lag_ns` after the ends of its sources, the latest of these counts. Rules know its cost, keep a heap
    of the events to come, are told which rows are released, and settle which row's end is known by an event, if any.
    """
    count, by_source = rules.rows, np.argsort(source, kind="stable")
    dependents = Ragged.grouped(source[by_source], target[by_source], count)
    starts, followers = dependents.starts.tolist(), dependents.values.tolist()
    lags, unmet = lag_ns[by_source].tolist(), np.bincount(target, minlength=count).tolist()
    ready, end = [0] * count, [-1] * count
    for row in range(count):
        if not unmet[row]:
            rules.release(row, 0)
    rules.go_on((0, -1))
    while rules.events:
        event = heapq.heappop(rules.events)
        if (settled := rules.settle(event)) is None:
            continue
        ended, row = settled
        end[row] = ended
        for edge in range(starts[row], starts[row + 1]):
            follower = followers[edge]
            ready[follower] = max(ready[follower], ended + lags[edge])
            unmet[follower] -= 1
            if not unmet[follower]:
                rules.release(follower, ready[follower])
        rules.go_on(event)
    return np.array(end, np.int64)


def earliest_ends(source: Rows, target: Rows, lag_ns: Ns, cost_ns: Ns, order: Rows) -> Ns:
    """Returns when each row ends: its cost after its sources' last end plus lag; `order` has sources before targets."""
    position = np.empty(len(cost_ns), np.int64)
    position[order] = np.arange(len(cost_ns))
    in_order = np.argsort(position[target], kind="stable")
    end, delay = numbers(cost_ns), lag_ns + cost_ns[target]
    for before, row, after in zip(*(numbers(column[in_order]) for column in (source, target, delay)), strict=True):
        end_after = end[before] + after
        if end_after > end[row]:
            end[row] = end_after
    return np.array(end, np.int64)


class Slots:
    """Full devices: the row that is ready first takes the slot that is free first; events are when rows are ready.

    Row `r` takes a slot of `pools[pool[r]]`, none where that is -1 or beyond. `slot_after` is whose slot it waited for.
    """

    def __init__(self, cost_ns: Int64, pool: Int64, pools: Sequence[SlotPool]) -> None:
        self.events: list[Event] = []
        self.rows, self._costs, self._pools = len(cost_ns), cost_ns.tolist(), pools
        self._pool = [*pool.tolist(), *[-1] * (len(cost_ns) - len(pool))]
        self._free = [[(0, -1)] * of_device.slot_count for of_device in pools]
        # rows that are ready within so many ns count as ready at the same time; 0 where the clock of a device tells the
        # order, and last for rows that take no slot
        self._resolutions = [*(4 * of_device.cut_off_ns for of_device in pools), 0]
        self._later: list[list[Event]] = [[] for _ in pools]
        self._tied: list[list[int]] = [[] for _ in pools]
        self._ready, self._begun = [0] * len(cost_ns), bytearray(len(cost_ns))
        self.slot_after = [-1] * len(cost_ns)

    def release(self, row: int, ready_ns: int) -> None:
        """Notes when the row is ready."""
        self._ready[row] = ready_ns
        heapq.heappush(self.events, (ready_ns, row))
        if self._resolutions[self._pool[row]]:
            heapq.heappush(self._later[self._pool[row]], (ready_ns, row))

    def settle(self, event: Event) -> Event | None:
        """Lets the row begin in the slot that is free first, or one that is ready at the same time and is lower."""
        begin, row = event
        if self._begun[row]:
            return None
        device = self._pool[row]
        if self._resolutions[device] and (first := self._first(device, begin)) != row:
            # this one comes again after it
            heapq.heappush(self.events, event)
            begin, row = self._ready[first], first
        self._begun[row] = True
        if device < 0:
            return begin + self._costs[row], row
        free_from, last_row = self._free[device][0]
        if free_from > begin:
            begin, self.slot_after[row] = free_from, last_row
        ended = begin + self._costs[row]
        heapq.heapreplace(self._free[device], (ended + self._pools[device].cut_off_ns, row))
        return ended, row

    def _first(self, device: int, begin: int) -> int:
        """Takes out the lowest row of those ready at `begin`, when the first is: it started first when measured."""
        later, tied = self._later[device], self._tied[device]
        while later and later[0][0] <= begin + self._resolutions[device]:
            heapq.heappush(tied, heapq.heappop(later)[1])
        return heapq.heappop(tied)

    def go_on(self, event: Event) -> None:
        """Has nothing to start: ready rows are events."""


class OneOfAKind:
    """ASTRA-sim: a rank runs one host node, one computation and one communication at a time; events are ends.

    Of several ready nodes it takes the lowest id; a receive waits beside anything. `needs` is what each row needs, plus
    four times the position of its rank. Times agree with versions 2025-08 and 2026-03, but for 1 ns per node of 0 µs.
    """

    def __init__(self, needs: Int64, ranks: int, ends_of: EndsKnown) -> None:
        self.events: list[Event] = []
        self.rows, self._needs, self._ends_of = len(needs), needs.tolist(), ends_of
        self._is_free = [True] * (4 * ranks)
        self._ready: list[list[int]] = [[] for _ in self._is_free]
        self.running = 0

    def release(self, row: int, ready_ns: int) -> None:
        """Makes the row ready."""
        heapq.heappush(self._ready[self._needs[row]], row)

    def settle(self, event: Event) -> Event:
        """Frees what the row took."""
        self._is_free[self._needs[event[1]]] = True
        self.running -= 1
        return event

    def go_on(self, event: Event) -> None:
        """Starts the ready rows of the rank, or of all ranks at first, for which there is what they need."""
        now, row = event
        of_rank = slice(self._needs[row] // 4 * 4, self._needs[row] // 4 * 4 + 4) if row >= 0 else slice(None)
        for resource in range(len(self._is_free))[of_rank]:
            ready = self._ready[resource]
            while ready and (self._is_free[resource] or resource % 4 == RECEIVE):
                self._is_free[resource] = False
                self.running += 1
                for end in self._ends_of((now, heapq.heappop(ready))):
                    heapq.heappush(self.events, end)


def recorded_lengths(graphs: Sequence[ExecutionGraph]) -> Int64:
    """Returns what the simulator makes of each node's `duration_micros`, of all graphs, one after the other."""
    return np.concatenate([graph.duration_micros.astype(np.int64) * 1000 for graph in graphs])


def simulated_ends(graphs: Sequence[ExecutionGraph], ends_known: EndsKnown | None = None) -> list[Int64]:
    """Returns when each node of each rank ends in the simulator (ns). O((n + e) log n).

    Without `ends_known`, which counts rows over all graphs, every node takes its `duration_micros`, and ranks do not
    wait for each other. Raises DataError if nodes never end.
    """
    lengths = recorded_lengths(graphs).tolist()
    first_row = np.cumsum([0, *map(len, graphs)])
    edges = [
        np.stack((kind.source, kind.target)) + first
        for graph, first in zip(graphs, first_row, strict=False)
        for kind in (data_edges(graph), control_edges(graph))
    ]
    source, target = np.unique(np.concatenate(edges, axis=1), axis=1)
    needs = np.concatenate([4 * rank + _needs(graph) for rank, graph in enumerate(graphs)])
    rules = OneOfAKind(needs, len(graphs), ends_known or (lambda start: ((start[0] + lengths[start[1]], start[1]),)))
    ends = play(source, target, np.zeros_like(source), rules)
    if never := int((ends < 0).sum()):
        why = "communication waits for a member for ever" if rules.running else "the dependencies form a cycle"
        raise DataError(f"{never} of {len(ends)} nodes never become ready; {why}")
    return np.split(ends, first_row[1:-1])


def _needs(graph: ExecutionGraph) -> Int64:
    on_host = graph.integers("is_cpu_op", 0) != 0
    conditions = [on_host, graph.type == NodeType.COMM_RECV, np.isin(graph.type, COMMUNICATION)]
    return np.select(conditions, [HOST, RECEIVE, TRANSFER], COMPUTATION).astype(np.int64)
