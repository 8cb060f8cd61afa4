"""Inspects the files of one process: counts, versions, longest kernels, and all that a graph would lack, by reason."""

import re
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ...linker.communication import (
    MANY_MEMBERS,
    RECORD,
    from_device,
    is_communication_kernel,
    process_groups,
    with_members,
)
from ...linker.contradictions import Contradiction, contradictions_in_traces
from ...linker.matching import Match, is_op, launching_calls, match_ops
from ...linker.readers import (
    DeviceTrace,
    HostTrace,
    RecordedCalls,
    Role,
    merging_signs,
    read_device_trace,
    read_host_trace,
)
from ...schema.columns import Bool, Categorical, Int64, workspace_in
from ...schema.errors import DataError
from ...schema.io import STANDARD_STREAM, folder_beside
from ...schema.linked import streams_of
from ...schema.recovery import CUT_OFF, UNREADABLE
from ...schema.traces import MEMORY_CATEGORIES, STEP_MARK, are_step_marks
from .versions import device_versions, host_versions

GRAPH_LAUNCH = re.compile(r"GraphLaunch")
HOST_COLLECTIVE = re.compile(rf"^({RECORD}|gloo:.*)$")
KERNELS_SHOWN = 10
VENDORS = ("cuda", "hip")


class ProcessFiles(NamedTuple):
    """The traces of one process, "" for one that there is not; `rank` is what is known of it before they are read."""

    device: str
    host: str
    rank: int | None
    records_rank: bool


class KernelTime(msgspec.Struct, frozen=True):
    """A kernel by name: how often it ran, and how long all its runs took."""

    name: str
    count: int
    total_us: float


class GroupCount(msgspec.Struct, frozen=True):
    """The collectives of a group, which has no ranks where they are not known.

    `first` and `last` are their sequence numbers, -1 where not recorded.
    """

    ranks: list[int]
    count: int
    first: int = -1
    last: int = -1


class Inspection(msgspec.Struct):
    """What the files of one process hold. `host_ops` are those of the host trace, `ops` those that the device trace
    saw.
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
    versions: dict[str, str] = {}
    vendor: str = ""
    steps: int = 0
    host_ops: int = 0
    ops: int = 0
    matched: int = 0
    matched_by: str = ""
    agreement_pct: float = 0.0
    places: int = 1
    calls: int = 0
    activities: int = 0
    kernels: int = 0
    copies: int = 0
    devices: int = 0
    streams: int = 0
    collectives: int = 0
    sync_records: int = 0
    graph_launches: int = 0
    graph_activities: int = 0
    graph_launches_alone: int = 0
    groups: list[GroupCount] = []
    top_kernels: list[KernelTime] = []
    dropped: dict[str, int] = {}
    damaged: bool = False
    remarks: list[str] = []
    contradictions: list[Contradiction] | msgspec.UnsetType = msgspec.UNSET

    @property
    def name(self) -> str:
        """How findings call it: by its rank, else by its file and folder."""
        return f"rank {self.rank}" if self.rank is not None else "/".join(Path(self.device or self.host).parts[-2:])


def inspect(files: ProcessFiles) -> Inspection:
    """Reads the files once each; what cannot be read is in `error`."""
    found = Inspection(files.device, files.host, rank=files.rank, records_rank=files.records_rank)
    found.bytes = sum(Path(path).stat().st_size for path in (files.device, files.host) if path)
    try:
        with workspace_in(folder_beside(STANDARD_STREAM)):
            host = read_host_trace(files.host) if files.host else None
            device = read_device_trace(files.device) if files.device else None
        if host is not None:
            _describe_host(found, host)
            _describe_reading(found, host)
        if device is not None:
            _describe_device(found, device)
            _describe_reading(found, device)
        if host is not None and device is not None:
            _describe_match(found, device, match_ops(host, device, allow_mismatch=True))
        if device is not None and not found.merged:
            found.contradictions = contradictions_in_traces(host, device) or msgspec.UNSET
    except DataError as error:
        found.error = str(error)
    found.dropped = {reason: count for reason, count in found.dropped.items() if count}
    return found


def _describe_host(found: Inspection, host: HostTrace) -> None:
    found.host_process, found.host_ops = host.pid, int(is_op(host).sum())
    found.steps = _steps(host.name)
    found.versions |= host_versions(host.schema)


def _describe_reading(found: Inspection, trace: HostTrace | DeviceTrace) -> None:
    """What of the file was not read, or not as it stands."""
    found.remarks += trace.remarks
    for reason, count in trace.skipped.items():
        found.dropped[reason] = found.dropped.get(reason, 0) + count
    found.damaged |= any(reason.endswith((UNREADABLE, CUT_OFF)) for reason, count in trace.skipped.items() if count)


def _describe_device(found: Inspection, device: DeviceTrace) -> None:
    activities, calls = device.activities, device.calls
    memory = activities.category.equal(*MEMORY_CATEGORIES)
    found.processes, found.world_size, found.merged = device.processes, device.world_size, merging_signs(device)
    if device.rank is not None:
        found.rank, found.records_rank = device.rank, True
    found.versions |= device_versions(found.device)
    found.steps = _steps(device.ops.name) or found.steps
    found.ops, found.calls, found.activities = len(device.ops.start), len(calls.start), len(activities.start)
    found.kernels, found.copies = int((~memory).sum()), int(memory.sum())
    found.devices = len(np.unique(activities.device))
    found.streams = len(streams_of(activities).device)
    found.sync_records = len(device.syncs.start)
    found.groups, found.dropped[MANY_MEMBERS] = _groups(device)
    on_device = int(is_communication_kernel(activities.name).sum())
    found.collectives = on_device or int(device.ops.name.where(lambda name: bool(HOST_COLLECTIVE.match(name))).sum())
    found.top_kernels = _top_kernels(device, ~memory)
    found.vendor = next((vendor for name in calls.name.table for vendor in VENDORS if name.startswith(vendor)), "")
    _describe_launches(found, launching_calls(activities, calls), calls)
    found.dropped["activities of zero length"] = int((activities.end <= activities.start).sum())


def _describe_launches(found: Inspection, call_row: Int64, calls: RecordedCalls) -> None:
    """Which activities have no call, and which calls that launch elsewhere have no activity."""
    launched = np.bincount(call_row[call_row >= 0], minlength=len(calls.start))
    is_graph = calls.name.where(lambda name: bool(GRAPH_LAUNCH.search(name)))
    launching = np.isin(calls.name.codes, np.unique(calls.name.codes[launched > 0])) & ~is_graph
    found.graph_launches, found.graph_activities = int(is_graph.sum()), int(launched[is_graph].sum())
    found.graph_launches_alone = int((is_graph & (launched == 0)).sum())
    found.dropped["activities without a launch call"] = int((call_row < 0).sum())
    found.dropped["graph launches without recorded activities"] = found.graph_launches_alone
    found.dropped["launch calls without an activity"] = int((launching & (launched == 0)).sum())


def _describe_match(found: Inspection, device: DeviceTrace, match: Match) -> None:
    outside = ~are_step_marks(device.ops.name)
    outside[match.device_row] = False
    found.matched, found.matched_by, found.places = len(match.host_row), match.by, match.places
    found.agreement_pct = round(100 * match.agreement, 2)
    found.dropped["ops outside the host trace's window"] = int(outside.sum())
    found.dropped["host ops that the device trace does not hold"] = found.host_ops - found.matched
    found.dropped["ops of one record-function id but two names"] = match.misnamed


def _steps(names: Categorical) -> int:
    return sum(name.startswith(STEP_MARK) for name in set(names.table))


def _top_kernels(device: DeviceTrace, kernels: Bool) -> list[KernelTime]:
    rows = device.activities
    codes, time = rows.name.codes[kernels], (rows.end - rows.start)[kernels]
    count = np.bincount(codes, minlength=len(rows.name.table))
    total = np.bincount(codes, time.astype(np.float64), len(rows.name.table))
    longest = np.argsort(-total, kind="stable")[:KERNELS_SHOWN].tolist()
    return [
        KernelTime(rows.name.table[code], int(count[code]), float(total[code]) / 1000)
        for code in longest
        if count[code]
    ]


def _groups(device: DeviceTrace) -> tuple[list[GroupCount], int]:
    """Returns the collectives that the kernels' recorded arguments tell, by the members of their group; no sends and
    receives. And how many communications and groups have more members than are listed.
    """
    unlisted: list[int] = []
    recorded = [*map(from_device, device.communication[Role.ACTIVITY].values())]
    numbers: dict[tuple[int, ...], list[int]] = {}
    for found in with_members(recorded, process_groups(device.groups, unlisted), device.world_size or -1, unlisted):
        if not re.search("send|recv", found.name):
            numbers.setdefault(tuple(found.ranks), []).append(found.sequence)
    counts = [GroupCount(list(ranks), len(own), min(own), max(own)) for ranks, own in sorted(numbers.items())]
    return counts, len(unlisted)
