"""The work of kernels: FLOP/s and bytes/s against the device's peak, utilisation by step, hardware counters, and rules.

Only computation counts for efficiency. CUPTI's range profiler records one range per kernel without times, so the k-th
range of a device is that of its k-th kernel launch. If counts or names disagree, no range is attached to an op.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Categorical, Int64, OpRows, RowMap, Rows, groupby
from ...schema.device_peaks import Peak
from ...schema.errors import Remedy
from ...schema.linked import Activities, Calls
from ..replay import Bound, Kernels, NodeClass, Roofline, device_peaks, kernels_of, recorded_peaks, roofline
from .finding_words import Found, Said
from .job import Finding, Job
from .rank import ActivityClass, Analysis, AnalysisOptions, RankTrace, activity_rows, per_rank
from .table import Columns, Quantity, Table, ints, pct, ratio, tabulate, texts, us

NO_KERNELS = "no kernel computes anything"
FROM_CACHE = "cache"
PARTLY_COUNTED = "at least: the operations of some kernels are unknown; counted: the time of the others"
KERNEL_LAUNCH = re.compile(r"Launch(Cooperative)?Kernel")
OPERATIONS = {"add": 1, "mul": 1, "fma": 2}
FLOPS = {
    f"smsp__sass_thread_inst_executed_op_{precision}{operation}_pred_on.sum": flops
    for precision in "hfd"
    for operation, flops in OPERATIONS.items()
}
"""Floating-point operations outside tensor cores per counted instruction; a fused multiply-add does two."""
STACK = " > "
NO_RANGES = "no hardware counters were recorded (cuda_profiler_range)"
TENSOR = re.compile(r"\[\d+(?:,\d+)*\]")
FLOAT32, NAMED, TENSORS_NAMED = 4, 3, 3
LOW_PCT = 60.0
"""A product that reaches more than this share of the best one of its format can hardly be made faster by its shape."""
IMPOSSIBLE, LONG_ENOUGH_NS = 3, 5_000
"""Structured sparsity doubles the peak, nothing triples it; shorter kernels are timed too coarsely to say."""
KINDS = (
    (Said.PRODUCTS, re.compile(r"aten::_?(addmm|mm|bmm|baddbmm|linear|matmul|scaled_mm)"), Said.FIT_PRODUCTS),
    (Said.CONVOLUTIONS, re.compile(r"aten::_?(conv|cudnn_conv|miopen_conv)"), Said.FIT_CONVOLUTIONS),
    (Said.ATTENTION, re.compile(r"aten::_?.*attention"), Said.FIT_ATTENTION),
)
"""Ops that multiply matrices: their name, which these are, and what makes shapes that use little of a device faster."""
ATTENTION = len(KINDS) - 1
LAYOUT = re.compile("nchwToNhwc|nhwcToNchw")
"""Kernels of cuDNN before and after convolutions of tensors that are not channels_last."""
KernelCounters = tuple[int, str, str, int, dict[str, float]]
"""The rank, op stack, name, correlation id and counters of a kernel; "" and -1 if its launch is unknown."""


class _Work(NamedTuple):
    """The rank's computing activities: their rows, the op whose work each does (-1 for none), and what they do.

    `beyond` has how many times as fast as their peak devices computed that are impossibly fast; these have no peak.
    """

    row: Rows
    op_row: OpRows
    kernels: Kernels
    roof: Roofline
    devices: dict[int, str]
    peaks: dict[int, Peak]
    beyond: dict[int, float]


@per_rank
def efficiency(rank: RankTrace, options: AnalysisOptions) -> Table:
    """Returns a row for each device, op (or kernel that no op launched), shape and number format, the longest first."""
    work = _work(rank, options)
    kernels, ops, names, of_op = work.kernels, rank.linked.ops, work.kernels.name, work.op_row >= 0
    label = np.where(of_op, RowMap(ops.name.codes.astype(np.int64))[work.op_row], names.codes + len(ops.name.table))
    shape = np.where(of_op, RowMap(rank.shapes.codes.astype(np.int64))[work.op_row], -1)
    groups = groupby(kernels.device, label, shape, kernels.element)
    groups = groups.largest_first(groups.sum(kernels.time))
    first, time, count = groups.first, groups.sum(kernels.time), len(groups)
    amounts = (np.where(amount == ABSENT, np.nan, amount) for amount in (kernels.operations, kernels.bytes))
    operations, moved = (np.bincount(groups.number, amount, count).astype(np.float64) for amount in amounts)
    compute, memory = work.roof.peak_speed[first], work.roof.peak_bandwidth[first]
    seconds = np.where(time > 0, time, np.nan) / 1e9
    # what moves faster than memory can came from a cache, whose peak is not known
    from_cache = moved / seconds > memory
    bounds = np.select([work.roof.bound_by(bound) for bound in Bound], [bound.value for bound in Bound], "")
    columns: Columns = {
        "device": kernels.device[first], "op": texts([*ops.name.table, *names.table], label[first]),
        "shape": texts(rank.shapes.table, shape[first]),
        "element": Quantity("B", np.where(kernels.element == ABSENT, 0, kernels.element)[first]),
        "kernels": groups.count(), "time": us(time), "intensity": Quantity("FLOP/B", ratio(operations, moved)),
        "speed": Quantity("TFLOP/s", operations / seconds / 1e12), "speed_pct": pct(operations / seconds, compute),
        "bandwidth": Quantity("GB/s", moved / seconds / 1e9),
        "bandwidth_pct": pct(moved / seconds, np.where(from_cache, np.nan, memory)),
        "bound": np.where(from_cache, FROM_CACHE, bounds[first]).tolist(),
        "peak_speed": Quantity("TFLOP/s", compute / 1e12), "peak_bandwidth": Quantity("GB/s", memory / 1e9),
    }  # fmt: skip
    by_step = _by_step(rank, work)
    return tabulate("efficiency", "Efficiency of kernels", columns, _note(work), by_step, empty=NO_KERNELS)


def _work(rank: RankTrace, options: AnalysisOptions) -> _Work:
    """Returns the work computed from the traces, or of a graph alone the recorded work of its nodes."""
    activities, row = rank.linked.activities, np.flatnonzero(rank.classes == ActivityClass.COMPUTATION)
    devices = {device: rank.linked.info.devices.get(device, "") for device in np.unique(activities.device).tolist()}
    peaks, op_row = device_peaks(devices, options.peaks), activities.op_row[row]
    if len(rank.linked.ops) or rank.graph is None:
        work = rank.work
        columns = activities.device, work.operations, work.bytes, work.element, rank.durations
        kernels = Kernels(activities.name.take(row), *(column[row] for column in columns))
        op_row = np.where(work.op_row[row] >= 0, work.op_row[row], op_row)
    else:
        kernels = kernels_of(rank.graph, activity_rows(rank.graph)[row])._replace(time=rank.durations[row])
    roof, beyond = roofline(kernels, peaks), dict[int, float]()
    is_known = (kernels.operations != ABSENT) & (kernels.time >= LONG_ENOUGH_NS)
    factor = np.where(is_known, kernels.operations / np.maximum(kernels.time, 1) * 1e9 / roof.peak_speed, 0.0)
    for kernel in np.flatnonzero(factor > IMPOSSIBLE).tolist():
        device = int(kernels.device[kernel])
        beyond[device] = max(beyond.get(device, 0.0), float(factor[kernel]))
    if beyond:
        peaks = {device: peak for device, peak in peaks.items() if device not in beyond}
        roof = roofline(kernels, peaks)
    return _Work(row, OpRows(op_row), kernels, roof, devices, peaks, beyond)


def _note(work: _Work) -> str:
    kernels = work.kernels
    is_known = (kernels.operations != ABSENT) & (kernels.bytes != ABSENT)
    share = 100 * kernels.time[is_known].sum() / max(int(kernels.time.sum()), 1)
    notes = [f"work known of {is_known.sum():,} of {len(is_known):,} kernels, {share:.1f} % of their time"]
    if cached := int((1e9 * np.nan_to_num(work.roof.memory) > kernels.time).sum()):
        notes.append(f"caches serve {cached:,} of them")
    named = {number: f"{number} ({name or 'no name recorded'})" for number, name in work.devices.items()}
    for number, factor in work.beyond.items():
        wrong = "the peak is of another device or the shapes of ops are wrong, and no share of it is given"
        notes.append(f"device {named[number]} computes {factor:,.0f} times as fast as its peak: {wrong}")
    unknown = [name for number, name in named.items() if number not in work.peaks and number not in work.beyond]
    of_memory = [name for number, name in named.items() if number in work.peaks and not work.peaks[number].memory]
    for what, devices in (("device", unknown), ("the memory of device", of_memory)):
        if devices:
            notes.append(f"no peak is known of {what} {', '.join(devices)}: give {Remedy.PEAK}")
    return "; ".join(notes)


def _by_step(rank: RankTrace, work: _Work) -> Table:
    """Returns the model FLOPs utilisation: the time of a step's operations at peak speed over the step's time.

    `counted` is the share of the kernels' time in kernels whose operations are known; the others count as none.
    """
    steps, of_step, kernels = rank.steps, rank.steps.of_activity[work.row], work.kernels
    inside = np.flatnonzero(of_step >= 0)
    groups = groupby(of_step[inside], kernels.device[inside])
    step, device = of_step[inside[groups.first]], kernels.device[inside[groups.first]]
    time, is_known = (steps.end - steps.start)[step], (kernels.operations != ABSENT)[inside]
    operations = groups.sum(np.where(is_known, kernels.operations[inside], 0)).astype(np.float64)
    kernel_ns, counted_ns = groups.sum(kernels.time[inside]), groups.sum(np.where(is_known, kernels.time[inside], 0))
    least = np.nan_to_num(work.roof.compute)[inside]
    least_seconds = np.array([least[rows].sum() for rows in groups.rows()], np.float64)
    columns: Columns = {
        "device": device, "step": texts(steps.name, step), "time": us(time), "operations": operations,
        "speed": Quantity("TFLOP/s", ratio(operations, time) / 1e3),
        "utilisation": pct(np.where(np.isin(device, [*work.peaks]), least_seconds * 1e9, np.nan), time),
        "counted": pct(counted_ns, kernel_ns),
    }  # fmt: skip
    note, title = PARTLY_COUNTED if (counted_ns < kernel_ns).any() else "", "Model FLOPs utilisation by step"
    return tabulate("efficiency_by_step", title, columns, note, empty=NO_KERNELS)


def _rank_counters(rank: RankTrace, _: AnalysisOptions) -> tuple[list[KernelCounters], str]:
    """Returns the counters of a rank's kernels, and why some could not be attached to ops.

    Launches are the recorded kernels, else calls, if ranges are of a single device, as calls do not record theirs.
    """
    activities, calls = rank.linked.activities, rank.linked.calls
    is_kernel = (activities.call_row >= 0) & (rank.classes != ActivityClass.MEMORY)
    measured, problems = list[KernelCounters](), list[str]()
    devices = sorted({range_.device for range_ in rank.recorded.ranges})
    for device in devices:
        ranges = [range_ for range_ in rank.recorded.ranges if range_.device == device]
        table: Activities | Calls = activities
        rows = np.flatnonzero(is_kernel & (activities.device == device))
        rows = rows[np.lexsort((activities.start[rows], calls.start[activities.call_row[rows]]))]
        kernels = activities.name[rows]
        if not len(rows):
            table, is_launch = calls, calls.name.where(lambda name: KERNEL_LAUNCH.search(name) is not None)
            rows = np.flatnonzero(is_launch & (len(devices) == 1))
            rows = rows[np.argsort(calls.start[rows], kind="stable")]
            kernels = [""] * len(rows)
        launches = [*zip(table.op_row[rows].tolist(), table.correlation[rows].tolist(), kernels, strict=True)]
        problem = ""
        for number, (range_, (_, _, kernel)) in enumerate(zip(ranges, launches, strict=False), 1):
            if kernel and range_.name != kernel and not problem:
                problem = f"range {number} is of {range_.name}, launch {number} of {kernel}"
        if len(ranges) != len(launches):
            problem = f"{len(ranges)} ranges were recorded and {len(launches)} kernel launches"
        if problem:
            problems.append(f"device {device}: {problem}, so that no range could be attached to its op")
            launches = [(-1, -1, "")] * len(ranges)
        measured += [
            (rank.rank, STACK.join(rank.op_path(op)), range_.name, correlation, range_.counters)
            for range_, (op, correlation, _) in zip(ranges, launches, strict=True)
        ]
    return measured, f"rank {rank.rank}: {'; '.join(problems)}" if problems else ""


def _counters(parts: Sequence[tuple[list[KernelCounters], str]], _: AnalysisOptions) -> Table:
    """Returns a row for each kernel, with a column for each counter; `flops` are NaN if none of theirs was recorded."""
    rows = [row for measured, _ in parts for row in measured]
    ranks, stacks, kernels, correlations, counters = zip(*rows, strict=True) if rows else ((),) * 5
    names = dict.fromkeys(name for measured in counters for name in measured)
    flops = [[measured[name] * each for name, each in FLOPS.items() if name in measured] for measured in counters]
    columns: Columns = {
        "rank": ints(ranks), "op_stack": [*stacks], "kernel": [*kernels], "correlation": ints(correlations),
        "flops": np.array([sum(products) if products else np.nan for products in flops], np.float64),
        **{name: np.array([measured.get(name, np.nan) for measured in counters], np.float64) for name in names},
    }  # fmt: skip
    note = "; ".join(filter(None, (note for _, note in parts)))
    return tabulate("cupti_counters", "CUPTI counters", columns, note, empty=NO_RANGES)


cupti_counters = Analysis("cupti_counters", _rank_counters, _counters)


def matrix_products(job: Job) -> Iterator[Finding]:
    """Finds products in fp32 that could use the matrix engines, and shapes that use little of them."""
    is_product = (_kinds(job.ops) >= 0) & (job.work.node_class == NodeClass.COMPUTATION) & (job.work.duration_ns > 0)
    of_ranks = []
    for rank, first_row in zip(job.ranks, job.work.first_row.tolist(), strict=True):
        rows = np.flatnonzero(is_product[first_row : first_row + len(rank.graph)])
        rows = rows[rank.graph.integers("num_ops")[rows] > 0]
        kernels = kernels_of(rank.graph, rows)
        of_ranks.append((rows + first_row, kernels.element, *roofline(kernels, recorded_peaks(rank.graph))))
    node, element, *roof = (np.concatenate(column) for column in zip(*of_ranks, strict=True))
    is_known = np.isfinite(Roofline(*roof).compute)
    if is_known.any():
        products = job, node[is_known], element[is_known], Roofline(*(column[is_known] for column in roof))
        yield from _without_engines(*products)
        yield from _low_use(*products)


def _without_engines(job: Job, node: Rows, element: Int64, roof: Roofline) -> Iterator[Finding]:
    """Finds fp32 products that run on the ordinary units of a device with tf32."""
    slow, seconds = (element == FLOAT32) & (roof.tf32_speed > roof.peak_speed), job.work.duration_ns[node] / 1e9
    if not slow.any():
        return
    # as large a share of the new peak as of the old one, but no faster than memory allows
    faster = np.fmax(seconds * roof.peak_speed / roof.tf32_speed, np.nan_to_num(roof.memory))
    factor = np.ones(len(job.work))
    factor[node[slow]] = np.minimum(faster / seconds, 1.0)[slow]
    has_attention = (_kinds(job.ops.take(node[slow])) == ATTENTION).any()
    gain = job.gain(factor)
    time = gain.in_its_unit(1e6 * seconds[slow].sum())
    values = {"count": int(slow.sum()), "time": time, "attention": has_attention or None, "steps": gain.steps}
    yield Finding(Found.NO_TENSOR_CORES, gain, "efficiency", values)


def _low_use(job: Job, node: Rows, element: Int64, roof: Roofline) -> Iterator[Finding]:
    """Finds shapes that reach much less of the peak than the best one of their kind, unless memory limits them."""
    op, shape = job.ops.take(node), job.shapes.take(node)
    groups = groupby(op.codes, shape.codes, element)
    kind = _kinds(op)[groups.first]
    least = np.bincount(groups.number, np.fmax(roof.compute, np.nan_to_num(roof.memory)))
    time = np.bincount(groups.number, job.work.duration_ns[node] / 1e9)
    use, best = least / time, np.zeros(len(groups))
    for rows in groupby(kind, element[groups.first]).rows():
        best[rows] = use[rows].max()
    for number, (products, _, advice) in enumerate(KINDS):
        low = np.flatnonzero((100 * use < LOW_PCT * best) & (kind == number))
        if not len(low):
            continue
        factor, nodes, facts = np.ones(len(job.work)), np.isin(groups.number, low), []
        factor[node[nodes]] = np.minimum(use / best, 1.0)[groups.number[nodes]]
        gain = job.gain(factor)
        for group in low[np.argsort(-time[low], kind="stable")][:NAMED].tolist():
            row = int(groups.first[group])
            # the shapes of tensors, each once, without arguments that have none
            tensors = "".join(f" {tensor}" for tensor in [*dict.fromkeys(TENSOR.findall(shape[row]))][:TENSORS_NAMED])
            pct, bits = 100 * use[group], 8 * int(element[row])
            of_group = gain.in_its_unit(1e6 * time[group])
            facts.append(Said.SHAPE.of(op=op[row], tensors=tensors, bits=bits, pct=pct, time=of_group))
        facts.append(Said.BEST_SHAPE.of(pct=min(100 * best[low].max(), 100)))
        values = {"products": products, "advice": advice}
        yield Finding(Found.LOW_USE, gain, "efficiency", values, facts)


def _kinds(ops: Categorical) -> Int64:
    """Returns the position of each op in KINDS, -1 for others."""
    return ops.numbers(lambda op: next((n for n, (_, ops, _) in enumerate(KINDS) if ops.match(op)), -1), without=-1)


def layout_changes(job: Job) -> Iterator[Finding]:
    """Finds whether the run would be shorter without the kernels that change the layout of tensors."""
    changes = job.names.where(lambda name: LAYOUT.search(name) is not None)
    if changes.any():
        gain = job.gain(np.where(changes, 0.0, 1.0))
        time = gain.in_its_unit(job.work.duration_ns[changes].sum() / 1000)
        values = {
            "count": int(changes.sum()),
            "time": time,
            "steps": gain.steps,
            "spec": shlex.quote(f"{LAYOUT.pattern}=0"),
        }
        yield Finding(Found.LAYOUT_CHANGES, gain, "kernel_breakdown", values)
