"""Writes the device trace of a simulated rank in Perfetto's protobuf, as PyTorch's own recorder for CUDA does.

Of the slices of a kind all begin before any ends. The format holds no ranks, and ids of ops only on ops.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import IO, Any

from ...schema import perfetto_trace_pb2 as pb
from ...schema.device_formats import STAGE_NUMBERS, STAGES
from ...schema.io import open_output

HOST = ("cpu_op", "user_annotation", "python_function")
OF_CATEGORY = {category: number for number, category in enumerate(STAGES.values(), 1)}
NAMES = {name: text for text, name in STAGE_NUMBERS.items() if name != "correlation"}
COMPUTE, CLEARED, CLOCKS = 2, 1, (1, 6)
"""As the reader has them; the clocks are those of the date and of the trace."""


def write_perfetto(path: str, head: dict[str, Any], rows: Iterator[str]) -> None:
    """Writes the trace a row at a time. Raises DataError when the file cannot be written."""
    with open_output(path) as file:
        trace = _Writer(file, head.get("baseTimeNanoseconds", 0))
        for text in rows:
            row = json.loads(text, parse_float=Decimal)
            if row["ph"] == "X" and row["cat"] != "Trace":
                trace.add(row, row["cat"])
        trace.end()


class _Writer:
    def __init__(self, file: IO[bytes], base: int) -> None:
        self.file, self.base, self.stages, self.in_host = file, base, 0, False
        self.tracks: dict[tuple[int, int], int] = {}
        self.launched, self.ends = defaultdict[int, list[int]](list), list[tuple[int, int]]()
        clocks = [pb.ClockSnapshot.Clock(clock_id=number, timestamp=base) for number in CLOCKS]
        kinds = [
            pb.InternedStage(iid=iid, name=name.encode(), category=COMPUTE * (iid == 1))
            for iid, name in enumerate(STAGES, 1)
        ]
        data, snapshot = pb.InternedData(stages=kinds), pb.ClockSnapshot(clocks=clocks)
        self._write(base, sequence_flags=CLEARED, clock_snapshot=snapshot, interned_data=data)

    def add(self, row: dict[str, Any], category: str) -> None:
        """Writes what the format has of a row."""
        if category not in HOST and self.in_host:
            self.end()
        self.in_host = category in HOST
        start, duration = self.base + int(row["ts"] * 1000), int(row["dur"] * 1000)
        if category in OF_CATEGORY:
            self._write(start, gpu_render_stage_event=self._stage(row, OF_CATEGORY[category], duration))
        else:
            track = self._track(row["pid"], row["tid"])
            self._write(start, track_event=self._slice(row, category, track))
            self.ends.append((track, start + duration))

    def end(self) -> None:
        """Ends the slices that were begun."""
        for track, ns in self.ends:
            self._write(ns, track_event=pb.TrackEvent(type="END", track_uuid=track))
        self.ends.clear()

    def _slice(self, row: dict[str, Any], category: str, track: int) -> pb.TrackEvent:
        args, event = row["args"], pb.TrackEvent(type="BEGIN", track_uuid=track, name=row["name"].encode())
        if category != "cuda_sync":
            event.categories.append(category.encode())
            if launched := self.launched.pop(args.get("correlation"), ()):
                event.gpu_correlation.event_ids.extend(launched)
        kept = (key for key in args if category in HOST or key != "External id")
        event.annotations.extend(_annotation(args[key], key) for key in kept)
        return event

    def _stage(self, row: dict[str, Any], kind: int, duration: int) -> pb.GpuRenderStageEvent:
        args = {"device": row["pid"], "stream": row["tid"]} | row["args"]
        self.stages += 1
        event = pb.GpuRenderStageEvent(
            event_id=self.stages, duration=duration, gpu_id=row["pid"], queue_iid=row["tid"], context=1,
            stage_iid=kind, name=row["name"].encode(),
        )  # fmt: skip
        for key in args.keys() - {"External id"}:
            text = args[key] if isinstance(args[key], str) else json.dumps(args[key], default=float)
            event.extra_data.add(name=NAMES.get(key, key).encode(), value=text.encode())
        self.launched[args.get("correlation")].append(self.stages)
        return event

    def _track(self, pid: int, tid: int) -> int:
        if (pid, tid) not in self.tracks:
            uuid = self.tracks[pid, tid] = len(self.tracks) + 1
            self._write(0, track_descriptor=pb.TrackDescriptor(uuid=uuid, thread={"pid": pid, "tid": tid}))
        return self.tracks[pid, tid]

    def _write(self, timestamp: int, **fields: Any) -> None:
        self.file.write(pb.Trace(packet=[pb.Packet(timestamp=timestamp, sequence=1, **fields)]).SerializeToString())


def _annotation(value: Any, name: str = "") -> pb.Annotation:
    if isinstance(value, list):
        return pb.Annotation(name=name.encode(), items=map(_annotation, value))
    if isinstance(value, str | None):
        return pb.Annotation(name=name.encode(), string_value=("null" if value is None else value).encode())
    return pb.Annotation(name=name.encode(), **{"bool_value" if isinstance(value, bool) else "int_value": value})
