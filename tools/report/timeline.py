"""The timeline of a run within the bytes that a page has: single bars as far as they fit, else sums over time."""

import base64
import zlib
from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import orjson

from ...schema.columns import Bool, Categorical, Int64, Ns
from ..replay import Replay
from ..view import LOOKS, REASONS
from .bar_sums import BarSums, Strip, picture, selector, strips, sum_bars, window_around_path
from .bars import NO_OPS, Bars, Slices, bars_of, on_one_clock
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


def timeline(
    replays: Mapping[int, Replay],
    bar_count: int,
    max_bytes: int = MAX_BYTES,
    ops: Mapping[int, Slices] = MappingProxyType({}),
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

    def bars_of_rank(rank: int) -> Bars:
        return bars_of(rank, timed[rank], clock[rank], ops.get(rank, NO_OPS))

    *smaller, last = sorted(timed, key=lambda rank: (len(timed[rank].work), -rank))
    largest, packed = bars_of_rank(last), dict[int, tuple[PackedRank, int, list[Strip], list[Row]]]()
    window = window_around_path(largest, bar_count // len(timed))
    for rank in (*smaller, last):
        bars = largest if rank == last else bars_of_rank(rank)
        of_rank = pack_rank(bars, length, window, max_bytes // (len(timed) - len(packed)))
        packed[rank] = of_rank, len(bars), strips(bars, length), bars.lane_times()
        max_bytes -= len(of_rank.json)
    ranks = sorted(packed)
    of_ranks, counts, drawn, times = zip(*(packed[rank] for rank in ranks), strict=True)
    meta = orjson.dumps({"length": length, "window": window, "looks": LOOKS, "reasons": REASONS})
    return Timeline(
        ranks,
        sum(counts),
        sum(item.bars for item in of_ranks),
        max(item.width_ns for item in of_ranks) / 1000,
        b'{"meta":%s,"ranks":[%s]}' % (meta, b",".join(item.json for item in of_ranks)),
        picture([*chain.from_iterable(drawn)], length),
        [*chain.from_iterable(times)],
    )


class PackedRank(NamedTuple):
    """A rank on the page: its packed columns, the number of single bars, and the length of the stretches over which the
    others are summed, 0 for none.
    """

    json: bytes
    bars: int
    width_ns: int


def pack_rank(bars: Bars, length_ns: int, window_ns: tuple[int, int], max_bytes: int) -> PackedRank:
    """Returns as many bars as about `max_bytes` bytes hold, of a run of `length_ns`, with all in the window if that
    leaves half of the bytes.
    """
    ops = _packed_ops(bars, max_bytes // OPS)
    max_bytes -= len(orjson.dumps(ops))
    bar_count, select = max_bytes // LEAST, None
    while True:
        if len(bars) <= bar_count:
            chosen, sums = np.ones(len(bars), bool), None
        else:
            select = select or selector(bars, window_ns, bar_count)
            chosen = select(bar_count)
            # over the shortest stretches that fit
            sums = sum_bars(bars, ~chosen, length_ns, FINEST)
            while sums.filled.sum() * OF_CELL > max_bytes // SUMS and sums.time_ns.shape[1] > 1:
                sums = sums.coarser()
        packed_bars = _packed_bars(bars, chosen, sums)
        json = orjson.dumps(packed_bars)
        if len(json) <= max_bytes or bar_count <= FEWEST:
            return PackedRank(orjson.dumps(packed_bars | ops), int(chosen.sum()), sums.width_ns if sums else 0)
        # the sums keep their size, and fewer bars compress less well
        share = (max_bytes - max_bytes // SUMS) / (len(json) - (max_bytes // SUMS if sums else 0))
        bar_count = max(min(int(0.97 * bar_count * share), int(chosen.sum()) - 1), FEWEST)


def _packed_bars(bars: Bars, chosen: Bool, sums: BarSums | None) -> dict[str, Any]:
    """Returns the chosen bars, the arrows between them, and the sums of the others, each as differences to those
    before.

    The `gap` of a bar is the time since the end of the one before on its lane, of the first one since the run's start.
    Arrows are sorted by target, `source` counts from there. Sums are the non-empty stretches of each lane and kind.
    """
    lane, start, end = bars.lane[chosen], bars.start_ns[chosen], bars.end_ns[chosen]
    number = np.cumsum(chosen) - 1
    source, target, reason, is_step = (
        column[chosen[bars.arrows.source] & chosen[bars.arrows.target]] for column in bars.arrows
    )
    source, target = number[source], number[target]
    order = np.lexsort((source, target))
    columns: dict[str, Int64] = {
        "gap": _since_the_one_before(lane, start, end),
        "time": end - start,
        "shared": bars.alone_ns[chosen] - start,
        "kind": bars.kind[chosen],
        "node": np.diff(bars.node[chosen], prepend=0),
        "row": bars.row[chosen],
        "target": np.diff(target[order], prepend=0),
        "source": (source - target)[order],
        "reason": np.asarray(reason[order], np.int64),
        "step": is_step[order].astype(np.int64),
    }
    described: dict[str, Any] = {"width": 0, "count": 0, "keys": []}
    if sums:
        filled = sums.filled
        columns["stretch"] = np.diff(np.nonzero(filled)[1], prepend=0)
        columns |= {"spent": sums.time_ns[filled], "begun": sums.begun[filled]}
        keys = [*zip(sums.lane.tolist(), sums.kind.tolist(), filled.sum(axis=1).tolist(), strict=True)]
        described = {"width": sums.width_ns, "count": sums.time_ns.shape[1], "keys": keys}
    single, summed = (np.bincount(bars.lane[rows], minlength=len(bars.lanes)).tolist() for rows in (chosen, ~chosen))
    lanes = [*zip(bars.lanes, single, summed, strict=True)]
    packed = pack_columns(columns, bars.name.take(chosen))
    return {"rank": bars.rank, "lanes": lanes, "sums": described} | packed


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


def _since_the_one_before(lane: Int64, time: Ns, of_each: Ns) -> Ns:
    """Returns each time less what the row before has in `of_each`, for the first row of a lane the time itself."""
    before = np.append(0, of_each[:-1])[: len(time)]
    before[np.append(True, lane[1:] != lane[:-1])[: len(lane)]] = 0
    return np.asarray(time - before)


def pack_columns(columns: Mapping[str, Int64], name: Categorical) -> dict[str, Any]:
    """Packs columns of whole numbers and a column of names as text: bytes of equal significance together, deflated, in
    base64, so that numbers that vary little need almost no room.

    A value v is stored as 2 v, a negative one as -2 v - 1. All lowest bytes of the first column come first, then all
    next ones, as many as its largest value has, and so on; `columns` has the number of values of each and the bytes per
    value. The names follow as JSON.
    """
    codes, number = np.unique(name.codes, return_inverse=True)
    texts = orjson.dumps([short_and_full(name.table[code] if code >= 0 else "") for code in codes.tolist()])
    shapes, planes = dict[str, tuple[int, int]](), list[bytes]()
    for key, values in {**columns, "name": number.reshape(-1).astype(np.int64)}.items():
        folded = ((values << 1) ^ (values >> 63)).astype("<u8")
        size = (int(folded.max(initial=0)).bit_length() + 7) // 8
        planes.append(np.ascontiguousarray(folded.view(np.uint8).reshape(-1, 8)[:, :size].T).tobytes())
        shapes[key] = len(values), size
    packed = zlib.compress(b"".join([*planes, texts]), LEVEL)
    return {"columns": shapes, "data": base64.b64encode(packed).decode()}
