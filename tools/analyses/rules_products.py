"""Rules on matrix products, convolutions and attention that use little of what their device can do."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Categorical, Floats, Int64, Rows, groupby, time_text
from ..replay import Kernels, NodeClass, least_time, recorded_peaks, roofs
from .job import Finding, Job, counted

TENSOR = re.compile(r"\[\d+(?:,\d+)*\]")
FLOAT32, NAMED, TENSORS_NAMED = 4, 3, 3
LOW_PCT = 60.0
"""A product that reaches more than this share of the best one of its format can hardly be made faster by its shape."""


class _Kind(NamedTuple):
    """Ops that multiply matrices, and what makes the shapes that use little of a device faster."""

    words: str
    ops: re.Pattern[str]
    advice: str


KINDS = (
    _Kind(
        "matrix products",
        re.compile(r"aten::_?(addmm|mm|bmm|baddbmm|linear|matmul|scaled_mm)"),
        "Make dimensions multiples of 8 (fp16, bf16) or 16, join small products into batched or larger ones, use a larger batch",
    ),
    _Kind(
        "convolutions",
        re.compile(r"aten::_?(conv|cudnn_conv|miopen_conv)"),
        "Use memory_format=torch.channels_last, channels that are multiples of 8, torch.backends.cudnn.benchmark = True, or a "
        "larger batch",
    ),
    _Kind(
        "attention",
        re.compile(r"aten::_?.*attention"),
        "Compare the kernels that torch.nn.attention.sdpa_kernel chooses from, use fp16 or bf16, heads of 64 or 128, or a larger "
        "batch",
    ),
)
ATTENTION = len(KINDS) - 1


class _Products(NamedTuple):
    """The matrix products of the job: their nodes, the least time (s) for their operations and for their bytes, how
    long they took, the peak FLOP/s of their format, that of tf32 on their device, 0 where it has none, and the bytes of
    their numbers.
    """

    node: Rows
    compute: Floats
    memory: Floats
    seconds: Floats
    peak: Floats
    tf32: Floats
    element: Int64


def matrix_products(job: Job) -> Iterator[Finding]:
    """Finds products in fp32 that could use the matrix engines, and shapes that use little of them."""
    work, device = job.work, job.integers("device", -1)
    columns = [job.integers(name, ABSENT) for name in ("num_ops", "tensor_size", "element_size")]
    is_product = (_kinds(job.ops) >= 0) & (work.node_class == NodeClass.COMPUTATION)
    node = np.flatnonzero(is_product & (work.duration_ns > 0) & (columns[0] > 0))
    compute, memory, peak, tf32 = np.full((4, len(node)), np.nan)
    for position, rank in enumerate(job.ranks):
        chosen = np.flatnonzero(job.rank_of_node[node] == position)
        rows, peaks = node[chosen], recorded_peaks(rank.graph)
        kernels = Kernels(
            job.names.take(rows), device[rows], *(column[rows] for column in (*columns, work.duration_ns))
        )
        compute[chosen], memory[chosen] = least_time(kernels, peaks)
        peak[chosen] = roofs(kernels, peaks)[0]
        tf32[chosen] = [1e12 * peaks[number].tf32 if number in peaks else 0.0 for number in device[rows].tolist()]
    of_products = node, compute, memory, work.duration_ns[node] / 1e9, peak, tf32, columns[-1][node]
    products = _Products(*(column[np.isfinite(compute)] for column in of_products))
    if len(products.node):
        yield from _without_engines(job, products)
        yield from _low_use(job, products)


def _without_engines(job: Job, products: _Products) -> Iterator[Finding]:
    """Finds fp32 products that run on the ordinary units of a device with tf32."""
    slow, seconds = (products.element == FLOAT32) & (products.tf32 > products.peak), products.seconds
    if not slow.any():
        return
    # as large a share of the new peak as of the old one, but no faster than memory allows
    new_peak = np.where(slow, products.tf32, products.peak)
    faster = np.fmax(seconds * products.peak / new_peak, np.nan_to_num(products.memory))
    factor = np.ones(len(job.work))
    factor[products.node[slow]] = np.minimum(faster / seconds, 1.0)[slow]
    attention = (_kinds(job.ops.take(products.node[slow])) == ATTENTION).any()
    takes = f"take{'s' if slow.sum() == 1 else ''} {time_text(1e6 * seconds[slow].sum())}"
    yield Finding(
        "Matrix products in fp32 do not use the tensor cores",
        job.gain(factor),
        [f"{counted(slow.sum(), 'kernel')} {takes}"],
        "Allow TF32: torch.set_float32_matmul_precision('high'), or use bf16 (torch.autocast)"
        + ("; only bf16 speeds up attention" if attention else ""),
        "efficiency",
        "The tensor cores (TF32 or bf16)",
    )


def _low_use(job: Job, products: _Products) -> Iterator[Finding]:
    """Finds for each kind of products the shapes that reach much less of the peak than the best one of the kind.

    Each would be as fast as that one at its own operations, unless memory limits it.
    """
    op, shape, element = job.ops.take(products.node), job.shapes.take(products.node), products.element
    kind, groups = _kinds(op), groupby(op.codes, shape.codes, element)
    least = np.bincount(groups.number, np.fmax(products.compute, np.nan_to_num(products.memory)))
    time = np.bincount(groups.number, products.seconds)
    use, best = least / time, np.zeros(len(groups))
    for rows in groupby(kind[groups.first], element[groups.first]).rows():
        best[rows] = use[rows].max()
    is_low: Bool = 100 * use < LOW_PCT * best
    for number, words in enumerate(KINDS):
        low = np.flatnonzero(is_low & (kind[groups.first] == number))
        if not len(low):
            continue
        factor, nodes, facts = np.ones(len(job.work)), np.isin(groups.number, low), []
        factor[products.node[nodes]] = np.minimum(use / best, 1.0)[groups.number[nodes]]
        for group in low[np.argsort(-time[low], kind="stable")][:NAMED].tolist():
            row = int(groups.first[group])
            # the shapes of tensors, each once, without arguments that have none
            tensors = "".join(f" {tensor}" for tensor in [*dict.fromkeys(TENSOR.findall(shape[row]))][:TENSORS_NAMED])
            share = f"{100 * use[group]:.0f} % of the peak, {time_text(1e6 * time[group])}"
            facts.append(f"{op[row]}{tensors} with {8 * element[row]}-bit numbers at {share}")
        yield Finding(
            f"Some shapes of {words.words} use little of the device",
            job.gain(factor),
            [*facts, f"the best shape reaches {min(100 * best[low].max(), 100):.0f} %"],
            words.advice,
            "efficiency",
            "Shapes that fit the device",
        )


def _kinds(ops: Categorical) -> Int64:
    """Returns the position of each op in KINDS, -1 for others."""
    return ops.numbers(lambda op: next((n for n, kind in enumerate(KINDS) if kind.ops.match(op)), -1), without=-1)
