"""Finds what cannot be right in the traces of one process: ranks, device times, and launches. A wrong unit of device
times shows in bandwidths of copies, or in starts that span a power of a thousand times the launches. Only groups whose
ranks are listed count.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np

from ..schema.columns import ActivityRows, CallRows, time_text
from ..schema.linked import MEMORY_CATEGORIES, Activities, Calls, integer, integer_list, json_value, name_of
from ..schema.machine import AGREEING, MachineCalibration
from ..schema.reasons import Reason
from .clock_steps import clock_step, threads_apart
from .communication import RECORD, WAIT, CollectiveOps, from_host, groups_of_host, members
from .joining import launching_calls
from .machine import awaited_ends, machine_of
from .match import Match
from .overruns import Awaited, Overrun, overruns
from .readers import DeviceTrace, HostTrace, Role
from .stream_order import EarlyActivities, too_early
from .windows import trace_start

RECORDS_OWN_RANK = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier")
"""Collectives that record the group rank of the process itself; others record that of a root or peer."""
CUDA_CALL = re.compile(r"^cu(da)?[A-Z]")
KERNEL_LAUNCH = re.compile(r"^(cuda|cu|hip)\w*LaunchKernel")
MESSAGE = re.compile(r"send|recv|wait", re.IGNORECASE)
RECORD_DEVICE = "record with ProfilerActivity.CUDA, too"
RANKS_SHOWN = 8
NODES_SEARCHED, OPS_COMPARED = 1 << 12, 1 << 9
"""Nodes of a host trace that are searched for its device, and ops, evenly over the trace, whose shapes are compared."""
MOST_RESHAPED, MOST_OTHER_BATCHES = 0.1, 0.75
"""Share of ops with other shapes, up to which two traces can be of the same steps, or of other steps of one job."""
UNIT = 1_000
"""The ratio of a unit of time to the next smaller one."""
SHORTEST = 400
"""ns. No kernel lasts less, not even one that does nothing (measured: at least 770 on H100, 1,600 on MI300)."""
SECOND = 1_000_000_000
"""ns, as bandwidths are per second."""
MEANING = "which op launched what, and so what the graph's launches and tensors depend on, is not to be trusted"
FOR_DURATIONS = "if a script changed the durations, use the original file, else record again"
ADVICE = "use the trace as the profiler wrote it, or record again"


class Contradiction(msgspec.Struct, frozen=True):
    """Something in file `path` that cannot be right: what and where, its meaning for the result, and what to do."""

    path: str
    what: str
    meaning: str
    advice: str

    @property
    def sentence(self) -> str:
        """The whole message, in one line."""
        return f"{self.path}: {self.what}; {self.meaning}; {self.advice}"


def contradictions_in_traces(host: HostTrace | None, device: DeviceTrace) -> list[Contradiction]:
    """Returns the contradictions of traces that are not linked yet. O(n log n)."""
    call_row = launching_calls(device.activities, device.calls)
    activities, calls = replace(device.activities, call_row=call_row), device.calls
    awaited = awaited_ends(activities, calls, device.syncs)
    too_long = [*overruns(device, call_row, awaited)]
    machine, early = machine_of(activities, calls, awaited), too_early(device, call_row)
    return contradictions(host, device, call_row, machine, awaited, too_long, early)


def contradictions(
    host: HostTrace | None,
    device: DeviceTrace,
    call_row: CallRows,
    calibration: MachineCalibration,
    awaited: Awaited,
    too_long: Sequence[Overrun],
    early: EarlyActivities,
) -> list[Contradiction]:
    """Returns in what the traces cannot be right; of several signs of one cause only the plainest."""
    units, clock, order = None, None, None
    if (call_row >= 0).any():
        units = other_units(device, call_row, calibration) or without_lengths(device, calibration)
        units = units or calls_without_length(device)
        clock = clock_apart(device, calibration) or clock_steps(device, call_row, calibration, awaited)
        order = other_launches(device, call_row)
    rank = rank_beyond_world(device) or groups_without_rank(host, device)
    by_cause = (
        without_activities(host, device),
        rank or (other_rank(host, device) if host is not None else None),
        units or lasting_too_long(device, too_long) or clock or (None if order else out_of_turn(device, early)),
        order or against_numbers(device),
    )
    return [each for each in by_cause if each]


def unrecorded_devices(host: HostTrace | None, device: DeviceTrace) -> dict[int, str]:
    """Returns names of devices, by number, that tensors are on or the trace lists, but no activity was recorded on."""
    if len(device.activities.start) or host is None:
        return {} if len(device.activities.start) else device.device_names
    numbers = sorted(host.arguments.cuda_devices(NODES_SEARCHED))
    return {number: device.device_names.get(number, f"cuda:{number}") for number in numbers}


def without_activities(host: HostTrace | None, device: DeviceTrace) -> Contradiction | None:
    """Checks whether tensors of the host trace are on devices of which the device trace holds no call or activity."""
    if (
        host is None
        or device.ends_early
        or len(device.calls.start)
        or not (devices := unrecorded_devices(host, device))
    ):
        return None
    what = f"holds no activity of a device, though tensors of {host.path} are on {', '.join(devices.values())}"
    return Contradiction(device.path, what, "only the CPU's part of the run is known", RECORD_DEVICE)


def rank_beyond_world(device: DeviceTrace) -> Contradiction | None:
    """Checks whether the recorded rank is beyond the world size."""
    if device.rank is None or device.world_size is None or device.rank < device.world_size:
        return None
    return Contradiction(
        device.path,
        f"is of rank {device.rank} in a job of {device.world_size} ranks, the last of which is {device.world_size - 1}",
        "the graph is of a rank that no collective of the job waits for",
        "correct distributedInfo, or record with RANK and WORLD_SIZE of one job",
    )


def groups_without_rank(host: HostTrace | None, device: DeviceTrace) -> Contradiction | None:
    """Checks whether the process communicates in groups that it is not a member of."""
    if device.rank is None:
        return None
    # most collectives are recorded twice, with their op and with their activity
    of_activities, of_ops = (
        Counter((name_of(args.group_name), str(args.group_ranks)) for args in arguments if args.group_name is not None)
        for arguments in (device.communication[role].values() for role in (Role.ACTIVITY, Role.OP))
    )
    members_of: dict[str, set[int]] = defaultdict(set)
    for name, listed in _described(host, device):
        members_of[name].update(listed)
    names = Counter[str]()
    for (name, ranks), count in (of_activities | of_ops).items():
        members_of[name].update(members(ranks))
        names[name] += count
    foreign = sorted(name for name in names if members_of[name] and device.rank not in members_of[name])
    if not foreign:
        return None
    first = foreign[0]
    ranks_in_words = ", ".join(map(str, sorted(members_of[first])[:RANKS_SHOWN]))
    return Contradiction(
        device.path,
        f"rank {device.rank} communicates in {len(foreign)} of {len(names)} process groups that it is not in (the "
        f"first: group {first!r} of ranks {ranks_in_words}, {names[first]} times)",
        "other ranks' collectives cannot be recognised as the same ones",
        "correct distributedInfo or the groups' ranks, if it is not another rank's trace",
    )


def _described(host: HostTrace | None, device: DeviceTrace) -> list[tuple[str, tuple[int, ...]]]:
    """Returns the groups that either trace describes, with their listed ranks."""
    described = [*device.groups, *(groups_of_host(host.name, host.arguments)[0] if host is not None else ())]
    groups = ((name_of(entry.get("pg_name", "")), tuple(members(entry.get("ranks")))) for entry in described)
    return [(name, ranks) for name, ranks in groups if ranks]


def other_rank(host: HostTrace, device: DeviceTrace) -> Contradiction | None:
    """Checks whether the host trace, by its collectives or tensors, is of another rank than the device trace."""
    # traces of different processes are not checked: they were refused before, or allowed by the user
    if host.pid is not None and device.processes and host.pid not in device.processes:
        return None
    rank, devices = _rank_of_host(host, device), host.arguments.cuda_devices(NODES_SEARCHED)
    ran_on = set(np.unique(device.activities.device).tolist())
    is_cuda = any(CUDA_CALL.search(name) for name in device.calls.name.table)
    if rank is not None and device.rank is not None and rank != device.rank:
        what = f"is of rank {rank} by its collectives, {device.path} of rank {device.rank}"
    elif devices and ran_on and is_cuda and not devices & ran_on:
        of_host, of_device = (", ".join(map(str, sorted(numbers))) for numbers in (devices, ran_on))
        what = f"its tensors are on device {of_host}, while all that {device.path} holds ran on device {of_device}"
    else:
        return None
    meaning = "ops of one rank are joined to the times of another"
    return Contradiction(host.path, what, meaning, "pair each host trace with the device trace of its own rank")


def _rank_of_host(host: HostTrace, device: DeviceTrace) -> int | None:
    """Returns the rank of a host trace, None if unknown."""
    # it is known from a collective that records the process's own group rank, in a group whose ranks are listed
    members_of, arguments = dict(_described(host, device)), host.arguments
    for row in np.flatnonzero(host.name.equal(RECORD)).tolist():
        args = from_host(arguments.inputs(row), arguments.outputs(row), host.extra.get(row, {}))
        if args.group_rank < 0 or not RECORDS_OWN_RANK.search(args.name.lower()):
            continue
        if args.group_size == device.world_size and args.group_rank < args.group_size:
            return args.group_rank
        ranks = members_of.get(args.group, ())
        if len(ranks) == args.group_size and args.group_rank < len(ranks):
            return ranks[args.group_rank]
    return None


def other_shapes(host: HostTrace, device: DeviceTrace, match: Match) -> list[Contradiction]:
    """Returns whether ops that both traces hold have inputs of other shapes in each, by a sample of them."""
    inputs, shapes, count, differing = host.arguments.texts[0], device.ops.shapes, 0, list[str]()
    step = max(len(match.host_row) // OPS_COMPARED, 1)
    for node, row in zip(match.host_row[::step].tolist(), match.device_row[::step].tolist(), strict=True):
        sides = (json_value(inputs[node]) or {}).get("shapes"), json_value(shapes[row].encode())
        pairs = zip(*(side if isinstance(side, list) else [] for side in sides), strict=False)
        # versions write lists of tensors, which are no lists of numbers, in several ways
        known = [pair for pair in pairs if integer_list(pair[0]) and (pair[0] == pair[1] or integer_list(pair[1]))]
        count += bool(known)
        differing += [f"{device.ops.name[row]}, {left} and {right}" for left, right in known if left != right][:1]
    # other steps may have batches of other sizes
    if len(differing) <= (MOST_OTHER_BATCHES if match.of_other_steps else MOST_RESHAPED) * count:
        return []
    what = f"{len(differing)} of {count} ops that {device.path} holds, too, have inputs of other shapes there (the first: {differing[0]})"
    meaning = "shapes, and what follows from them, are those of another run"
    return [Contradiction(host.path, what, meaning, "give the two traces of one run")]


def without_length(activities: Activities, calibration: MachineCalibration) -> ActivityRows:
    """Returns the activities that last no time, or less than a kernel can, where times are more exact than that."""
    is_exact_kernel = activities.category.equal("kernel") & (calibration.resolution_ns == 1)
    none = np.flatnonzero(activities.end - activities.start < np.where(is_exact_kernel, SHORTEST, 1))
    is_rounded = calibration.resolution_ns > 1 and 2 * len(none) <= len(activities.end)
    return ActivityRows(none[:0] if len(none) < AGREEING or is_rounded else none)


def without_lengths(device: DeviceTrace, calibration: MachineCalibration) -> Contradiction | None:
    """Checks whether activities last no time."""
    rows, none = device.activities, without_length(device.activities, calibration)
    if not len(none):
        return None
    since, until = ((time - trace_start(device)) / 1000 for time in (rows.start[none].min(), rows.start[none].max()))
    longest = f"{most} ns or less" if (most := (rows.end - rows.start)[none].max()) > 0 else "0 ns"
    what = f"{len(none)} of {len(rows)} activities last {longest} (from {since:.3f} to {until:.3f} µs of the trace)"
    meaning = "their durations were not recorded, so that busy time is too short and idle time too long"
    return Contradiction(device.path, what, meaning, "record again, without other profilers of the device")


def zero_length_calls(calls: Calls) -> int:
    """Returns the number of calls if none of them lasts any time."""
    return 0 if len(calls.start) < AGREEING or (calls.end > calls.start).any() else len(calls.start)


def calls_without_length(device: DeviceTrace) -> Contradiction | None:
    """Checks whether no call lasts any time."""
    if not (count := zero_length_calls(device.calls)):
        return None
    meaning = "how long launches take, and how long the host waits for devices, was not recorded"
    return Contradiction(device.path, f"none of its {count:,} calls lasts any time", meaning, ADVICE)


def other_units(device: DeviceTrace, call_row: CallRows, calibration: MachineCalibration) -> Contradiction | None:
    """Checks whether device times are a power of a thousand longer or shorter than other times of the trace."""
    rows, copies = device.activities, 0
    length = rows.end - rows.start
    measured = np.flatnonzero((rows.size > 0) & (rows.bandwidth > 0) & (length > 0))
    if len(measured):
        # by how much most copies last longer than by their bytes and bandwidth
        longer = length[measured] * (rows.bandwidth[measured] / rows.size[measured])
        copies = round(math.log(float(np.median(longer)) / SECOND, UNIT))
    starts = _unit_of_starts(device, call_row, calibration)
    power = copies or starts
    if not power:
        return None
    factor = f"{UNIT ** abs(power):,} times too {'long' if power > 0 else 'short'}"
    evidence = {"the bytes and bandwidth recorded of copies": copies, "the order of launches and waits": starts}
    what = f"device times are {factor}, by {' and by '.join(words for words, unit in evidence.items() if unit)}"
    meaning = "durations, gaps and what depends on them are wrong by as much"
    return Contradiction(device.path, what, meaning, "give ts and dur in µs, as Kineto writes them, or record again")


def _unit_of_starts(device: DeviceTrace, call_row: CallRows, calibration: MachineCalibration) -> int:
    """Returns the power of UNIT by which the starts of activities span more time than their launches."""
    # it is 0 where the order of launches and waits allows that
    rows = np.flatnonzero(call_row >= 0)
    start, launch = device.activities.start[rows], device.calls.start[call_row[rows]]
    if len(rows) <= AGREEING:
        return 0
    starts, launches = (int(times.max() - times.min()) for times in (start, launch))
    if not starts or not launches:
        return 0
    power = round(math.log(starts / launches, UNIT))
    is_early = 2 * int((start < launch).sum()) > len(rows)
    return power if (power < 0 and is_early) or (power > 0 and calibration.clock_error_ns > launches) else 0


def clock_apart(device: DeviceTrace, calibration: MachineCalibration) -> Contradiction | None:
    """Checks whether the clocks are further apart than the recording is long, by the order of launches and waits."""
    # activities that only start long after their launches may have waited for earlier work
    of_host = [table for table in (device.ops, device.calls) if len(table.start)]
    if not calibration.clock_offset_ns or not of_host:
        return None
    recording_ns = max(int(table.end.max()) for table in of_host) - min(int(table.start.min()) for table in of_host)
    if abs(calibration.clock_offset_ns) <= recording_ns:
        return None
    way = "ahead of" if calibration.clock_offset_ns < 0 else "behind"
    offset, recording = (time_text(ns / 1000) for ns in (abs(calibration.clock_offset_ns), recording_ns))
    what = f"the device's clock is {offset} {way} the host's, in a recording of {recording}"
    meaning = "device times are moved by as much, so that launch latencies are mere estimates"
    return Contradiction(device.path, what, meaning, "record host and device with one profiler, on one machine")


def clock_steps(
    device: DeviceTrace, call_row: CallRows, clock: MachineCalibration, awaited: Awaited
) -> Contradiction | None:
    """Checks whether the device's clock goes on or back at once, somewhere in the trace."""
    activities = replace(device.activities, call_row=call_row)
    by_as_much = "latencies, idle time and what waited for what are wrong by as much"
    if apart := threads_apart(activities, device.calls):
        return Contradiction(device.path, apart, by_as_much, "record again")
    if not (step := clock_step(activities, device.calls, awaited, clock, trace_start(device))):
        return None
    what, advice = f"the device's clock {step}", "link the window before it or after it, or record again"
    return Contradiction(device.path, what, f"before it or after it, {by_as_much}", advice)


def lasting_too_long(device: DeviceTrace, too_long: Sequence[Overrun]) -> Contradiction | None:
    """Checks whether ops, calls or activities last into what follows on their thread or stream, or beyond a wait."""
    if not too_long:
        return None
    what = f"{' and '.join(words for _, _, words in too_long)} last into what came after them, though a thread or stream does one at a time"
    meaning = "durations, or the streams they are on, are wrong, and so are busy times, gaps and waits"
    return Contradiction(device.path, what, meaning, FOR_DURATIONS)


def out_of_turn(device: DeviceTrace, early: EarlyActivities) -> Contradiction | None:
    """Checks whether activities begin before their stream can run them."""
    if not len(early.row):
        return None
    rows, first = device.activities, early.row[np.argmin(device.activities.start[early.row])]
    name, since = rows.name[first][:40].rstrip("("), (rows.start[first] - trace_start(device)) / 1000
    what = f"{len(early.row):,} of {len(rows):,} activities begin before their stream can run them"
    which = f"{early.words} (the first: {name}, at {since:.3f} µs of the trace)"
    meaning = "times, streams or correlations are wrong, and so are busy times, gaps and waits"
    return Contradiction(device.path, f"{what}: {which}", meaning, ADVICE)


def other_launches(device: DeviceTrace, call_row: CallRows) -> Contradiction | None:
    """Checks whether most activities and their calls name different ops, or most copies were launched as kernels."""
    activities, calls = device.activities, device.calls
    if others := device.skipped[Reason.LINKS_OF_OTHER_KERNELS]:
        what = f"{others} activities are linked to calls that name another kernel"
        return Contradiction(device.path, what, MEANING, "export the trace again, or record again")
    rows = np.flatnonzero(call_row >= 0)
    of_activity, of_call = activities.external_id[rows], calls.external_id[call_row[rows]]
    is_copy = activities.category.equal(*MEMORY_CATEGORIES)[rows]
    by_kernel_launch = calls.name.where(lambda name: bool(KERNEL_LAUNCH.search(name)))[call_row[rows]]
    other_id = "activities have an External id that is not that of the call with their correlation"
    for applies, is_wrong, which in (
        ((of_activity > 0) & (of_call > 0), of_activity != of_call, other_id),
        (is_copy, by_kernel_launch, "copies and sets have the correlation of a kernel launch"),
    ):
        count, wrong = int(applies.sum()), np.flatnonzero(applies & is_wrong)
        if 2 * len(wrong) > count:
            first = rows[wrong[0]]
            example = f"correlation {activities.correlation[first]}, {activities.name[first][:40]}"
            what = f"{len(wrong)} of {count} {which} (the first: {example})"
            return Contradiction(device.path, what, MEANING, ADVICE)
    return None


def other_bytes(path: str, collectives: CollectiveOps) -> list[Contradiction]:
    """Returns whether the recorded bytes of collectives are not those of their tensors."""
    if not (found := collectives.contradicted):
        return []
    op, (said, held) = min(found.items())
    count = sum(record.name != WAIT for record in collectives.recorded)
    example = f"{collectives.of(op).name}, {said:,} bytes for tensors of {held:,}"
    what = f"{len(found)} of {count} communications name other bytes than their tensors have (the first: {example})"
    return [Contradiction(path, what, "sizes and speeds are those of the tensors", ADVICE)]


def unnamed_kernels(path: str, collectives: CollectiveOps) -> list[str]:
    """Returns how many kernels communicate though their names do not say so."""
    said = "kernels count as communication by their arguments or by what launched them, as their names do not tell it"
    return [f"{path}: {collectives.unnamed} {said}"] if collectives.unnamed else []


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
