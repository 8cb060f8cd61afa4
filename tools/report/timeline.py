"""The timeline of a run within a page's bytes: some bars one by one, the others as sums over stretches of time."""

import base64
import zlib
from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import orjson

from ...schema.columns import Bool, Categorical, Int64, Ns, Rows, cumcount, is_group_start
from ..replay import Replay
from ..view import LOOKS, REASONS
from .bars import NO_OPS, Bars, Slices, bars_of, on_one_clock
from .cells import Row, short_and_full

MAX_BYTES, SUMS, OPS = 1_900_000, 2, 4
"""The most bytes of all ranks; of a rank's, ops take at most 1/OPS, sums at most 1/SUMS of the rest."""
LEAST, OF_CELL, FEWEST, OF_OP = 3, 7, 1000, 8
"""The least bytes of a bar, the usual bytes of a sum, the least number of single bars of a rank, the bytes of an op."""
FINEST, LEVEL = 1 << 16, 6
"""The most stretches of a summary; how much to deflate."""
KINDS = 2 * len(LOOKS)
CELLS, FEWEST_STRETCHES = 1 << 22, 128
"""The most cells of a summary in memory, and the least number of stretches."""


class Timeline(NamedTuple):
    """The timeline of the drawn `ranks`, in µs: `single_bars` of their `bars`, others in stretches up to `coarsest`."""

    ranks: list[int]
    bars: int
    single_bars: int
    coarsest: float
    json: bytes
    lane_times: list[Row]


def timeline(
    replays: Mapping[int, Replay], max_bytes: int = MAX_BYTES, ops: Mapping[int, Slices] = MappingProxyType({})
) -> Timeline | None:
    """Returns the timeline of ranks on one clock, of which large ones share the bytes equally; None without times."""
    timed = {rank: replay for rank, replay in replays.items() if replay.work.is_timed.any()}
    if not timed:
        return None
    clock = dict(zip(timed, on_one_clock([*timed.values()]), strict=True))
    length = max(int(item.work.measured_end_ns.max()) + clock[rank][0] for rank, item in timed.items())
    packed: dict[int, tuple[bytes, int, int, int, list[Row]]] = {}
    for rank in sorted(timed, key=lambda rank: (len(timed[rank].work), -rank)):
        bars = bars_of(rank, timed[rank], clock[rank], ops.get(rank, NO_OPS))
        of_rank = pack_rank(bars, length, max_bytes // (len(timed) - len(packed)))
        packed[rank] = *of_rank, len(bars), bars.lane_times()
        max_bytes -= len(of_rank[0])
    ranks = sorted(packed)
    json, single, widths, counts, times = zip(*(packed[rank] for rank in ranks), strict=True)
    meta = orjson.dumps({"length": length, "looks": LOOKS, "reasons": REASONS})
    whole = b'{"meta":%s,"ranks":[%s]}' % (meta, b",".join(json))
    return Timeline(ranks, sum(counts), sum(single), max(widths) / 1000, whole, [*chain.from_iterable(times)])


def drawn_first(bars: Bars, most: int) -> Rows:
    """Returns the bars in the order in which they get a place among at most `most` that are drawn singly.

    First come the longest of each name on each lane, up to an eighth; then each lane's longest, then second longest.
    """
    by_length = np.lexsort((bars.start_ns - bars.end_ns, bars.lane))
    lane, name = bars.lane[by_length], bars.name.codes[by_length].astype(np.int64)
    longest = by_length[np.unique(lane * (len(bars.name.table) + 1) + name + 1, return_index=True)[1]]
    is_first = np.isin(np.arange(len(bars)), longest[: most // 8])
    others = by_length[~is_first[by_length]]
    return np.append(np.flatnonzero(is_first), others[np.argsort(cumcount(bars.lane[others]), kind="stable")])


class BarSums(NamedTuple):
    """Of k lanes and kinds in b stretches of `width_ns`, k × b: their time, no lane busy twice, and how many began."""

    width_ns: int
    lane: Int64
    kind: Int64
    time_ns: Ns
    begun: Int64

    @property
    def filled(self) -> Bool:
        """Which cells have time or a start, k × b."""
        return np.asarray((self.time_ns > 0) | (self.begun > 0))


def sum_bars(bars: Bars, chosen: Bool, length_ns: int, finest: int, most_filled: int = CELLS) -> BarSums:
    """Sums the chosen bars over at most `finest` stretches, a power of 2, of which at most `most_filled` are filled.

    O(n + k · b): those that lie within a bar are counted by a running sum.
    """
    keys, key = np.unique(bars.lane[chosen] * KINDS + bars.kind[chosen], return_inverse=True)
    key = key.reshape(-1)
    count = min(finest, max(1 << (CELLS // max(len(keys), 1)).bit_length() >> 1, FEWEST_STRETCHES))
    width = -(-max(length_ns, 1) // count)
    start, end = bars.alone_ns[chosen], bars.end_ns[chosen]
    times = start, np.maximum(end - 1, start), bars.start_ns[chosen]
    first, last, began = (key * count + np.minimum(time // width, count - 1) for time in times)
    size = len(keys) * count
    within = first == last
    # of a bar in one stretch all, of others what lies in their first and last
    head = np.where(within, end - start, (first % count + 1) * width - start)
    tail = np.where(within, 0, end - last % count * width)
    covered = np.cumsum(np.bincount(np.minimum(first + 1, size - 1), ~within, size) - np.bincount(last, ~within, size))
    time = np.bincount(first, head, size) + np.bincount(last, tail, size) + covered * width
    cells = np.stack((time, np.bincount(began, minlength=size))).astype(np.int64).reshape(2, len(keys), count)
    while count > 1 and cells.any(axis=0).sum() > most_filled:
        count, width, cells = count // 2, 2 * width, cells.reshape(2, len(keys), -1, 2).sum(axis=3)
    return BarSums(width, keys // KINDS, keys % KINDS, *cells)


def pack_rank(bars: Bars, length_ns: int, max_bytes: int) -> tuple[bytes, int, int]:
    """Packs as many bars as about `max_bytes` hold: the JSON, the number of single bars, the ns of a sum."""
    ops, most = bars.ops, max_bytes // OPS // OF_OP
    if len(ops.lane) > most:
        ops = ops.take(np.sort(np.argsort(ops.start_ns - ops.end_ns, kind="stable")[:most]))
    of_ops = OF_OP * len(ops.lane)
    of_sums = (max_bytes - of_ops) // SUMS
    bar_count, order = (max_bytes - of_ops) // LEAST, None
    while True:
        chosen, sums = np.ones(len(bars), bool), None
        if bar_count < len(bars):
            order = drawn_first(bars, bar_count) if order is None else order
            chosen[order[bar_count:]] = False
            # over the shortest stretches that fit
            sums = sum_bars(bars, ~chosen, length_ns, FINEST, of_sums // OF_CELL)
        json = orjson.dumps(_packed(bars, chosen, sums, ops))
        if len(json) <= max_bytes or bar_count <= FEWEST:
            return json, int(chosen.sum()), sums.width_ns if sums else 0
        # ops and sums keep their size, and fewer bars compress less well
        share = (max_bytes - of_ops - of_sums) / (len(json) - of_ops - (of_sums if sums else 0))
        bar_count = max(min(int(0.97 * bar_count * share), int(chosen.sum()) - 1), FEWEST)


def _packed(bars: Bars, chosen: Bool, sums: BarSums | None, ops: Slices) -> dict[str, Any]:
    """Returns the chosen bars, arrows between them, sums of the others, and ops, each as differences to those before.

    The `gap` of a bar is the time since the end of the one before on its lane. Arrows are sorted by target, `source`
    counts from there. Sums are the non-empty stretches of each lane and kind. Names are the bars', then the ops'.
    """
    lane, start, end = bars.lane[chosen], bars.start_ns[chosen], bars.end_ns[chosen]
    number = np.cumsum(chosen) - 1
    is_drawn = chosen[bars.arrows.source] & chosen[bars.arrows.target]
    source, target, reason, is_step = (column[is_drawn] for column in bars.arrows)
    source, target = number[source], number[target]
    order = np.lexsort((source, target))
    columns: dict[str, Int64] = {
        "gap": _since_the_one_before(lane, start, end), "time": end - start, "shared": bars.alone_ns[chosen] - start,
        "kind": bars.kind[chosen], "node": np.diff(bars.node[chosen], prepend=0), "row": bars.row[chosen],
        "target": np.diff(target[order], prepend=0), "source": (source - target)[order],
        "reason": np.asarray(reason[order], np.int64), "step": is_step[order].astype(np.int64),
        "op_start": _since_the_one_before(ops.lane, ops.start_ns, ops.start_ns), "op_time": ops.end_ns - ops.start_ns,
        "op_row": ops.row,
    }  # fmt: skip
    described: dict[str, Any] = {"width": 0, "count": 0, "keys": []}
    if sums:
        filled = sums.filled
        columns["stretch"] = np.diff(np.nonzero(filled)[1], prepend=0)
        columns |= {"spent": sums.time_ns[filled], "begun": sums.begun[filled]}
        keys = [*zip(sums.lane.tolist(), sums.kind.tolist(), filled.sum(axis=1).tolist(), strict=True)]
        described = {"width": sums.width_ns, "count": sums.time_ns.shape[1], "keys": keys}
    counts = (np.bincount(lanes, minlength=len(bars.lanes)).tolist() for lanes in (lane, ops.lane))
    rows = np.ones(len(bars.lanes), np.int64)
    np.maximum.at(rows, np.append(bars.lane, ops.lane), np.append(bars.row, ops.row) + 1)
    packed = pack_columns(columns, Categorical.joined([bars.name.take(chosen), ops.name]))
    lanes = [*zip(bars.lanes, *counts, rows.tolist(), strict=True)]
    return {"rank": bars.rank, "lanes": lanes, "sums": described} | packed


def _since_the_one_before(lane: Int64, time: Ns, of_each: Ns) -> Ns:
    """Returns each time less what the row before has in `of_each`, for the first row of a lane the time itself."""
    return time - np.where(is_group_start(lane), 0, np.roll(of_each, 1))


def pack_columns(columns: Mapping[str, Int64], name: Categorical) -> dict[str, Any]:
    """Packs columns of whole numbers and names as text: bytes of equal significance together, deflated, in base64.

    A value v is stored as 2 v, a negative one as -2 v - 1; all lowest bytes of a column come first, then all next ones,
    as many as its largest value has. The names follow as JSON.
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
