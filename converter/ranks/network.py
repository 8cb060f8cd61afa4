"""What a collective or message costs in latencies and bytes on a link, and the network that measured times fit. Rings
of n ranks take 2(n - 1) steps for an all-reduce, n - 1 for collectives that gather, scatter or have a root; the bytes
are nccl-tests' share of the size, as measured on ASTRA-sim. Where groups within nodes and across them show two networks
that fit much better than one, there are two switches.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...schema.columns import Int64, group_ids, split_groups
from ...schema.graph import CollectiveType

MESSAGE = -1
"""The kind of a send and its receive, next to the CollectiveTypes."""
AWAITED_MESSAGE = -2
"""The kind of a send that waits until its receiver says that it is ready."""
ROUNDING = 1e-9
"""A difference of errors that means nothing."""
DIGITS = 9
"""So many digits of a factor are the same on every processor; the last ones are not."""
Factors = npt.NDArray[np.float64]
IN_RINGS = (CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER)
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = map(int, IN_RINGS)
LEAST_SIZES = 3
"""Sizes that a fit needs to be judged: if one is left out, the other two still distinguish latency and bandwidth."""
PARTS = 10
"""Into how many parts the sizes are divided, of which one at a time is left out; fewer sizes are left out singly."""
WITHIN, ACROSS, ALL = range(3)
GIB = 2**30
"""Bytes of a GB in the simulator."""
MOST_BANDWIDTH = round(1e15 / GIB, 3)
"""What stands for any bandwidth, where measured times do not grow with bytes."""
LEAST_BANDWIDTH = 0.001
"""The simulator divides by the bandwidth, in GB/s."""
BETTER = 0.5
"""Two dimensions are worth it if their error is at most this share of the error of one."""
GOOD_PCT = 5.0
"""Up to this error nobody needs a second dimension."""


class Transfer(NamedTuple):
    """A collective or message, the bytes that each member puts in, and ns from the last arrival to the end."""

    kind: int
    members: int
    size: int
    ns: int
    ranks: tuple[int, ...] = ()


class Cost(NamedTuple):
    """A number of steps, and of bytes on a link, one after the other."""

    steps: float
    bytes: float


CostOf = Callable[[int, int], Cost]
"""The cost for so many members that each put in so many bytes."""


RING: dict[int, CostOf] = {
    int(CollectiveType.ALL_REDUCE): lambda members, size: Cost(2 * (members - 1), 2 * (members - 1) * size / members),
    int(CollectiveType.BARRIER): lambda members, size: Cost(2 * (members - 1), 0),
    **dict.fromkeys(
        map(int, (CollectiveType.ALL_GATHER, CollectiveType.GATHER)),
        lambda members, size: Cost(members - 1, (members - 1) * size),
    ),
    **dict.fromkeys(
        map(int, (CollectiveType.REDUCE_SCATTER, CollectiveType.REDUCE_SCATTER_BLOCK, CollectiveType.SCATTER)),
        lambda members, size: Cost(members - 1, (members - 1) * size / members),
    ),
    **dict.fromkeys(
        map(int, (CollectiveType.BROADCAST, CollectiveType.REDUCE)), lambda members, size: Cost(members - 1, size)
    ),
}


def fitted_factors(relative: Factors) -> tuple[float, ...]:
    """Returns the factors, one for each column and none below 0, for which the rows' sums are closest to 1."""
    ones, columns = np.ones(len(relative)), range(relative.shape[1])
    best, least = np.zeros(len(columns)), float("inf")
    for count in reversed(columns):
        for used in combinations(reversed(columns), count + 1):
            factors = np.zeros(len(columns))
            factors[list(used)] = np.linalg.lstsq(relative[:, used], ones, rcond=None)[0]
            error = float(((relative @ factors - 1) ** 2).sum())
            # of factors that are as good the most are kept, so that rounding decides nothing
            if (factors >= 0).all() and error < least - ROUNDING:
                best, least = factors, error
    return tuple(float(f"{factor:.{DIGITS}g}") for factor in best)


STEPS: dict[int, CostOf] = {
    **{kind: RING[kind] for kind in (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER)},
    int(CollectiveType.ALL_TO_ALL): lambda members, size: Cost(1, size / members),
    MESSAGE: lambda members, size: Cost(1, size),
    AWAITED_MESSAGE: lambda members, size: Cost(2, size),
}


def step_cost(kind: int, members: int, size: int, direct: bool) -> Cost:
    """Returns the steps of a collective or message in the simulator; all-to-alls go `direct` or in a ring.

    >>> step_cost(CollectiveType.ALL_GATHER, 4, 1000, direct=True)
    Cost(steps=3, bytes=3000)
    """
    if direct or kind != CollectiveType.ALL_TO_ALL:
        return STEPS[kind](members, size)
    steps = members * (members - 1) / 2
    return Cost(steps, steps * size / members)


class Stage(NamedTuple):
    """A collective of type `kind` among the ranks of each line in a dimension, into which each puts `size` bytes."""

    dimension: int
    kind: int
    size: int


def stages(kind: int, ranks: Sequence[int], size: int) -> Iterator[Stage]:
    """Yields the stages, one after the other, of a collective in dimensions of so many ranks.

    >>> [*stages(CollectiveType.ALL_REDUCE, (2, 4), 800)]
    [Stage(dimension=0, kind=7, size=800), Stage(dimension=1, kind=0, size=400), Stage(dimension=0, kind=2, size=400)]
    """
    used = [dimension for dimension, count in enumerate(ranks) if count > 1]
    if kind == ALL_REDUCE:
        *scattered, last = used
        for dimension in scattered:
            yield Stage(dimension, REDUCE_SCATTER, size)
            size //= ranks[dimension]
        yield Stage(last, ALL_REDUCE, size)
        for dimension in reversed(scattered):
            yield Stage(dimension, ALL_GATHER, size)
            size *= ranks[dimension]
        return
    for dimension in reversed(used) if kind == ALL_GATHER else used:
        yield Stage(dimension, kind, size)
        if kind == ALL_GATHER:
            size *= ranks[dimension]
        elif kind == REDUCE_SCATTER:
            size //= ranks[dimension]


def carried_excess(surplus: Iterable[tuple[Hashable, float]]) -> list[int]:
    """Returns by how many ns each of several transfers, one after the other, took longer than a network gives it. What
    it gives one too much is taken off the next ones of the same members.

    >>> carried_excess([("all", -300), ("all", 200), ("some", 5), ("all", 150)])
    [0, 0, 5, 50]
    """
    balance_ns, excess = defaultdict[Hashable, float](float), list[int]()
    for members, ns in surplus:
        balance_ns[members] += ns
        excess.append(round(balance_ns.pop(members)) if balance_ns[members] > 0 else 0)
    return excess


def held_out_pct(relative: Factors, size: Int64) -> float | None:
    """Returns the median error in % of each part of the sizes in the fit to the others; None for too few sizes."""
    sizes = int(size.max()) + 1
    parts = [size % PARTS == part for part in range(min(PARTS, sizes))] if sizes >= LEAST_SIZES else []
    errors = []
    for part in parts:
        is_known = (relative[~part] > 0).any(axis=0)
        held_out = relative[part][((relative[part] > 0) <= is_known).all(axis=1)]
        if len(held_out):
            errors.append(_relative_errors(relative[~part], held_out))
    return _median_pct(errors)


def _relative_errors(fitted: Factors, held_out: Factors) -> Factors:
    """Returns how far off, relatively, the network that fits some transfers is for others."""
    return np.asarray(np.abs(held_out @ fitted_factors(fitted) - 1))


def _median_pct(errors: Sequence[Factors]) -> float | None:
    return round(100 * float(np.median(np.concatenate(errors))), 1) if errors else None


def place(members: Sequence[int], node: int, ranks: int) -> int | None:
    """Returns whether members lie WITHIN a node of so many ranks, ACROSS nodes or are ALL ranks, None if neither.

    >>> place([4, 6], 4, 8) == WITHIN, place([1, 5], 4, 8) == ACROSS, place([0, 1, 4], 4, 8)
    (True, True, None)
    """
    if len(members) == ranks:
        return ALL
    if len({member // node for member in members}) == 1:
        return WITHIN
    return ACROSS if len({member % node for member in members}) == 1 else None


def node_sizes(groups: Iterable[Sequence[int]], ranks: int) -> list[int]:
    """Returns how many ranks a node may have so that groups are within nodes and across them, and nowhere else.

    >>> node_sizes([(0, 1, 2, 3), (4, 5, 6, 7), (0, 4)], 8)
    [4]
    """
    groups = list(groups)
    return [
        node
        for node in range(2, ranks)
        if ranks % node == 0
        and {WITHIN} < (places := {place(group, node, ranks) for group in groups}) - {None} == places
    ]


def costs(transfers: Sequence[Transfer], node: int, ranks: int, direct: bool) -> Factors:
    """Returns steps and bytes of each transfer in nodes of so many ranks, then across them; with `node` 0 of all."""
    rows = np.zeros((len(transfers), 2 if node else 1, 2))
    for row, (kind, members, size, _, group) in zip(rows, transfers, strict=True):
        where = place(group, node, ranks) if node else WITHIN
        if where == ALL:
            counts = node, ranks // node
            for dimension, stage, stage_size in stages(kind, counts, size):
                row[dimension] += step_cost(stage, counts[dimension], stage_size, direct)
        elif where is not None:
            # in two dimensions all collectives of some ranks are rings
            goes_directly = kind != CollectiveType.ALL_TO_ALL if node else direct
            row[where] += step_cost(kind, members, size, goes_directly)
    return rows.reshape(len(transfers), -1)


class Link(msgspec.Struct, frozen=True):
    """The links of a dimension: so many ranks, `bandwidth_gib_s` (2**30 bytes) and `latency_ns`."""

    ranks: int
    bandwidth_gib_s: float
    latency_ns: float

    @property
    def has_any_bandwidth(self) -> bool:
        """Whether no bandwidth follows from the measured times, as they do not grow with bytes."""
        return self.bandwidth_gib_s == MOST_BANDWIDTH


def links_text(links: Sequence[Link]) -> str:
    """Returns bandwidth and latency of a link of each dimension, of two those within a node and between nodes."""
    bandwidths = ["any bandwidth" if link.has_any_bandwidth else f"{link.bandwidth_gib_s:g} GiB/s" for link in links]
    of_each = [f"{text}, {link.latency_ns:g} ns a link" for text, link in zip(bandwidths, links, strict=True)]
    if len(links) != 2:
        return "; ".join(of_each)
    return f"{of_each[0]} within nodes of {links[0].ranks} ranks, {of_each[1]} across {links[1].ranks} nodes"


class TwoDimensions(msgspec.Struct, frozen=True):
    """The links within nodes and across them, with `sizes`, `fit_error_pct` and `direct` as of a Network."""

    within: Link
    across: Link
    sizes: int
    fit_error_pct: float | None
    direct: bool


class Network(msgspec.Struct, frozen=True):
    """A switch: `bandwidth_gib_s` (2**30 bytes) and `latency_ns` of a link, fitted to so many `transfers`.
    `fit_error_pct` is the median error of sizes that the fit was made without, None with too few. `repeat_error_pct` is
    how far transfers of one size are from their median, which no network describes better. With `direct`, all-to-alls
    fit better as direct messages than as a ring. `one_because` says why there is one dimension where there may be two.
    """

    bandwidth_gib_s: float = 100.0
    latency_ns: float = 500.0
    transfers: int = 0
    sizes: int = 0
    fit_error_pct: float | None = None
    repeat_error_pct: float | None = None
    direct: bool = True
    two_dimensions: TwoDimensions | None = None
    one_because: str = ""

    def used(
        self, ranks: int, bandwidth_gib_s: float | None = None, latency_ns: float | None = None
    ) -> "tuple[tuple[Link, ...], Network | TwoDimensions]":
        """Returns the links of each dimension for so many ranks, fitted or given, and how well they fit."""
        two, bandwidth, latency = self.two_dimensions, bandwidth_gib_s, latency_ns
        if two and bandwidth is None and latency is None:
            return (two.within, two.across), two
        bandwidth = self.bandwidth_gib_s if bandwidth is None else bandwidth
        return (Link(ranks, bandwidth, self.latency_ns if latency is None else latency),), self


def fitted_network(measured: Sequence[Transfer], ranks: int = 0) -> Network:
    """Returns the network with the least squares of relative errors, of one dimension without the number of `ranks`."""
    usable = [
        transfer
        for transfer in measured
        if transfer.ns > 0 and transfer.size > 0 and transfer.members > 1 and transfer.kind in STEPS
    ]
    if not usable:
        return Network()
    [link], direct, size, error_pct = _fit(usable)
    ns, order = np.array([transfer.ns for transfer in usable], np.float64), np.argsort(size, kind="stable")
    repeated = [ns[rows] for rows in split_groups(order, size) if len(rows) > 1]
    repeat_error_pct = _median_pct([np.abs(times / np.median(times) - 1) for times in repeated])
    single = Network(*link, len(usable), int(size.max()) + 1, error_pct, repeat_error_pct, direct)
    groups = {transfer.ranks for transfer in usable}
    are_neighbours = {group != () and max(group) - min(group) == len(group) - 1 < ranks - 1 for group in groups}
    # where all or none are neighbours there is one network
    if () in groups or len(are_neighbours) < 2:
        return single
    fits = []
    for node in node_sizes(groups, ranks):
        (within, across), direct, size, error_pct = _fit(usable, node, ranks)
        links = Link(node, *within), Link(ranks // node, *across)
        fits.append(TwoDimensions(*links, int(size.max()) + 1, error_pct, direct))
    if not fits:
        why = "no number of ranks per node puts every group within a node, across nodes or over all ranks"
        return msgspec.structs.replace(single, one_because=why)
    two = min(fits, key=lambda fit: float("inf") if fit.fit_error_pct is None else fit.fit_error_pct)
    if two.fit_error_pct is None or single.fit_error_pct is None:
        why = "there are too few sizes to distinguish links within nodes from links across them"
        return msgspec.structs.replace(single, one_because=why)
    is_better = single.fit_error_pct > GOOD_PCT and two.fit_error_pct <= BETTER * single.fit_error_pct
    return msgspec.structs.replace(single, two_dimensions=two) if is_better else single


def _fit(
    usable: Sequence[Transfer], node: int = 0, ranks: int = 0
) -> tuple[list[tuple[float, float]], bool, Int64, float | None]:
    """Returns bandwidths and latencies, whether all-to-alls go directly, each size's number, and the error in %."""
    ns = np.array([[transfer.ns] for transfer in usable], np.float64)
    has_all_to_all = any(transfer.kind == CollectiveType.ALL_TO_ALL for transfer in usable)
    cost = {direct: costs(usable, node, ranks, direct) for direct in ((True, False) if has_all_to_all else (True,))}
    relative = {direct: of_all / ns for direct, of_all in cost.items()}
    direct = min(relative, key=lambda direct: float(np.median(_relative_errors(relative[direct], relative[direct]))))
    # the same bytes within and across nodes are two sizes
    whole_bytes = np.round(cost[direct]).astype(np.int64)
    size = group_ids(*np.array([transfer[:3] for transfer in usable], np.int64).T, *whole_bytes.T)
    factors = fitted_factors(relative[direct])
    links = [
        # a step goes over two links
        (max(round(1e9 / GIB / max(byte_ns, 1e-6), 3), LEAST_BANDWIDTH), round(step_ns / 2, 1))
        for step_ns, byte_ns in zip(factors[::2], factors[1::2], strict=True)
    ]
    return links, direct, size, held_out_pct(relative[direct], size)


def for_more_ranks(network: Network, groups: Iterable[Sequence[int]], ranks: int) -> Network:
    """Returns the network for the groups of another job of so many ranks, whose nodes are as large."""
    two = network.two_dimensions
    if two is None:
        return network
    node = two.within.ranks
    if ranks % node or ranks == node or any(place(group, node, ranks) is None for group in groups):
        why = f"nodes of {node} ranks do not put every group within a node, across nodes or over all ranks"
        return msgspec.structs.replace(network, two_dimensions=None, one_because=why)
    across = msgspec.structs.replace(two.across, ranks=ranks // node)
    return msgspec.structs.replace(network, two_dimensions=msgspec.structs.replace(two, across=across))


def network_time_ns(network: Network, transfer: Transfer) -> float | None:
    """Returns how long the fitted network takes for a transfer of known ranks; None for a kind without an algorithm."""
    if transfer.kind not in STEPS:
        return None
    links, fit = network.used(transfer.members)
    node = links[0].ranks if len(links) == 2 else 0
    cost = costs([transfer], node, node * links[-1].ranks, fit.direct)
    of_links = zip(links, cost.reshape(-1, 2), strict=True)
    parts = (2 * step * link.latency_ns + moved / link.bandwidth_gib_s / GIB * 1e9 for link, (step, moved) in of_links)
    return float(sum(parts))
