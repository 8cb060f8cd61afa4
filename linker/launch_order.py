"""Finds activities that the calls with their correlations cannot have launched, and collectives in reverse order."""

import re
from collections import defaultdict

import numpy as np

from ..schema.columns import CallRows
from ..schema.linked import MEMORY_CATEGORIES, integer, name_of, stream_sorted
from ..schema.machine import AGREEING
from .contradiction import Contradiction
from .readers import DeviceTrace, Role

KERNEL_LAUNCH = re.compile(r"^(cuda|cu|hip)\w*LaunchKernel")
MESSAGE = re.compile(r"send|recv|wait", re.IGNORECASE)
MEANING = "which op launched what, and so what the graph's launches and tensors depend on, is not to be trusted"
ADVICE = "use the trace as the profiler wrote it, or record again"


def other_launches(device: DeviceTrace, call_row: CallRows) -> Contradiction | None:
    """Checks whether most activities and their calls name different ops, or most copies were launched as kernels."""
    activities, calls = device.activities, device.calls
    rows = np.flatnonzero(call_row >= 0)
    of_activity, of_call = activities.external_id[rows], calls.external_id[call_row[rows]]
    has_ids = (of_activity > 0) & (of_call > 0)
    is_copy = activities.category.equal(*MEMORY_CATEGORIES)[rows]
    by_kernel_launch = calls.name.where(lambda name: bool(KERNEL_LAUNCH.search(name)))[call_row[rows]]
    for applies, is_wrong, which in (
        (
            has_ids,
            of_activity != of_call,
            "activities have an External id that is not that of the call with their correlation",
        ),
        (is_copy, by_kernel_launch, "copies and sets have the correlation of a kernel launch"),
    ):
        count, wrong = int(applies.sum()), np.flatnonzero(applies & is_wrong)
        if 2 * len(wrong) > count:
            first = rows[wrong[0]]
            example = f"correlation {activities.correlation[first]}, {activities.name[first][:40]}"
            what = f"{len(wrong)} of {count} {which} (the first: {example})"
            return Contradiction(device.path, what, MEANING, ADVICE)
    return None


def other_order(device: DeviceTrace, call_row: CallRows) -> Contradiction | None:
    """Checks whether the activities of a stream mostly started against the order of their launches."""
    activities = device.activities
    order = stream_sorted(activities)
    order = order[(call_row[order] >= 0) & (activities.stream[order] >= 0)]
    before, after = order[:-1], order[1:]
    same = (activities.device[before] == activities.device[after]) & (
        activities.stream[before] == activities.stream[after]
    )
    before, after = before[same], after[same]
    launched = device.calls.start[call_row]
    numbers = np.unique(np.stack((activities.device[after], activities.stream[after])), axis=1, return_inverse=True)
    streams, stream = numbers[0], numbers[1].reshape(-1)
    against, along = (
        np.bincount(stream[pairs], minlength=streams.shape[1])
        for pairs in (launched[after] < launched[before], launched[after] > launched[before])
    )
    wrong = np.flatnonzero((against > along) & (against >= AGREEING))
    if not len(wrong):
        return None
    worst = wrong[0]
    first = after[np.argmax((stream == worst) & (launched[after] < launched[before]))]
    what = (
        f"activities of {len(wrong)} of {streams.shape[1]} streams start against the order of their launches (the "
        f"first: {against[worst]} times on stream {streams[1, worst]}, correlation {activities.correlation[first]}, "
        f"{activities.name[first][:40]})"
    )
    return Contradiction(device.path, what, MEANING, ADVICE)


def against_numbers(device: DeviceTrace) -> Contradiction | None:
    """Checks whether the sequence numbers of a group's collectives mostly go down in time."""
    for role, rows in ((Role.ACTIVITY, device.activities), (Role.OP, device.ops)):
        numbers: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for row, args in device.communication[role].items():
            number = integer(args.comm_sequence, -1)
            if number >= 0 and args.collective and not MESSAGE.search(str(args.collective)):
                numbers[name_of(args.group_name)].append((int(rows.start[row]), number))
        for group, timed in sorted(numbers.items()):
            steps = np.diff([number for _, number in sorted(timed)])
            against = int((steps < 0).sum())
            if against >= AGREEING and against > (steps > 0).sum():
                what = (
                    f"the sequence numbers of {len(timed)} collectives of group {group!r} go down in time, {against} "
                    f"times (from {max(number for _, number in timed)} to {min(number for _, number in timed)})"
                )
                meaning = "ranks would wait for each other in different collectives"
                return Contradiction(device.path, what, meaning, ADVICE)
    return None
