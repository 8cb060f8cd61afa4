"""How long steps take without a profiler, and what one that records adds to an op: the device trace says both."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from itertools import pairwise
from operator import sub
from pathlib import Path
from statistics import fmean, median, quantiles
from time import perf_counter, process_time
from typing import Any

from ...schema.linked import DATA_WAIT_WITHOUT_PROFILER, STEP_WITHOUT_PROFILER, STEPS_WITHOUT_PROFILER
from .windows import synchronise, warn

UNEVEN = 3.0
"""A step that keeps the host for more than so many median steps, besides waiting for data, did something else."""
FEW = 0.2
"""Up to this share of steps may be uneven: they do not count. Of more nobody can say how long a usual step takes."""
TURNS, BLOCKS, PAIRS = 3, 20, 20
"""How often ops are timed without a profiler and then with one; how many blocks of how many pairs of ops."""
CACHE = 1 << 19
"""So many bytes are copied before each pair: in a loop, too, not all that an op needs is in the nearest cache."""
LIMIT_S = 0.05
"""Longer than this none of the timings may last, as where other threads hold Python's lock."""
LEAST_S = 0.1
"""For so long steps must last to tell who kept the cores busy, as Linux counts that in hundredths of a second."""


class StepTimer:
    """Measures the length of the steps between `start` and `stop`, devices included, and how long loops wait for data.

    Processes of a loader get ahead of a loop that recording slows, so the traces do not tell how long it waits.
    Meanwhile the `next` of PyTorch's loaders is replaced in this thread. Steps do not count that take the batches that
    may be `ahead` at first; `workers` is how many processes the loader with the most of them has.
    """

    def __init__(self, torch: Any) -> None:
        self.waited_s, self.workers, self.ahead = 0.0, 0, 0
        self._torch, self._loader = torch, ExitStack()
        self._laps: list[tuple[float, float]] = []
        """When each step began on the host, and how long the loop had waited for data by then."""
        self._known: dict[str, Any] = {}
        self._busy_s = [0.0, 0.0]

    def start(self) -> None:
        """Waits for the device and begins to measure."""
        synchronise(self._torch)
        iterator: Any = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
        if own_next := getattr(iterator, "__next__", None):
            iterator.__next__ = self._timed(own_next)
            self._loader.callback(setattr, iterator, "__next__", own_next)
        self._busy_s = [*busy_cores()[1:]]
        self.lap()

    def _timed(self, get: Any) -> Any:
        thread, is_open = threading.get_ident(), False

        def timed(iterator: Any) -> Any:
            nonlocal is_open
            if is_open or threading.get_ident() != thread:
                return get(iterator)  # a loader of another thread, or one that another loader reads
            workers = getattr(iterator, "_num_workers", 0)
            self.workers = max(self.workers, workers)
            self.ahead = max(self.ahead, workers * (getattr(iterator, "_prefetch_factor", None) or 0))
            is_open, begin = True, perf_counter()
            try:
                return get(iterator)
            finally:
                is_open = False
                self.waited_s += perf_counter() - begin

        return timed

    def lap(self) -> None:
        """Notes that a step has ended on the host and the next begins."""
        self._laps.append((perf_counter(), self.waited_s))

    def drop(self) -> None:
        """Puts the loaders' own `next` back, also where a block ends early; may be called again."""
        self._loader.close()

    def stop(self) -> None:
        """Waits for the device and ends the measurement; warns if the steps are too few or too different."""
        self.lap()
        self.drop()
        synchronise(self._torch)
        whole_s, (cores, *busy_s) = perf_counter() - self._laps[0][0], busy_cores()
        own_s, all_s = map(sub, busy_s, self._busy_s)
        begun, waited = zip(*self._laps, strict=True)
        lengths, waits = ([after - before for before, after in pairwise(ends)] for ends in (begun, waited))
        work, steps = list(map(sub, lengths, waits)), len(lengths)
        usual = median(work) + fmean(waits)
        first = min(self.ahead, steps // 2)
        kept = [step for step in range(first, steps) if work[step] <= UNEVEN * usual]
        if uneven := steps - first - len(kept):
            why = f"of the steps before recording {'one' if uneven == 1 else f'{uneven} of {steps}'} took"
            why = f"{why} {max(work) * 1e3:.1f} ms and most {usual * 1e3:.1f} ms, so"
            if uneven > FEW * steps:
                is_early = work.index(max(work)) < steps / 2
                advice = "raise wait" if is_early else "something held the loop up, so record again"
                warn(f"{why} the length of an unprofiled step is not known; {advice}")
                return
            pct = 100 * (1 - sum(lengths[step] for step in kept) / sum(lengths[first:]))
            warn(f"{why} answers are about the others; {pct:.0f} % of the time is in the slow ones")
        total = whole_s - sum(lengths) + sum(lengths[step] for step in kept)
        wait = fmean(waits[step] for step in kept)
        times = {STEP_WITHOUT_PROFILER: total / len(kept), DATA_WAIT_WITHOUT_PROFILER: wait}
        self._known = {key: round(time * 1e6, 1) for key, time in times.items()}
        # a loader delivers unevenly: of each step only its work is its own
        even = [work[step] + wait for step in kept] * (2 if len(kept) == 1 else 1)
        low, *_, middle, _, _, _, high = quantiles(even, n=10, method="inclusive")
        spread = {key: round(time * 1e6, 1) for key, time in (("median", middle), ("p10", low), ("p90", high))}
        if cores and whole_s >= LEAST_S:
            of_step = middle / whole_s * 1e6
            busy = {"own": round(own_s * of_step, 1), "others": round(max(all_s - own_s, 0) * of_step, 1)}
            spread |= {"cores": cores, "threads": self._torch.get_num_threads(), **busy}
        self._known[STEPS_WITHOUT_PROFILER] = {"count": len(kept), **spread}
        step = f"{1e3 * middle:.2f} ms (most {1e3 * low:.2f} to {1e3 * high:.2f} ms), the median of {len(kept)} timed after"
        print(f"execgraph: an unprofiled step takes {step} the first{f' {first + 1}' * bool(first)}", file=sys.stderr)
        if (needed := max(self.workers, 2 * self.ahead)) > steps:
            why = f"the data loader has {self.workers} workers, and {steps} steps were measured before recording"
            advice = f"give wait={needed + 2}"
            warn(f"{why}, so the loop may wait longer for its data than was measured; {advice}")

    def add_to(self, profiler: Any, further: dict[str, str]) -> None:
        """Has the profiler, which must be recording, write what was measured and `further` into its trace, or warns."""
        if not self._known:
            print(
                "execgraph: no steps were timed without a profiler: do not trust predictions about the host",
                file=sys.stderr,
            )
        try:
            for key, value in (further | self._known).items():
                profiler.add_metadata_json(key, json.dumps(value))
        except Exception as error:
            warn(f"the trace does not say how long an unprofiled step takes: {error!r}")


def busy_cores() -> tuple[int, float, float]:
    """Returns how many cores this process may use, for how long it and for how long all processes kept them busy (s).

    Linux counts that, with what a virtual machine lost to others; elsewhere there are 0 cores.
    """
    try:
        cores = os.sched_getaffinity(0)
        rows = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        of_core = {name: list(map(int, counts)) for name, *counts in rows if name.startswith("cpu")}
        # in order: user, nice, system, idle, waiting for a disk, two kinds of interrupts, lost
        busy = sum(sum(of_core[f"cpu{core}"][:8]) - sum(of_core[f"cpu{core}"][3:5]) for core in cores)
        return len(cores), process_time(), busy / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, KeyError, ValueError):
        return 0, 0.0, 0.0


def recording_cost(torch: Any, config: Any) -> dict[str, float]:
    """Returns what a profiler with this config adds to a thread that runs ops (µs); empty, with a warning, if unknown.

    `op` is for its begin and end, `call`, with a GPU, for a runtime call. A thread of its own runs ops with and without
    a profiler, as what is in force for the loop's thread (no gradients, dispatch modes, a compiler) is not for it.
    """
    try:
        stream = None
        if torch.cuda.is_available():
            if torch.cuda.is_current_stream_capturing():
                raise RuntimeError("a CUDA graph is being captured")
            stream = torch.cuda.current_stream()
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_costs, torch, config, stream).result()
    except Exception as error:
        with suppress(Warning):  # where warnings are errors the traces are worth more
            warn(f"the trace does not say how long recording an op takes: {error}")
        return {}


def _costs(torch: Any, config: Any, stream: Any) -> dict[str, float]:
    """Returns the differences of quiet blocks: whatever else runs on the machine makes some of them longer."""
    with torch.cuda.stream(stream) if stream else nullcontext():
        numbers = {"op": torch.ones(1)} | ({"call": torch.ones(1, device=stream.device)} if stream else {})
        bare, recorded = ({key: list[float]() for key in numbers} for _ in range(2))
        for _ in range(TURNS):
            for key, number in numbers.items():
                bare[key] += _blocks_us(torch, number)
            with _recording(torch, config):
                for key, number in numbers.items():
                    recorded[key] += _blocks_us(torch, number)
    costs = {key: quantiles(recorded[key], n=10)[0] - quantiles(bare[key], n=10)[0] for key in numbers}
    if stream:
        costs["call"] -= costs["op"]
    if min(costs.values()) <= 0:
        raise RuntimeError("ops took no longer with a profiler than without")
    return {key: round(cost, 3) for key, cost in costs.items()}


@contextmanager
def _recording(torch: Any, config: Any) -> Iterator[None]:
    profiler = torch.profiler._KinetoProfile(experimental_config=config)
    profiler.start()
    try:
        yield
    finally:
        profiler.stop()


def _blocks_us(torch: Any, number: Any) -> list[float]:
    """Returns how long one op takes on the host, in each block; in place, with a tensor, it has no other op within.

    Raises TimeoutError where other threads keep this one from running.
    """
    source, nearest, end = bytes(CACHE), bytearray(CACHE), perf_counter() + LIMIT_S
    blocks = []
    for _ in range(BLOCKS):
        block = 0.0
        synchronise(torch)  # a queue that is full would hold the host up
        for _ in range(PAIRS):
            nearest[:] = source
            begin = perf_counter()
            number.mul_(number)
            number.mul_(number)
            block += (after := perf_counter()) - begin
            if after > end:
                raise TimeoutError("something else keeps this process from running")
        blocks.append(block / PAIRS / 2 * 1e6)
    return blocks
