"""Finds ops whose calls were lost together with what these launched, as dropped buffers lose both. Such an op launches
nothing, though nearly all ops like it do, or its tensors or ranks are on devices.
"""

import re

import numpy as np

from ..schema.columns import Bool, DeviceOpRows, Int64, Keys, RowMap, asof_forward, group_ids, isin, nearest
from ..schema.linked import SyncCall, integer, sync_calls
from ..schema.machine import AGREEING, LAUNCHES
from .communication import RECORD, is_communication_kernel
from .match import SMALLEST_AGREEMENT, Match
from .readers import DeviceTrace, HostTrace, Role

FEW, USUALLY = 4, 2 / 3
"""If this share of so many ops of one name and shapes launch, within, after and before ops of the same names, all do.
In 55 sound traces all or none do, but up to 0.6 without regard to what is before and after: the others run on the CPU.
"""
ALWAYS = re.compile(
    r"aten::(copy_|fill_|(add|b|badd)?mm|(add|sub|mul|div|pow|sum|mean|cat|gelu|sqrt|exp|clamp_min)_?|native_layer_norm"
    r"|(threshold|gelu|tanh|convolution|native_layer_norm)_backward|addc(mul|div)_|cudnn_convolution|_local_scalar_dense)"
)
"""Ops that always launch something if all their tensors have elements and one is on a device."""
ON_DEVICE, EMPTY = re.compile(rb',\s*\d+,\s*"cuda:'), re.compile(rb',\s*0,\s*\d+,\s*"(cuda|cpu)')
TRACING, ITEM, NCCL, COPY = "dynamo_timed", "aten::_local_scalar_dense", "nccl:", re.compile(r"^(cuda|hip)MemcpyAsync")


def ops_without_calls(
    host: HostTrace | None, device: DeviceTrace, match: Match | None, parent: Int64, call_op: Int64, launching: Bool
) -> DeviceOpRows:
    """Returns the ops that lack calls, in the order of time; `parent` and `call_op` are the ops around, -1 for none."""
    ops, calls = device.ops, device.calls
    if not launching.any() or not len(ops.start):
        return DeviceOpRows(np.empty(0, np.int64))
    copies = calls.name.where(lambda name: COPY.search(name) is not None)
    launching, waits = launching | copies, sync_calls(calls.name) != SyncCall.NONE
    launches, has_copy, has_wait = (isin(np.arange(len(ops.start)), call_op[of]) for of in (launching, copies, waits))
    order = np.lexsort((calls.start, calls.thread))
    order = order[launching[order]]
    launch = asof_forward(Keys(calls.thread[order], calls.start[order]), Keys(ops.thread, ops.start))
    is_silent = ~launches & ((launch < 0) | (calls.start[order][launch] >= ops.end))
    lacks = _alike(device, parent, launches)
    lacks |= ops.name.where(lambda name: name.startswith(NCCL)) & isin(parent, unlaunched_collectives(device))
    lacks = (lacks & is_silent) | (ops.name.equal(ITEM) & has_copy & ~has_wait)
    if host is not None and match is not None and not match.of_other_steps and match.agreement >= SMALLEST_AGREEMENT:
        is_silent &= ops.name.where(lambda name: ALWAYS.fullmatch(name) is not None)
        rows = np.flatnonzero(is_silent[match.device_row])
        texts = host.inputs.at(match.host_row[rows])
        is_full = [ON_DEVICE.search(text) is not None and not EMPTY.search(text) for text in texts]
        lacks[match.device_row[rows[is_full]]] = True
    lacks &= (ops.start >= calls.start.min()) & (ops.end <= calls.end.max()) & (ops.end > ops.start)
    lacks &= nearest(ops.name.where(lambda name: TRACING in name), parent) < 0
    # after the last call what ops of the same name did must do
    is_after, name, names = ops.start >= calls.end.max(), ops.name.codes, len(ops.name.table)
    launched, all_before = np.bincount(name[launches], minlength=names), np.bincount(name[~is_after], minlength=names)
    is_after &= ((launched > 0) & (launched >= LAUNCHES * all_before))[name]
    rows = np.flatnonzero(lacks | (is_after if is_after.sum() >= AGREEING else False))
    return DeviceOpRows(rows[np.argsort(ops.start[rows], kind="stable")])


def unlaunched_collectives(device: DeviceTrace) -> list[int]:
    """Returns the records of collectives of several ranks, in a trace without any kernel that communicates."""
    if is_communication_kernel(device.activities.name).any():
        return []
    records = device.communication[Role.OP].items()
    return [row for row, args in records if integer(args.group_size, -1) > 1 and device.ops.name[row] == RECORD]


def _alike(device: DeviceTrace, parent: Int64, launches: Bool) -> Bool:
    """Returns which ops are of a kind of which most launch, but not all."""
    ops, name = device.ops, np.append(device.ops.name.codes, -1)
    order = np.lexsort((-ops.end, ops.start, ops.thread))
    is_next = ops.thread[order[1:]] == ops.thread[order[:-1]]
    before, after = np.full((2, len(order)), -1)
    before[order[1:]], after[order[:-1]] = np.where(is_next, (order[:-1], order[1:]), -1)
    around = (parent, RowMap(parent)[parent], before, after)
    codes = (ops.name.codes, ops.shapes.codes, *(name[row] for row in around))
    kind = group_ids(*(code.astype(np.int64) for code in codes))
    count = np.bincount(kind)
    share = np.bincount(kind, launches) / count
    is_mixed = ((count >= FEW) & (share >= USUALLY) & (share < 1))[kind]
    # annotations may hold anything, and without shapes ops may have no elements
    is_comparable = ~ops.annotation | ops.name.where(lambda name: name.startswith(NCCL))
    return is_mixed & is_comparable & ~ops.shapes.equal("", "[]")
