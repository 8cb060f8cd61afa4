"""ASTRA-sim's analytical network without congestion: how long messages take, and when collectives end.

A message takes the latency of its links and the time of its bytes, whatever else is on its way. Where two ranks differ
in several dimensions it goes through the first of these alone.
"""

import numpy as np

from ...converter.ranks import GIB, stages, step_cost
from ...schema.columns import Int64
from ...schema.graph import CollectiveType
from .rings import direct_ends, ring_ends
from .simulator_configuration import DIRECT, RING, Configuration

ADDED_SHARE = {CollectiveType.REDUCE_SCATTER: 1.0, CollectiveType.ALL_REDUCE: 0.5}
"""The share of the steps of a ring in which what arrives is added up."""
MEMORY_PASSES = 3
"""Of what is added up: two are read and one is written."""


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
