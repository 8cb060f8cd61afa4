"""The timeline of a run within the bytes that a page has: single bars as far as they fit, else sums over time."""

import base64
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from ...schema.columns import Bool, Categorical, Int64, Ns
from ..replay import Replay
from ..view import LOOKS, REASONS
from .bar_sums import (
    BarSums,
    Strip,
    kinds,
    order_of_detail,
    picture,
    select_detail,
    strips,
    sum_bars,
    window_around_path,
)
from .bars import NO_OPS, Bars, HostOps, bars_of, lane_times, on_one_clock
from .cells import Row, short_and_full

MAX_BYTES, SUMS, OPS = 1_900_000, 2, 4
"""The most bytes of all ranks; of a rank's bytes ops around bars take at most 1/OPS, sums at most 1/SUMS of the rest.
"""
LEAST, OF_CELL, FEWEST, OF_OP = 3, 7, 1000, 8
"""The least bytes of a bar, the usual bytes of a sum, the least number of single bars of a rank, the bytes of an op."""
FINEST, LEVEL = 1 << 16, 6
"""The most stretches of a summary; how much to deflate."""


class Timeline(NamedTuple):
    """The timeline of the drawn `ranks`, with `single_bars` of their `bars` bars shown singly. Times are µs from the
    first start.

    `coarsest` is the longest stretch over which bars are summed, 0 if all are shown. `json` is what the page unpacks,
    `picture` an SVG of the whole run, and `lane_times` how each lane's time was spent.
    """

    ranks: list[int]
    bars: int
    single_bars: int
    coarsest: float
    json: bytes
    picture: str
    lane_times: list[Row]


class PackedRank(NamedTuple):
    """A rank on the page: its packed columns, the number of single bars, and the length of the stretches over which the
    others are summed, 0 for none.
    """

    json: bytes
    bars: int
    width_ns: int


def timeline(
    replays: Mapping[int, Replay],
    bar_count: int,
    max_bytes: int = MAX_BYTES,
    ops: Mapping[int, HostOps] = MappingProxyType({}),
) -> Timeline | None:
    """Returns the timeline of the replayed ranks on one clock, in the ops of the ranks; None if no time was recorded.

    The page first shows about `bar_count` bars of the largest rank. Small ranks are complete; large ones share the
    remaining bytes equally. Ranks are packed one at a time; besides sorting, this is linear in bars.
    """
    timed = {rank: replay for rank, replay in replays.items() if replay.work.is_timed.any()}
    if not timed:
        return None
    clock = dict(zip(timed, on_one_clock([*timed.values()]), strict=True))
    length = max(int(item.work.measured_end_ns.max()) + clock[rank].begin_ns for rank, item in timed.items())
    packed, drawn, times, count = dict[int, PackedRank](), dict[int, list[Strip]](), dict[int, list[Row]](), 0
    *smaller, last = sorted(timed, key=lambda rank: (len(timed[rank].work), -rank))
    largest = bars_of(last, timed[last], clock[last], ops.get(last, NO_OPS))
    window = window_around_path(largest, bar_count // len(timed))
    for rank in (*smaller, last):
        bars = largest if rank == last else bars_of(rank, timed[rank], clock[rank], ops.get(rank, NO_OPS))
        packed[rank] = pack_rank(bars, length, window, max_bytes // (len(timed) - len(packed)))
        max_bytes, count = max_bytes - len(packed[rank].json), count + len(bars)
        drawn[rank], times[rank] = strips(bars, length), lane_times(bars)
    ranks = sorted(packed)
    meta = orjson.dumps({"length": length, "window": window, "looks": LOOKS, "reasons": REASONS})
    return Timeline(
        ranks,
        count,
        sum(item.bars for item in packed.values()),
        max(item.width_ns for item in packed.values()) / 1000,
        b'{"meta":%s,"ranks":[%s]}' % (meta, b",".join(packed[rank].json for rank in ranks)),
        picture([strip for rank in ranks for strip in drawn[rank]], length),
        [row for rank in ranks for row in times[rank]],
    )


def pack_rank(bars: Bars, length_ns: int, window_ns: tuple[int, int], max_bytes: int) -> PackedRank:
    """Returns as many bars as about `max_bytes` bytes hold, of a run of `length_ns`, with all in the window if that
    leaves half of the bytes.
    """
    ops = _packed_ops(bars, max_bytes // OPS)
    max_bytes -= len(orjson.dumps(ops))
    bar_count, order = max_bytes // LEAST, None
    while True:
        if len(bars) <= bar_count:
            chosen = np.ones(len(bars), bool)
        else:
            order = order or order_of_detail(bars, window_ns, bar_count)
            chosen = select_detail(bars, order, bar_count)
        sums = None if chosen.all() else _sums(bars, ~chosen, length_ns, max_bytes // SUMS)
        packed_bars = _packed_bars(bars, chosen, sums)
        json = orjson.dumps(packed_bars)
        if len(json) <= max_bytes or bar_count <= FEWEST:
            whole = orjson.dumps(packed_bars | ops)
            return PackedRank(whole, int(chosen.sum()), sums.width_ns if sums else 0)
        # the sums keep their size, and fewer bars compress less well
        share = (max_bytes - max_bytes // SUMS) / (len(json) - (max_bytes // SUMS if sums else 0))
        bar_count = max(min(int(0.97 * bar_count * share), int(chosen.sum()) - 1), FEWEST)


def _sums(bars: Bars, chosen: Bool, length_ns: int, max_bytes: int) -> BarSums:
    """Returns the sums over the shortest stretches that fit."""
    sums = sum_bars(bars, chosen, length_ns, FINEST)
    while sums.filled.sum() * OF_CELL > max_bytes and sums.time_ns.shape[1] > 1:
        sums = sums.coarser()
    return sums


def _packed_bars(bars: Bars, chosen: Bool, sums: BarSums | None) -> dict[str, Any]:
    columns = _bar_columns(bars, chosen) | _arrow_columns(bars, chosen) | (_sum_columns(sums) if sums else {})
    single, summed = (np.bincount(bars.lane[rows], minlength=len(bars.lanes)).tolist() for rows in (chosen, ~chosen))
    return {
        "rank": bars.rank,
        "lanes": [*zip(bars.lanes, single, summed, strict=True)],
        "sums": _described(sums) if sums else {"width": 0, "count": 0, "keys": []},
    } | pack_columns(columns, bars.name.take(chosen))


def _described(sums: BarSums) -> dict[str, Any]:
    rows = sums.filled.sum(axis=1).tolist()
    keys = [*zip(sums.lane.tolist(), sums.kind.tolist(), rows, strict=True)]
    return {"width": sums.width_ns, "count": sums.time_ns.shape[1], "keys": keys}


def _packed_ops(bars: Bars, max_bytes: int) -> dict[str, Any]:
    """Returns the ops around bars, the longest if there are too many, and how many rows each lane needs."""
    ops, most = bars.ops, max_bytes // OF_OP
    if len(ops.lane) > most:
        ops = ops.take(np.sort(np.argsort(ops.start_ns - ops.end_ns, kind="stable")[:most]))
    start = _since_the_one_before(ops.lane, ops.start_ns, ops.start_ns)
    columns = {"start": start, "time": ops.end_ns - ops.start_ns, "row": ops.row}
    counts, last = np.bincount(ops.lane, minlength=len(bars.lanes)), np.zeros(len(bars.lanes), np.int64)
    for lane, row in ((bars.lane, bars.row), (ops.lane, ops.row)):
        np.maximum.at(last, lane, row)
    return {"ops": {"lanes": counts.tolist(), "rows": (last + 1).tolist()} | pack_columns(columns, ops.name)}


def pack_columns(columns: Mapping[str, Int64], name: Categorical) -> dict[str, Any]:
    """Packs columns of whole numbers and a column of names as text: bytes of equal significance together, deflated, in
    base64, so that numbers that vary little need almost no room.

    A value v is stored as 2 v, a negative one as -2 v - 1. All lowest bytes of the first column come first, then all
    next ones, and so on; `columns` has the number of values of each and the bytes per value. The names follow as JSON.
    """
    codes, number = np.unique(name.codes, return_inverse=True)
    texts = orjson.dumps([short_and_full(name.table[code] if code >= 0 else "") for code in codes.tolist()])
    every = {**columns, "name": number.reshape(-1).astype(np.int64)}
    planes = {of: _planes(values) for of, values in every.items()}
    packed = zlib.compress(b"".join([*(plane.tobytes() for plane in planes.values()), texts]), LEVEL)
    shapes = {of: (len(every[of]), len(plane)) for of, plane in planes.items()}
    return {"columns": shapes, "data": base64.b64encode(packed).decode()}


def _planes(values: Int64) -> npt.NDArray[np.uint8]:
    """Returns the lowest bytes of all values, then the next ones, as many as the largest value has."""
    folded = ((values << 1) ^ (values >> 63)).astype("<u8")
    count = (int(folded.max(initial=0)).bit_length() + 7) // 8
    return np.ascontiguousarray(folded.view(np.uint8).reshape(-1, 8)[:, :count].T)


def _since_the_one_before(lane: Int64, time: Ns, of_each: Ns) -> Ns:
    """Returns each time less what the row before has in `of_each`, for the first row of a lane the time itself."""
    before = np.append(0, of_each[:-1])[: len(time)]
    before[np.append(True, lane[1:] != lane[:-1])[: len(lane)]] = 0
    return np.asarray(time - before)


def _bar_columns(bars: Bars, chosen: Bool) -> dict[str, Int64]:
    """Returns the columns of the chosen bars as differences to the bar before.

    `gap` is the time since its end, for the first bar of a lane since the run's start.
    """
    lane, start, end = bars.lane[chosen], bars.start_ns[chosen], bars.end_ns[chosen]
    return {
        "gap": _since_the_one_before(lane, start, end),
        "time": end - start,
        "shared": bars.alone_ns[chosen] - start,
        "kind": kinds(bars)[chosen],
        "node": np.diff(bars.node[chosen], prepend=0),
        "row": bars.row[chosen],
    }


def _arrow_columns(bars: Bars, chosen: Bool) -> dict[str, Int64]:
    """Returns the arrows between chosen bars, sorted by target: the difference to the target before, and from the
    target to the source.
    """
    source, target, reason, is_step = bars.arrows
    is_shown = chosen[source] & chosen[target]
    row = np.cumsum(chosen) - 1
    source, target, reason, is_step = row[source[is_shown]], row[target[is_shown]], reason[is_shown], is_step[is_shown]
    order = np.lexsort((source, target))
    return {
        "target": np.diff(target[order], prepend=0),
        "source": (source - target)[order],
        "reason": reason[order],
        "step": is_step[order].astype(np.int64),
    }


def _sum_columns(sums: BarSums) -> dict[str, Int64]:
    """Returns the non-empty stretches of each lane and kind, each as the difference to the one before."""
    stretch = np.nonzero(sums.filled)[1]
    return {
        "stretch": np.diff(stretch, prepend=0),
        "spent": sums.time_ns[sums.filled],
        "begun": sums.begun[sums.filled],
    }
