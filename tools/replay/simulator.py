"""Plays a job as ASTRA-sim does, before anybody runs the simulator, and compares when each rank finishes with the run.

The network is analytical and without congestion: a message takes the latency of its links and the time of its bytes,
whatever else is on its way. Where two ranks differ in several dimensions it goes through the first of these alone.
Members of a collective meet; a send does not wait for its receive, and a receive after its message ends at once.
A rank that began to record later begins with its start offset, so that its times are on the job's clock, and so is the
measured run that they are compared with.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...converter.ranks import GIB, Link, links_text, stages, step_cost
from ...converter.targets import Roofline, computes
from ...schema.arguments import ASTRA_SIM
from ...schema.columns import Int64, Summary, summary_text, time_text
from ...schema.errors import DataError, Remedy
from ...schema.graph import CollectiveType, ExecutionGraph, NodeType
from .player import Event, recorded_lengths, simulated_ends
from .simulator_configuration import DIRECT, RING, Configuration
from .workload import gather

REPLAY, SIMULATED, ROOFLINE = "replay", "simulated", "roofline"
Times = npt.NDArray[np.int64]
ADDED_SHARE = {CollectiveType.REDUCE_SCATTER: 1.0, CollectiveType.ALL_REDUCE: 0.5}
"""The share of the steps of a ring in which what arrives is added up."""
MEMORY_PASSES = 3
"""Of what is added up: two are read and one is written."""


def ring_ends(arrival: Times, hop_ns: Times, steps: int) -> Times:
    """Returns when (ns) each member has received its last message in a ring. O(n) for any number of steps.

    Every member sends a message to the next one when it comes, and another one whenever it has received one; the last
    axis are the members. So a member ends with the latest of the messages that went round to it: from each member the
    one that took as many hops as the steps allow. `steps` is at least the number of members less one.

    Args:
        arrival: When each member comes.
        hop_ns: How long a message takes from each member to the next.
        steps: How many messages each receives.
    """
    count = arrival.shape[-1]
    along = np.concatenate((np.zeros_like(hop_ns[..., :1]), np.cumsum(_twice(hop_ns), axis=-1)), axis=-1)
    lead = _twice(arrival) - along[..., :-1]
    latest = np.maximum.accumulate(lead[..., ::-1], axis=-1)[..., ::-1]
    rounds, first = np.divmod(np.arange(count) - steps, count)
    return np.asarray(along[..., :count] - rounds * along[..., count : count + 1] + latest[..., first])


def direct_ends(arrival: Times, message_ns: Times) -> Times:
    """Returns when each member has its message from every other one; `message_ns[..., i, j]` is how long one from i to
    j takes.
    """
    received = arrival[..., :, None] + message_ns
    count = arrival.shape[-1]
    received[..., np.arange(count), np.arange(count)] = arrival
    return np.asarray(received.max(axis=-2))


def _twice(values: Times) -> npt.NDArray[Any]:
    return np.concatenate((values, values), axis=-1)


class SimulatedNetwork:
    """The network of a configuration, of one or several dimensions."""

    def __init__(self, configuration: Configuration) -> None:
        self._links, self._hops, self._algorithms = configuration.links, configuration.hops, configuration.algorithms
        self._memory_gb_s = configuration.memory_gb_s
        self._counts = [link.ranks for link in self._links]
        self._strides = np.cumprod([1, *self._counts])

    def message_ns(self, source: Int64, target: Int64, size: float) -> Int64:
        """Returns how long a message of so many bytes takes from one rank to another; many at once."""
        duration_ns = np.zeros(np.broadcast(source, target).shape)
        for link, hops, stride in reversed([*zip(self._links, self._hops, self._strides, strict=False)]):
            differs = source // stride % link.ranks != target // stride % link.ranks
            ns = hops * link.latency_ns + size / (link.bandwidth_gib_s * GIB / 1e9)
            duration_ns = np.where(differs, ns, duration_ns)
        return duration_ns.astype(np.int64)

    def collective_ends(self, kind: int, members: Int64, size: int, arrival: Int64) -> Int64:
        """Returns when each of the members, in the order of their ring, is done; `arrival` is when each came (ns)."""
        is_whole = len(members) == self._strides[-1]
        if len(self._links) > 1 and not is_whole:
            return self._line_ends(RING, kind, members, size, arrival)
        # a group of all ranks goes by the network's order
        order = np.argsort(members) if is_whole else np.arange(len(members))
        ends, done = arrival[order], np.empty_like(arrival)
        for stage in stages(kind, self._counts if is_whole else [len(members)], size):
            lines = self._lines(stage.dimension) if is_whole else np.arange(len(members))
            algorithm = self._algorithms[kind][stage.dimension]
            ends[lines] = self._line_ends(algorithm, stage.kind, members[order][lines], stage.size, ends[lines])
        done[order] = ends
        return done

    def _lines(self, dimension: int) -> Int64:
        """Returns the ranks of each line in a dimension."""
        grid = np.arange(self._strides[-1]).reshape(self._counts[::-1])
        return np.moveaxis(grid, -1 - dimension, -1).reshape(-1, self._counts[dimension])

    def _line_ends(self, algorithm: str, kind: int, members: Int64, size: int, arrival: Int64) -> Int64:
        """Returns when the members of each line are done; the last axis are the members."""
        cost = step_cost(kind, members.shape[-1], size, algorithm == DIRECT)
        message = cost.bytes / cost.steps
        if algorithm == DIRECT:
            return direct_ends(arrival, self.message_ns(members[..., :, None], members[..., None, :], message))
        hops = self.message_ns(members, np.roll(members, -1, axis=-1), message)
        added = (
            MEMORY_PASSES * int(message / self._memory_gb_s) * cost.steps * ADDED_SHARE.get(CollectiveType(kind), 0.0)
        )
        return ring_ends(arrival, hops, int(cost.steps)) + int(added)


class _Call(NamedTuple):
    """A node that communicates: the CollectiveType, group and bytes of a collective, the ends of a message."""

    rank: int
    type: int
    kind: int
    size: int
    group: str
    source: int
    target: int
    tag: int

    @property
    def message(self) -> tuple[int, ...]:
        """By what a send and its receive are matched."""
        return self.tag, self.source, self.target, self.size


class Transfers:
    """The communication of a job at work; called with the start of a node, it returns the ends that are known by it."""

    def __init__(self, graphs: Sequence[ExecutionGraph], configuration: Configuration) -> None:
        self._network = SimulatedNetwork(configuration)
        self._lengths = _lengths(graphs, configuration.peaks).tolist()
        self._calls = _calls(graphs)
        every_rank = tuple(range(len(graphs)))
        self._members = defaultdict(lambda: every_rank, configuration.groups)
        self._issued = defaultdict[tuple[int, str], int](int)
        self._arrived = defaultdict[tuple[str, int], dict[int, Event]](dict)
        self._sent = defaultdict[tuple[int, ...], deque[int]](deque)
        self._awaited = defaultdict[tuple[int, ...], deque[int]](deque)

    def __call__(self, start: Event) -> Iterable[Event]:
        """Returns the ends that are known as a node starts."""
        now, row = start
        call = self._calls.get(row)
        if call is None:
            return ((now + self._lengths[row], row),)
        if call.type == NodeType.COMM_COLL:
            return self._arrive(start, call)
        return self._send(start, call) if call.type == NodeType.COMM_SEND else self._receive(start, call)

    def _arrive(self, start: Event, call: _Call) -> Iterator[Event]:
        """Yields the ends of all members when the last one comes; the n-th collective of each in a group is one."""
        number, members = self._issued[call.rank, call.group], self._members[call.group]
        self._issued[call.rank, call.group] += 1
        arrived = self._arrived[call.group, number]
        arrived[call.rank] = start
        if len(arrived) == len(members):
            arrival = np.array([arrived[rank][0] for rank in members], np.int64)
            ends = self._network.collective_ends(call.kind, np.array(members), call.size, arrival)
            del self._arrived[call.group, number]
            for rank, end in zip(members, ends.tolist(), strict=True):
                yield end, arrived[rank][1]

    def _send(self, start: Event, call: _Call) -> Iterator[Event]:
        """Yields the end of a send, and that of the receive that waits for it."""
        now, row = start
        end = now + int(self._network.message_ns(np.array(call.source), np.array(call.target), call.size))
        yield end, row
        if awaited := self._awaited[call.message]:
            yield end, awaited.popleft()
        else:
            self._sent[call.message].append(end)

    def _receive(self, start: Event, call: _Call) -> Iterator[Event]:
        now, row = start
        if sent := self._sent[call.message]:
            yield max(now, sent.popleft()), row
        else:
            self._awaited[call.message].append(row)


def _calls(graphs: Sequence[ExecutionGraph]) -> dict[int, _Call]:
    """Returns the nodes that communicate, by row over all graphs; a broadcast takes its measured time."""
    calls, first_row = dict[int, _Call](), 0
    for rank, graph in enumerate(graphs):
        kind = graph.collective_types()
        communicates = np.isin(graph.type, (NodeType.COMM_SEND, NodeType.COMM_RECV))
        communicates |= (graph.type == NodeType.COMM_COLL) & (kind != CollectiveType.BROADCAST)
        rows = np.flatnonzero(communicates)
        columns = [graph.type.astype(np.int64), kind, graph.integers("comm_size", 0)]
        columns += [graph.integers(name, -1) for name in ("comm_src", "comm_dst", "comm_tag")]
        type_, kind_, size, *ends = (column[rows].tolist() for column in columns)
        facts = zip((rows + first_row).tolist(), type_, kind_, size, graph.texts("pg_name")[rows], *ends, strict=True)
        calls |= {row: _Call(rank, *of_row) for row, *of_row in facts}
        first_row += len(graph)
    return calls


def _lengths(graphs: Sequence[ExecutionGraph], peaks: Roofline | None) -> Int64:
    """Returns how long (ns) each node takes that does not communicate: computation of the device by its work, if peaks
    are given.
    """
    lengths = recorded_lengths(graphs)
    if peaks is None:
        return lengths
    computing = np.concatenate([computes(graph) for graph in graphs])
    operations, moved = (
        np.concatenate([graph.integers(name, 0) for graph in graphs]) for name in ("num_ops", "tensor_size")
    )
    by_work = np.maximum(operations / (peaks.tflops * 1e3), moved / peaks.memory_gb_s).astype(np.int64)
    return np.where(computing, by_work, lengths)


class SimulatedRank(msgspec.Struct, frozen=True):
    """When a rank finishes in the simulator and in the measured run, in µs, and the difference; both count from
    `start_offset_us` before the rank began to record. A rank that was not measured has 0 there.
    """

    finish_us: float
    measured_us: float
    error_pct: float
    start_offset_us: float = 0.0


class Simulated(msgspec.Struct, frozen=True):
    """Every rank by its label, the largest error, and the mode; the `network` is empty in replay mode.

    >>> import execgraph as eg
    >>> simulated = eg.build("tests/data/training", target="astra-sim").simulate()
    >>> simulated.ranks.keys(), simulated.mode, abs(simulated.worst_error_pct) < 1
    (dict_keys(['0', '1']), 'simulated', True)
    """

    simulator: str
    ranks: dict[str, SimulatedRank]
    worst_error_pct: float
    mode: str = REPLAY
    network: tuple[Link, ...] = ()

    def __repr__(self) -> str:
        last = max(self.ranks, key=lambda label: self.ranks[label].finish_us)
        lines = {"last": f"rank {last}, after {time_text(self.ranks[last].finish_us)}"}
        lines |= {"network": links_text(self.network)} if self.network else {}
        if any(rank.measured_us for rank in self.ranks.values()):
            lines["error"] = f"{self.worst_error_pct:+.2f} % at worst, against the measured run"
        return summary_text(Summary(f"{self.simulator}, {self.mode}: {len(self.ranks)} ranks", lines))


def simulate_ranks(graphs: Sequence[ExecutionGraph], configuration: Configuration | None = None) -> Simulated:
    """Returns when the simulator finishes each rank. O((n + e) log n).

    Args:
        graphs: Those of all ranks of a simulated job, in the order of their files.
        configuration: What the simulator is configured with; replay mode if there is none, or that says so.

    Raises:
        DataError: A graph is for another target or has a cycle, or communication waits for ever.
    """
    work = gather(graphs)
    for label, graph in zip(work.rank_labels(), graphs, strict=True):
        if graph.metadata.get("target") != ASTRA_SIM:
            raise DataError(f"the graph of rank {label} is not for {ASTRA_SIM}; ", Remedy.ASTRA_SIM)
    simulated = configuration if configuration and not configuration.is_replay else None
    ends = simulated_ends(graphs, Transfers(graphs, simulated) if simulated else None)
    ranks = {}
    for label, graph, ended, recorded in zip(
        work.rank_labels(), graphs, ends, np.split(work.measured_end_ns, work.first_row[1:]), strict=True
    ):
        finish = int(ended.max(initial=0)) / 1000
        offset = int(graph.integers("start_offset_ns", 0).sum()) / 1000
        recorded_ns = 0 if work.is_of_scaled_job else int(recorded.max(initial=0))
        measured = offset + recorded_ns / 1000 if recorded_ns else 0.0
        error = 100 * (finish - measured) / measured if measured else 0.0
        ranks[label] = SimulatedRank(finish, measured, error, offset)
    worst = max((rank.error_pct for rank in ranks.values()), key=abs, default=0.0)
    if simulated is None:
        return Simulated(ASTRA_SIM, ranks, worst)
    return Simulated(ASTRA_SIM, ranks, worst, ROOFLINE if simulated.peaks else SIMULATED, simulated.links)


def describe_simulated(result: Simulated) -> str:
    """Returns a line per rank, for people."""
    lines = [
        f"rank {label:<10}{rank.finish_us:>14,.1f} µs simulated{_measured(rank)}"
        for label, rank in result.ranks.items()
    ]
    is_measured = any(rank.measured_us for rank in result.ranks.values())
    last = max(result.ranks, key=lambda label: result.ranks[label].finish_us)
    error = (
        f"worst {result.worst_error_pct:+.2f} %" if is_measured else f"rank {last} is the last; no rank was measured"
    )
    worst = f"{error}, in {result.simulator}'s {result.mode} mode"
    return "\n".join([*lines, worst + (f"; network {links_text(result.network)}" if result.network else "")])


def _measured(rank: SimulatedRank) -> str:
    return f"{rank.measured_us:>14,.1f} µs measured  {rank.error_pct:+.2f} %" if rank.measured_us else ""
