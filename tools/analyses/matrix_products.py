"""Matrix products that use little of what their device can do."""

import re
from typing import NamedTuple

import numpy as np

from ...schema.columns import ABSENT, Bool, Categorical, Rows, group_ids, rows_of_each, time_text
from ...schema.graph import DEVICE_NAME
from ..replay import Kernels, NodeClass, device_peaks, least_time, roofs
from .finding import Finding
from .findings_job import Job
from .table import Floats


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
TENSOR = re.compile(r"\[\d+(?:,\d+)*\]")
FLOAT32, NAMED, TENSORS_NAMED = 4, 3, 3
LOW_PCT = 60.0
"""A product that reaches more than this share of the best one of its format can hardly be made faster by its shape."""


class _Products(NamedTuple):
    """The matrix products of the job: their nodes, the least time (s) for their operations and for their bytes, the
    peak FLOP/s of their format, and that of tf32 on their device, 0 where it has none.
    """

    node: Rows
    compute: Floats
    memory: Floats
    peak: Floats
    tf32: Floats


def matrix_products(job: Job) -> list[Finding]:
    """Returns findings on products in fp32 that could use the matrix engines, and on shapes that use little of them."""
    products = _products(job)
    if not len(products.node):
        return []
    return [*_without_engines(job, products), *_low_use(job, products)]


def _products(job: Job) -> _Products:
    work, names = job.work, job.texts(lambda rank: rank.graph.name)
    is_product = job.texts(lambda rank: rank.op).where(lambda op: _kind(op) >= 0)
    columns = [job.integers(name, ABSENT) for name in ("num_ops", "tensor_size", "element_size")]
    columns.append(work.duration_ns)
    is_product &= (work.node_class == NodeClass.COMPUTATION) & (work.duration_ns > 0) & (columns[0] > 0)
    node = np.flatnonzero(is_product)
    device, tf32 = job.integers("device", -1), np.zeros(len(node))
    compute, memory, peak = np.full((3, len(node)), np.nan)
    for position, rank in enumerate(job.ranks):
        chosen = np.flatnonzero(work.ranks_of(node) == position)
        rows = node[chosen]
        recorded = rank.graph.metadata
        peaks = device_peaks(
            {number: str(recorded.get(f"{DEVICE_NAME}{number}", "")) for number in np.unique(device[rows]).tolist()}
        )
        kernels = Kernels(names.take(rows), device[rows], *(column[rows] for column in columns))
        compute[chosen], memory[chosen] = least_time(kernels, peaks)
        peak[chosen] = roofs(kernels, peaks)[0]
        for number, peak_of_device in peaks.items():
            tf32[chosen[device[rows] == number]] = peak_of_device.tf32 * 1e12
    has_peak = np.isfinite(compute)
    return _Products(*(column[has_peak] for column in (node, compute, memory, peak, tf32)))


def _without_engines(job: Job, products: _Products) -> list[Finding]:
    """Returns a finding on fp32 products that run on the ordinary units of a device with tf32."""
    element = job.integers("element_size", ABSENT)[products.node]
    slow = (element == FLOAT32) & (products.tf32 > products.peak)
    if not slow.any():
        return []
    seconds = job.work.duration_ns[products.node] / 1e9
    # as large a share of the new peak as of the old one, but no faster than memory allows
    faster = np.fmax(
        seconds * products.peak / np.where(slow, products.tf32, products.peak), np.nan_to_num(products.memory)
    )
    factor = np.ones(len(job.work))
    factor[products.node[slow]] = np.minimum(faster / seconds, 1.0)[slow]
    ops = job.texts(lambda rank: rank.op).take(products.node[slow])
    attention = "; only bf16 speeds up attention" if ops.where(lambda op: _kind(op) == ATTENTION).any() else ""
    return [
        Finding(
            "Matrix products in fp32 do not use the tensor cores",
            job.gain_of_scaling(factor),
            f"{slow.sum():,} kernel{'s take' if slow.sum() > 1 else ' takes'} {time_text(1e6 * seconds[slow].sum())}",
            f"Allow TF32: torch.set_float32_matmul_precision('high'), or use bf16 (torch.autocast){attention}",
            "efficiency",
            "The tensor cores (TF32 or bf16)",
        )
    ]


def _low_use(job: Job, products: _Products) -> list[Finding]:
    """Returns a finding for each kind of products, on shapes that reach much less of the peak than the best one of the
    kind.

    Each would be as fast as that one at its own operations, unless memory limits it.
    """
    op, shape = job.texts(lambda rank: rank.op), job.texts(lambda rank: rank.shape)
    element = job.integers("element_size", ABSENT)[products.node]
    kind = np.array([_kind(name) for name in op.table] + [-1])[op.codes[products.node]]
    seconds = job.work.duration_ns[products.node] / 1e9
    group = group_ids(op.codes[products.node].astype(np.int64), shape.codes[products.node].astype(np.int64), element)
    time, least = (
        np.bincount(group, column) for column in (seconds, np.fmax(products.compute, np.nan_to_num(products.memory)))
    )
    use, best = least / time, np.zeros(len(time))
    for rows in rows_of_each(group_ids(kind, element)).values():
        best[group[rows]] = use[group[rows]].max()
    is_low: Bool = 100 * use < LOW_PCT * best
    findings = []
    for number, words in enumerate(KINDS):
        low = is_low[group] & (kind == number)
        if not low.any():
            continue
        factor = np.ones(len(job.work))
        factor[products.node[low]] = np.minimum(use / best, 1.0)[group[low]]
        groups = np.unique(group[low])
        longest = groups[np.argsort(-time[groups], kind="stable")][:NAMED].tolist()
        example = {shape_group: int(np.flatnonzero(group == shape_group)[0]) for shape_group in longest}
        parts = [
            f"{op[int(products.node[row])]}{_shapes(shape, int(products.node[row]))} with {8 * element[row]}-bit numbers at "
            f"{100 * use[shape_group]:.0f} % of the peak, {time_text(1e6 * time[shape_group])}"
            for shape_group, row in example.items()
        ]
        findings.append(
            Finding(
                f"Some shapes of {words.words} use little of the device",
                job.gain_of_scaling(factor),
                f"{'; '.join(parts)}; the best shape reaches {min(100 * best[groups].max(), 100):.0f} %",
                words.advice,
                "efficiency",
                "Shapes that fit the device",
            )
        )
    return findings


def _kind(op: str) -> int:
    """Returns the position of an op in KINDS, -1 for others."""
    return next((number for number, kind in enumerate(KINDS) if kind.ops.match(op)), -1)


def _shapes(shape: Categorical, node: int) -> str:
    """Returns the shapes of the tensors of a node's op, each once, without arguments that have none."""
    tensors = dict.fromkeys(TENSOR.findall(shape[node])) if shape.codes[node] >= 0 else {}
    return "".join(f" {tensor}" for tensor in [*tensors][:TENSORS_NAMED])
