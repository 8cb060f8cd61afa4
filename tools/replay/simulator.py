"""Plays a job as ASTRA-sim does, before anybody runs the simulator, and compares when each rank finishes with the run.

The network is analytical and without congestion, and of two ranks that differ in several dimensions a message takes the
first alone. A send does not wait for its receive; a receive after its message ends at once. A rank that began to record
later begins with its start offset, so that all times are on the job's clock.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...converter.ranks import GIB, Link, links_text, stages, step_cost
from ...converter.targets import Roofline, computes
from ...schema.arguments import ASTRA_SIM
from ...schema.columns import Int64, Summary, signed_pct, summary_text, time_text
from ...schema.comm_groups import ASTRA_SIM_FILES, GRAPHS, GROUPS, RankList, read_groups
from ...schema.errors import DataError, Remedy
from ...schema.graph import CollectiveType, ExecutionGraph, NodeType
from ...schema.linked import whole_ns
from .player import Event, recorded_lengths, simulated_ends
from .workload import gather

NETWORK_FILE = "network.yml"
SYSTEM_FILE = "system.json"
LISTED = re.compile(r"^(\w+):[ \t]*\[?([^\]#\n]*)", re.MULTILINE)
"""A line of network.yml such as `latency: [ 500, 7000 ]  # ns`."""
HOPS = {"Switch": 2, "FullyConnected": 1}
"""Links from one rank to another."""
RING, DIRECT = "ring", "direct"
REPLAY, SIMULATED, ROOFLINE = "replay", "simulated", "roofline"
Times = npt.NDArray[np.int64]
Call = tuple[int, int, int, str, int, int, int, int]
"""The rank, NodeType, CollectiveType and group of a node that communicates, and what matches send and receive."""
ADDED_SHARE = {CollectiveType.REDUCE_SCATTER: 1.0, CollectiveType.ALL_REDUCE: 0.5}
"""The share of the steps of a ring in which what arrives is added up."""
MEMORY_PASSES = 3
"""Of what is added up: two are read and one is written."""
IMPLEMENTATIONS = {
    CollectiveType.ALL_REDUCE: "all-reduce-implementation",
    CollectiveType.ALL_GATHER: "all-gather-implementation",
    CollectiveType.REDUCE_SCATTER: "reduce-scatter-implementation",
    CollectiveType.ALL_TO_ALL: "all-to-all-implementation",
}
"""What system.json calls the algorithms of each collective."""


class Configuration(NamedTuple):
    """What a simulation reads besides graphs: `hops` and `algorithms` by dimension; `memory_gb_s` is 10**9 bytes/s."""

    links: tuple[Link, ...]
    hops: tuple[int, ...]
    algorithms: dict[int, list[str]]
    memory_gb_s: float
    groups: dict[str, RankList]
    is_replay: bool
    peaks: Roofline | None

    @property
    def counts(self) -> list[int]:
        """How many ranks each dimension joins."""
        return [link.ranks for link in self.links]

    @property
    def strides(self) -> list[int]:
        """How far the ranks of each dimension are apart, and at the end how many ranks the network joins."""
        return [*accumulate(self.counts, mul, initial=1)]

    def message_ns(self, source: Int64, target: Int64, size: float) -> Int64:
        """Returns how long a message of so many bytes takes from one rank to another; many at once."""
        duration_ns = np.zeros(np.broadcast(source, target).shape)
        for link, hops, stride in reversed([*zip(self.links, self.hops, self.strides, strict=False)]):
            differs = source // stride % link.ranks != target // stride % link.ranks
            ns = hops * link.latency_ns + size / (link.bandwidth_gib_s * GIB / 1e9)
            duration_ns = np.where(differs, ns, duration_ns)
        return whole_ns(np.trunc(duration_ns), "a message")

    def collective_ends(self, kind: int, members: Int64, size: int, arrival: Int64) -> Int64:
        """Returns when each of the members, in the order of their ring, is done; `arrival` is when each came (ns)."""
        is_whole = len(members) == self.strides[-1]
        if len(self.links) > 1 and not is_whole:
            return self._line_ends(RING, kind, members, size, arrival)
        # a group of all ranks goes by the network's order
        order = np.argsort(members) if is_whole else np.arange(len(members))
        ends, done = arrival[order], np.empty_like(arrival)
        for stage in stages(kind, self.counts if is_whole else [len(members)], size):
            lines = self._lines(stage.dimension) if is_whole else np.arange(len(members))
            algorithm = self.algorithms[kind][stage.dimension]
            ends[lines] = self._line_ends(algorithm, stage.kind, members[order][lines], stage.size, ends[lines])
        done[order] = ends
        return done

    def _lines(self, dimension: int) -> Int64:
        """Returns the ranks of each line in a dimension."""
        grid = np.arange(self.strides[-1]).reshape(self.counts[::-1])
        return np.moveaxis(grid, -1 - dimension, -1).reshape(-1, self.counts[dimension])

    def _line_ends(self, algorithm: str, kind: int, members: Int64, size: int, arrival: Int64) -> Int64:
        """Returns when the members of each line are done; the last axis are the members."""
        cost = step_cost(kind, members.shape[-1], size, algorithm == DIRECT)
        message = cost.bytes / cost.steps
        if algorithm == DIRECT:
            return direct_ends(arrival, self.message_ns(members[..., :, None], members[..., None, :], message))
        hops = self.message_ns(members, np.roll(members, -1, axis=-1), message)
        share = ADDED_SHARE.get(CollectiveType(kind), 0.0)
        added = MEMORY_PASSES * int(message / self.memory_gb_s) * cost.steps * share
        return ring_ends(arrival, hops, int(cost.steps)) + int(added)


def configuration_of(paths: Sequence[str]) -> tuple[Configuration | None, str]:
    """Returns the configuration of the job that these graphs are, or None and why it is not known."""
    folders = {Path(path).parent for path in paths}
    configuration = read_configuration(folders.pop()) if len(folders) == 1 else None
    if configuration is None:
        return None, f"there is no {ASTRA_SIM_FILES}/{NETWORK_FILE} beside the graphs"
    is_alone = Path(paths[0]).with_name(ASTRA_SIM_FILES).joinpath(f"{GRAPHS}.1.et").exists()
    if len(paths) != (1 if is_alone else configuration.strides[-1]):
        return None, f"{len(paths)} graphs are not the {configuration.strides[-1]} ranks of {NETWORK_FILE}"
    return configuration, ""


def read_configuration(folder: Path) -> Configuration | None:
    """Returns what `trace-build --target astra-sim` wrote beside the graphs, None if nothing; or raises DataError."""
    network, system = (folder / ASTRA_SIM_FILES / name for name in (NETWORK_FILE, SYSTEM_FILE))
    if not (network.is_file() and system.is_file()):
        return None
    try:
        settings = msgspec.json.decode(system.read_bytes(), type=dict[str, Any])
        algorithms = {int(kind): [*map(str, settings[name])] for kind, name in IMPLEMENTATIONS.items()}
        memory_gb_s, peak = float(settings["local-mem-bw"]), float(settings.get("peak-perf", 0.0))
    except (msgspec.DecodeError, LookupError, TypeError, ValueError) as error:
        raise DataError(f"{system}: is no configuration of the simulator ({error}); build the graphs again") from error
    links, hops = _dimensions(network)
    splits = settings.get("preferred-dataset-splits", 1)
    for kind, names in algorithms.items():
        supported = {RING, DIRECT} if kind == CollectiveType.ALL_TO_ALL else {RING}
        if not set(names) <= supported or len(names) != len(links) or splits != 1:
            known = f"{' or '.join(sorted(supported))} in each of {len(links)} dimensions and one split"
            problem = f"how long collectives take is known for {known}, not for {names} and {splits}"
            raise DataError(f"{system}: {problem}; run the simulator")
    peaks = Roofline(peak, memory_gb_s) if settings.get("roofline-enabled") else None
    # nodes have the number of their group as its name
    listed = read_groups(str(folder / GROUPS)) if (folder / GROUPS).is_file() else {}
    groups, is_replay = {str(number): ranks for ranks, number in listed.items()}, bool(settings.get("replay-only"))
    return Configuration(links, hops, algorithms, memory_gb_s, groups, is_replay, peaks)


def _dimensions(path: Path) -> tuple[tuple[Link, ...], tuple[int, ...]]:
    """Returns the links of each dimension of a network.yml, and how many of them are between two ranks."""
    listed = {name: [value.strip() for value in values.split(",")] for name, values in LISTED.findall(path.read_text())}
    try:
        columns = [listed[name] for name in ("npus_count", "bandwidth", "latency")]
        rows = zip(*columns, strict=True)
        links = tuple(Link(int(ranks), float(gib_s), float(latency)) for ranks, gib_s, latency in rows)
        hops = tuple(HOPS[topology] for topology, _ in zip(listed["topology"], links, strict=True))
    except (KeyError, ValueError) as error:
        problem = f"is no network of {' and '.join(HOPS)} dimensions ({error})"
        raise DataError(f"{path}: {problem}; build the graphs again, or run the simulator") from error
    return links, hops


def ring_ends(arrival: Times, hop_ns: Times, steps: int) -> Times:
    """Returns when (ns) each member, the last axis, has its last message in a ring. O(n) for any number of steps.

    Every member sends on when it comes and whenever it has received, so it ends with the latest of the messages that
    went round to it. `steps` is at least the members less one; `hop_ns` is from each member to the next.
    """
    count = arrival.shape[-1]
    along = np.concatenate((np.zeros_like(hop_ns[..., :1]), np.cumsum(_twice(hop_ns), axis=-1)), axis=-1)
    lead = _twice(arrival) - along[..., :-1]
    latest = np.maximum.accumulate(lead[..., ::-1], axis=-1)[..., ::-1]
    rounds, first = np.divmod(np.arange(count) - steps, count)
    return np.asarray(along[..., :count] - rounds * along[..., count : count + 1] + latest[..., first])


def direct_ends(arrival: Times, message_ns: Times) -> Times:
    """Returns when each member has its message from every other one; one from i to j takes `message_ns[..., i, j]`."""
    received = arrival[..., :, None] + message_ns
    count = arrival.shape[-1]
    received[..., np.arange(count), np.arange(count)] = arrival
    return np.asarray(received.max(axis=-2))


def _twice(values: Times) -> npt.NDArray[Any]:
    return np.concatenate((values, values), axis=-1)


class Transfers:
    """The communication of a job at work; called with the start of a node, it returns the ends that are known by it."""

    def __init__(self, graphs: Sequence[ExecutionGraph], configuration: Configuration) -> None:
        self._network = configuration
        lengths, peaks = recorded_lengths(graphs), configuration.peaks
        if peaks is not None:
            # computation of the device takes the time of its work
            computing = np.concatenate([computes(graph) for graph in graphs])
            work = "num_ops", "tensor_size"
            operations, moved = (np.concatenate([graph.integers(name, 0) for graph in graphs]) for name in work)
            by_work = np.maximum(operations / (peaks.tflops * 1e3), moved / peaks.memory_gb_s).astype(np.int64)
            lengths = np.where(computing, by_work, lengths)
        self._lengths = lengths.tolist()
        self._calls = _calls(graphs)
        every_rank = tuple(range(len(graphs)))
        self._members = defaultdict(lambda: every_rank, configuration.groups)
        self._issued = defaultdict[tuple[int, str], int](int)
        self._arrived = defaultdict[tuple[str, int], dict[int, Event]](dict)
        self._sent = defaultdict[tuple[Any, ...], deque[int]](deque)
        self._awaited = defaultdict[tuple[Any, ...], deque[int]](deque)

    def __call__(self, start: Event) -> Iterator[Event]:
        """Yields the ends that are known as a node starts: of a send also that of the receive that waits for it."""
        now, row = start
        call = self._calls.get(row)
        if call is None:
            yield now + self._lengths[row], row
            return
        type_, message = call[1], call[4:]
        size, source, target, _ = message
        if type_ == NodeType.COMM_COLL:
            yield from self._arrive(start, call)
        elif type_ == NodeType.COMM_SEND:
            end = now + int(self._network.message_ns(np.array(source), np.array(target), size))
            yield end, row
            if awaited := self._awaited[message]:
                yield end, awaited.popleft()
            else:
                self._sent[message].append(end)
        elif sent := self._sent[message]:
            yield max(now, sent.popleft()), row
        else:
            self._awaited[message].append(row)

    def _arrive(self, start: Event, call: Call) -> Iterator[Event]:
        """Yields the ends of all members when the last one comes; the n-th collective of each in a group is one."""
        caller, _, kind, group, size, *_ = call
        number, members = self._issued[caller, group], self._members[group]
        self._issued[caller, group] += 1
        arrived = self._arrived[group, number]
        arrived[caller] = start
        if len(arrived) == len(members):
            arrival = np.array([arrived[rank][0] for rank in members], np.int64)
            ends = self._network.collective_ends(kind, np.array(members), size, arrival)
            del self._arrived[group, number]
            for rank, end in zip(members, ends.tolist(), strict=True):
                yield end, arrived[rank][1]


def _calls(graphs: Sequence[ExecutionGraph]) -> dict[int, Call]:
    """Returns the nodes that communicate, by row over all graphs; a broadcast takes its measured time."""
    calls, first_row = dict[int, Call](), 0
    for rank, graph in enumerate(graphs):
        kind = graph.collective_types()
        communicates = np.isin(graph.type, (NodeType.COMM_SEND, NodeType.COMM_RECV))
        communicates |= (graph.type == NodeType.COMM_COLL) & (kind != CollectiveType.BROADCAST)
        rows = np.flatnonzero(communicates)
        columns = [graph.integers("comm_size", 0)]
        columns += [graph.integers(name, -1) for name in ("comm_src", "comm_dst", "comm_tag")]
        of_message = (column[rows].tolist() for column in columns)
        types, kinds, groups = graph.type[rows].tolist(), kind[rows].tolist(), graph.texts("pg_name")[rows]
        ranks, numbers = [rank] * len(rows), (rows + first_row).tolist()
        calls |= zip(numbers, zip(ranks, types, kinds, groups, *of_message, strict=True), strict=True)
        first_row += len(graph)
    return calls


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

    `compared_with` says what the graphs hold: a measured run, or one that is modelled without a profiler.

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
    compared_with: str = "measured"

    def __repr__(self) -> str:
        last = max(self.ranks, key=lambda label: self.ranks[label].finish_us)
        lines = {"last": f"rank {last}, after {time_text(self.ranks[last].finish_us)}"}
        lines |= {"network": links_text(self.network)} if self.network else {}
        if any(rank.measured_us for rank in self.ranks.values()):
            lines["error"] = f"{signed_pct(self.worst_error_pct)} at worst, against the {self.compared_with} run"
        return summary_text(Summary(f"{self.simulator}, {self.mode}: {len(self.ranks)} ranks", lines))


def simulate_ranks(graphs: Sequence[ExecutionGraph], configuration: Configuration | None = None) -> Simulated:
    """Returns when the simulator finishes each rank of a job; in replay mode without a configuration. O((n + e) log n).

    Raises DataError if a graph is for another target or has a cycle, or communication waits for ever.
    """
    work = gather(graphs)
    for label, graph in zip(work.rank_labels(), graphs, strict=True):
        if graph.metadata.get("target") != ASTRA_SIM:
            raise DataError(f"the graph of rank {label} is not for {ASTRA_SIM}; ", Remedy.ASTRA_SIM)
    simulated = configuration if configuration and not configuration.is_replay else None
    ends = simulated_ends(graphs, Transfers(graphs, simulated) if simulated else None)
    ranks, recorded = {}, np.split(work.measured_end_ns, work.first_row[1:])
    for label, graph, ended, measured_end in zip(work.rank_labels(), graphs, ends, recorded, strict=True):
        finish, offset = int(ended.max(initial=0)) / 1000, int(graph.integers("start_offset_ns", 0).sum()) / 1000
        recorded_us = 0.0 if work.is_of_scaled_job else int(measured_end.max(initial=0)) / 1000
        measured = offset + recorded_us if recorded_us else 0.0
        error = 100 * (finish - measured) / measured if measured else 0.0
        ranks[label] = SimulatedRank(finish, measured, error, offset)
    worst = max((rank.error_pct for rank in ranks.values()), key=abs, default=0.0)
    if simulated is None:
        return Simulated(ASTRA_SIM, ranks, worst, compared_with=work.origin)
    mode = ROOFLINE if simulated.peaks else SIMULATED
    return Simulated(ASTRA_SIM, ranks, worst, mode, simulated.links, work.origin)


def describe_simulated(result: Simulated, is_other: bool = False) -> str:
    """Returns a line per rank, for people. If the network is not the fitted one, the difference is no error."""
    lines = []
    for label, rank in result.ranks.items():
        compared = f"{rank.measured_us:>14,.1f} µs {result.compared_with}  {signed_pct(rank.error_pct)}"
        lines.append(f"rank {label:<10}{rank.finish_us:>14,.1f} µs simulated{compared * bool(rank.measured_us)}")
    other = " (by another network than the fitted one, and by the error of the fit)" if is_other else ""
    error = f"largest difference from the {result.compared_with} run {signed_pct(result.worst_error_pct)}{other}"
    if not any(rank.measured_us for rank in result.ranks.values()):
        last = max(result.ranks, key=lambda label: result.ranks[label].finish_us)
        error = f"rank {last} is the last; no rank was measured"
    network = f"; network {links_text(result.network)}" if result.network else ""
    return "\n".join([*lines, f"{error}, in {result.simulator}'s {result.mode} mode{network}"])
