"""Inspects the files of one process: versions, counts, longest kernels, and all that a graph would lack, by reason."""

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...converter.ranks import Calls, recorded_calls
from ...linker import readers
from ...linker.communication import RECORD, ProcessGroups, is_communication_kernel
from ...linker.contradictions import Contradiction, contradictions_in_traces, other_bytes, other_shapes, unnamed_kernels
from ...linker.joining import launching_calls
from ...linker.link import link_communication, noted, read_traces
from ...linker.lost_records import LostRecords, is_graph_launch, lost_records
from ...linker.machine import rounded
from ...linker.match import SMALLEST_AGREEMENT, are_ops, match_ops
from ...linker.odd_ops import odd_ops
from ...linker.readers import DeviceTrace, HostTrace, Role, one_rank, read_device_trace, read_host_trace
from ...linker.steps import uneven_steps
from ...linker.windows import host_period
from ...schema import linked
from ...schema.columns import Bool, Categorical
from ...schema.errors import DataError
from ...schema.json_repair import opening_of
from ...schema.linked import MEMORY_CATEGORIES, STEP_MARK, are_step_marks, integer, name_of, waits_without_record
from ...schema.reasons import Counts, Reason
from .rank_comms import Issued, RankComms, issued_by, summarise_rank

HEAD = 1 << 18
VERSION = re.compile(
    r"^(written_by|(torch|pytorch|cuda|cupti|nvidia|nccl|rccl|hip|rocm|roctracer|rocprofiler)\w*[ _-]version)$",
    re.IGNORECASE,
)
UNKNOWN = ("", "N/A", "None")
PYTORCH = {
    "1.0.1": "1.13 to 2.1", "1.0.2": "2.2 or 2.3", "1.0.3": "2.4 in development", "1.0.4": "2.4 in development",
    "1.1.0": "2.4", "1.1.1": "2.5 or newer",
}  # fmt: skip
ON_HOSTS = ("gloo:", "mpi:", "ucc:")
"""How names of collectives begin that hosts do, not devices."""
HOST_COLLECTIVE = re.compile(rf"^({RECORD}|gloo:.*)$")
KERNELS_SHOWN = 10
VENDORS = ("cuda", "hip")


def device_versions(path: str) -> dict[str, str]:
    """Versions and devices by name, as far as the beginning of a device trace tells them."""
    try:
        with readers.open_trace(path) as stream:
            head = stream.read(HEAD)
        events = opening_of(head, "traceEvents", ended=False)
        # the keys before the events; none where the file begins otherwise
        top = json.loads(head[:events].decode("utf-8", "replace") + "]}", strict=False) if events else {}
    except (DataError, OSError, EOFError, zlib.error, ValueError, RecursionError):
        return {}
    if not isinstance(top, dict):
        return {}
    versions = {name_of(name).replace("_", " "): value for name, value in _versions(top) if value not in UNKNOWN}
    devices = top.get("deviceProperties")
    listed = devices if isinstance(devices, list) else []
    names = {name_of(device["name"]) for device in listed if isinstance(device, dict) and device.get("name")}
    return versions | ({"devices": ", ".join(sorted(names))} if names else {})


def _versions(top: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the keys of versions with their values; CUDA writes 12040 for 12.4, HIP 60443483 for 6.4.43483."""
    for name, value in top.items():
        if isinstance(value, dict):
            yield from _versions(value)
        elif VERSION.search(name):
            number = integer(value, 0) if not isinstance(value, str) or value.isdecimal() else 0
            if name.startswith("hip") and number >= 10_000_000:
                yield name, f"{number // 10_000_000}.{number // 100_000 % 100}.{number % 100_000}"
            elif name.startswith("cuda") and number >= 1000:
                yield name, f"{number // 1000}.{number % 1000 // 10}"
            else:
                yield name, name_of(value)


class KernelTime(msgspec.Struct, frozen=True):
    """A kernel by name: how often it ran, and how long all its runs took."""

    name: str
    count: int
    total_us: float


class Inspection(msgspec.Struct):
    """The traces of one process, "" for one that there is not, and what they hold; `host_ops` counts ops of the host
    trace, `ops` those of the device trace. `rank` is first what is known of it before they are read.

    `merged` is empty for one of the `merged_ranks` of a file. `waits_without_record` is set only where there are such
    waits and something ran on a device.
    """

    device: str = ""
    host: str = ""
    bytes: int = 0
    error: str = ""
    rank: int | None = None
    records_rank: bool = False
    world_size: int | None = None
    processes: list[int] = []
    host_process: int | None = None
    merged: list[str] = []
    merged_ranks: list[int] | msgspec.UnsetType = msgspec.UNSET
    versions: dict[str, str] = {}
    vendor: str = ""
    steps: int = 0
    first_step: int = -1
    host_ops: int = 0
    ops: int = 0
    matched: int = 0
    matched_by: str = ""
    agreement_pct: float = 0.0
    alignment_count: int = 1
    calls: int = 0
    activities: int = 0
    kernels: int = 0
    copies: int = 0
    devices: int = 0
    streams: int = 0
    collectives: int = 0
    collectives_without_kernel: int = 0
    sync_records: int = 0
    graph_launches: int = 0
    graph_activities: int = 0
    top_kernels: list[KernelTime] = []
    dropped: Counts = msgspec.field(default_factory=Counts)
    damaged: bool = False
    notes: list[str] = []
    contradictions: list[Contradiction] | msgspec.UnsetType = msgspec.UNSET
    waits_without_record: int | msgspec.UnsetType = msgspec.UNSET
    detail: str | msgspec.UnsetType = msgspec.UNSET
    uneven_steps: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def name(self) -> str:
        """How findings call it: by its rank, else by its file and folder."""
        return f"rank {self.rank}" if self.rank is not None else "/".join(Path(self.device or self.host).parts[-2:])

    @property
    def files(self) -> list[str]:
        """The paths of its device trace, host trace and detail trace, those that there are."""
        return [path for path in (self.device, self.host, self.detail) if path]


class Exchanged(NamedTuple):
    """What a process communicated in the part of its traces that a graph is of, and its collectives in time."""

    comms: RankComms
    calls: Calls


def inspect(inspection: Inspection) -> tuple[Inspection, Exchanged | None]:
    """Reads the files of a process once each; returns what they hold, or an `error`, and what it communicated."""
    found, match, exchanged = list[Contradiction](), None, None
    inspection.bytes = sum(Path(path).stat().st_size for path in inspection.files)
    try:
        host = read_host_trace(inspection.host) if inspection.host else None
        device = read_device_trace(inspection.device) if inspection.device else None
        if device is not None and inspection.merged_ranks:
            device = one_rank(device, inspection.rank)
        if host is not None:
            inspection.host_process, inspection.host_ops = host.pid, int(are_ops(host.name).sum())
            inspection.versions = {"host schema": host.schema}
            inspection.steps, inspection.first_step = _steps(host.name)
            if pytorch := PYTORCH.get(host.schema.partition("-")[0]):
                inspection.versions["PyTorch"] = pytorch
            _describe_reading(inspection, host)
        if device is not None:
            match = match_ops(host, device, allow_mismatch=True) if host is not None else None
            lost = lost_records(device, launching_calls(device.activities, device.calls), host, match)
            _describe_device(inspection, device, lost)
            _describe_reading(inspection, device)
        if host is not None and device is not None and match is not None:
            alone = ~are_step_marks(device.ops.name)
            found = other_shapes(host, device, match)
            alone[match.device_row] = False
            inspection.matched, inspection.matched_by = len(match.host_row), match.by
            recorded = [match.recorded] * match.of_other_steps
            with noted(inspection.notes):
                if inspection.detail:
                    same = len(match_ops(host, read_device_trace(inspection.detail)).host_row)
                    recorded.append(f"modules, stacks or memory of {same} host ops in a detail trace beside these")
            inspection.notes += [", ".join(recorded)] * bool(recorded)
            inspection.dropped[Reason.STEPS_APART] = match.steps_apart
            inspection.alignment_count = match.alignment_count
            inspection.agreement_pct = round(100 * match.agreement, 2)
            is_window = host_period(device, match) is not None
            of_device = Reason.OPS_OUTSIDE_HOST_WINDOW if is_window else Reason.DEVICE_ONLY_OPS
            inspection.dropped[of_device] = int(alone.sum())
            inspection.dropped[Reason.OPS_NOT_IN_DEVICE_TRACE] = inspection.host_ops - inspection.matched
            inspection.dropped[Reason.OPS_OF_TWO_NAMES] = match.misnamed
        if device is not None and not inspection.merged:
            found += contradictions_in_traces(host, device) + lost.contradictions(device)
            odd_count, odd = odd_ops(host, device, match)
            found, uneven = found + odd, uneven_steps(device, bool(odd_count))
            inspection.notes += rounded(device)
            if match is None or match.agreement >= SMALLEST_AGREEMENT:
                trace, records, unlisted = link_communication(host, device, match, inspection.rank, uneven)
                inspection.dropped[Reason.MANY_MEMBERS] = unlisted
                exchanged = Exchanged(summarise_rank(trace), _collectives(inspection, trace))
                found += other_bytes(device.path, records)
                inspection.notes += unnamed_kernels(device.path, records)
                if records.unnamed:
                    inspection.collectives = int((trace.activities.communication_row >= 0).sum())
                    inspection.collectives_without_kernel = 0
            inspection.contradictions = found or msgspec.UNSET
            inspection.uneven_steps = uneven.said or msgspec.UNSET
    except DataError as error:
        inspection.error = str(error)
    inspection.dropped = inspection.dropped.without_zeros()
    return inspection, exchanged


def communicated(process: Inspection) -> list[Issued]:
    """Reads the traces of a process again; returns what it communicated."""
    host, device = read_traces(process.host or None, process.device)
    device = one_rank(device, process.rank)
    match = match_ops(host, device, allow_mismatch=True) if host is not None else None
    uneven = uneven_steps(device, bool(odd_ops(host, device, match)[0]))
    return issued_by(link_communication(host, device, match, process.rank, uneven)[0])


def _collectives(process: Inspection, trace: linked.LinkedTrace) -> Calls:
    """Returns the collectives of a process, with their times on the clock of its machine."""
    issued = [call for call in issued_by(trace) if call.group]
    calls = recorded_calls([call.recorded for call in issued], [""] * len(issued), -1)
    start, end, on_host = np.array([call[-3:] for call in issued], np.int64).reshape(-1, 3).T
    base_ns, steps = trace.info.base_time_ns, range(process.first_step, process.first_step + process.steps)
    return replace(calls, start_ns=start + base_ns, end_ns=end + base_ns, on_host=on_host > 0, steps=tuple(steps))


def _describe_reading(inspection: Inspection, trace: HostTrace | DeviceTrace) -> None:
    """Counts what of the file was not read, or not as it is."""
    inspection.notes += trace.notes
    inspection.dropped.add(trace.skipped)
    inspection.damaged |= bool(trace.skipped.of(Reason.UNREADABLE_ROWS, Reason.CUT_OFF_ROWS, Reason.UNUSABLE_TIME))


def _describe_device(inspection: Inspection, device: DeviceTrace, lost: LostRecords) -> None:
    """Counts what the trace holds."""
    activities, calls = device.activities, device.calls
    memory = activities.category.equal(*MEMORY_CATEGORIES)
    inspection.processes, inspection.world_size = device.processes, device.world_size
    inspection.merged = [] if inspection.merged_ranks else readers.merging_signs(device)
    if inspection.merged and (ranks := set().union(*readers.ranks_of_processes(device).values())):
        inspection.merged_ranks = sorted(ranks)
    if device.rank is not None:
        inspection.rank, inspection.records_rank = device.rank, True
    inspection.versions |= device_versions(inspection.device)
    if (steps := _steps(device.ops.name))[0]:
        inspection.steps, inspection.first_step = steps
    inspection.ops, inspection.calls = len(device.ops.start), len(calls.start)
    inspection.activities = len(activities.start)
    inspection.kernels, inspection.copies = int((~memory).sum()), int(memory.sum())
    inspection.devices = len(np.unique(activities.device))
    inspection.streams = len(linked.streams_of(activities).device)
    inspection.sync_records = len(device.syncs.start)
    if len(activities.start):
        inspection.waits_without_record = waits_without_record(calls.name, inspection.sync_records) or msgspec.UNSET
    inspection.dropped[Reason.MANY_MEMBERS] = ProcessGroups.of(device.groups, device.world_size or -1).unlisted
    on_device = int(is_communication_kernel(activities.name).sum())
    calls_of_collectives = device.ops.name.where(lambda name: bool(HOST_COLLECTIVE.match(name)))
    inspection.collectives = on_device or int(calls_of_collectives.sum())
    is_on_hosts = device.ops.name.where(lambda name: name.startswith(ON_HOSTS)).any()
    if len(activities.start) and not on_device and not is_on_hosts:
        copies = sum(integer(args.group_size, -1) == 1 for args in device.communication[Role.OP].values())
        inspection.collectives_without_kernel = max(inspection.collectives - copies, 0)
    inspection.top_kernels = _top_kernels(device, ~memory)
    inspection.vendor = next((vendor for name in calls.name.table for vendor in VENDORS if name.startswith(vendor)), "")
    _describe_launches(inspection, device, lost)
    inspection.dropped[Reason.ACTIVITIES_OF_ZERO_LENGTH] = int((activities.end <= activities.start).sum())


def _describe_launches(inspection: Inspection, device: DeviceTrace, lost: LostRecords) -> None:
    """Counts activities without a call, and launch calls without an activity."""
    call_row, names = launching_calls(device.activities, device.calls), device.calls.name
    is_graph = names.where(is_graph_launch)
    inspection.graph_launches = int(is_graph.sum())
    inspection.graph_activities = int(is_graph[call_row[call_row >= 0]].sum())
    # the same correlation is of several launches in a file of several ranks
    if inspection.merged:
        return
    inspection.dropped[Reason.ACTIVITIES_WITHOUT_CALL] = int((call_row < 0).sum())
    inspection.dropped[Reason.LAUNCHES_NOT_RECORDED] = len(lost.uncalled)
    inspection.dropped.add({reason: len(rows) for reason, rows in lost.by_reason.items()})


def _steps(names: Categorical) -> tuple[int, int]:
    """Returns how many steps are marked, and the number of the first one, -1 for none."""
    numbers = {integer(name.removeprefix(STEP_MARK), -1) for name in names.table if name.startswith(STEP_MARK)}
    return len(numbers), min(numbers, default=-1)


def _top_kernels(device: DeviceTrace, kernels: Bool) -> list[KernelTime]:
    rows, names = device.activities, device.activities.name.table
    codes, time = rows.name.codes[kernels], (rows.end - rows.start)[kernels]
    count, total = np.bincount(codes, minlength=len(names)), np.bincount(codes, time.astype(np.float64), len(names))
    longest = np.argsort(-total, kind="stable")[:KERNELS_SHOWN].tolist()
    return [KernelTime(names[code], int(count[code]), float(total[code]) / 1000) for code in longest if count[code]]
