"""Transcodes Perfetto's protobuf traces, as PyTorch's own recorder for CUDA writes them, to the rows of a Kineto trace.
A slice is a row once its end is read; what a GPU render stage waited for becomes a flow. A file may be cut off."""

import io
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, BinaryIO

import msgspec
from google.protobuf.message import DecodeError

from ...schema import perfetto_trace_pb2 as pb
from ...schema.device_formats import EVENT_IN_GRAPH, STAGE_NUMBERS, STAGES
from ...schema.json_stream import CutOff
from ...schema.linked import integer
from . import kineto_rows as kineto
from .kineto_rows import Place, Row

LARGEST, FIRST_TRACK = 1 << 28, 1 << 30
"""Bytes of a packet, and from where on tracks that are no threads have numbers of threads."""
REALTIME, BOOTTIME, OF_SEQUENCES = 1, 6, 64
"""Ids of clocks; those from the third on belong to one sequence."""
CLEARED, COMPUTE = 1, 2
"""The flag of packets that clear what is interned, and the category of stages that are kernels whatever their name."""
STARTS, ENDS, COMPLETE = 1, 2, 5
PHASES = {ord("B"): STARTS, ord("E"): ENDS, ord("X"): COMPLETE}
_text = partial(str, encoding="utf-8", errors="replace")
Texts = dict[str, dict[int, str]]
Slice = tuple[int, bytes | None]
"""When a slice began and its row without a duration, or when one ended."""


def begins_perfetto(head: bytes) -> bool:
    """Returns whether a file begins with a packet, of which something is known, and goes on with another one."""
    stream = io.BytesIO(head)
    with suppress(ValueError):
        packets = _decoded(_packet(stream.read(1), stream))
        return bool(packets and packets[0].ListFields()) and stream.read(1) in (b"", b"\n")
    return False


def transcode_perfetto(stream: BinaryIO, path: str) -> Iterator[bytes]:
    """Yields the text of a Kineto trace. Raises what its end is lost for, behind the rest."""
    trace = _Trace(stream)
    return kineto.text_of(
        lambda: {"baseTimeNanoseconds": trace.base + trace.realtime}, trace.rows(), lambda: trace.cut or {}
    )


class _Trace:
    """What the packets so far say; `cut` is why the rest is lost."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.base, self.realtime, self.clock = stream, -1, 0, BOOTTIME
        self.cut: Exception | None = None
        self.clocks: dict[tuple[int, int], tuple[int, int, bool]] = {}
        """Of clocks, by sequence and id: the unit, what to add, and whether each time is added to those before."""
        self.texts = defaultdict[int, Texts](lambda: defaultdict(dict))
        self.defaults = defaultdict[int, tuple[int, int]](lambda: (0, 0))
        self.tracks, self.stages = dict[int, Place](), dict[int, tuple[Place, int]]()
        self.begun, self.open = defaultdict[int, list[Slice]](list), defaultdict[int, int](int)
        self.waits: list[tuple[int, Place, int]] = []
        self.launches, self.flows = dict[int, int](), set[int]()

    def rows(self) -> Iterator[Row | msgspec.Raw]:
        """Yields the rows of all packets."""
        for data in self._packets():
            packets = _decoded(data)
            yield from chain.from_iterable(map(self._rows_of, packets)) if packets else [{"ph": 0}]
        for events in self.begun.values():
            yield from _closed(events)
        for number, (awaited, place, ns) in enumerate(self.waits, kineto.FIRST_DEPENDENCY):
            # a flow without an end is counted
            yield kineto.flow("s", number, *self.stages.get(awaited, (place, ns)))
            if awaited in self.stages:
                yield kineto.flow("f", number, place, ns)

    def _packets(self) -> Iterator[bytes]:
        """Yields the packets up to the end, or to where the file is cut off or holds something else."""
        at = 0
        try:
            while tag := self.stream.read(1):
                yield (data := _packet(tag, self.stream))
                at += 1 + max(1, -(-len(data).bit_length() // 7)) + len(data)
        except ValueError:
            self.cut = CutOff(at)
        except (EOFError, OSError, zlib.error) as error:
            self.cut = error

    def _rows_of(self, packet: pb.Packet) -> Iterator[Row | msgspec.Raw]:
        sequence = packet.sequence
        if packet.sequence_flags & CLEARED or packet.incremental_state_cleared:
            self.texts.pop(sequence, None)
        if packet.HasField("defaults"):
            self.defaults[sequence] = packet.defaults.timestamp_clock_id, packet.defaults.track_event.track_uuid
        texts = self.texts[sequence]
        for kind, entries in packet.interned_data.ListFields():
            texts[kind.name].update({entry.iid: _text(entry.name) for entry in entries})
        stages = packet.interned_data.stages
        texts["computing"].update({stage.iid: "kernel" for stage in stages if stage.category == COMPUTE})
        if packet.HasField("clock_snapshot"):
            self._set_clocks(packet.clock_snapshot, sequence)
        if packet.HasField("track_descriptor"):
            yield from self._track(packet.track_descriptor)
        if not packet.HasField("timestamp"):
            return
        clock, uuid = self.defaults[sequence]
        clock = packet.timestamp_clock_id or clock or self.clock
        key = sequence * (clock >= OF_SEQUENCES), clock
        unit, offset, is_incremental = self.clocks.get(key, (1, 0, False))
        ns = packet.timestamp * unit + offset
        if is_incremental:
            self.clocks[key] = unit, ns, True
        self.base = ns if self.base < 0 else self.base
        if packet.HasField("track_event"):
            yield from self._slice(packet.track_event, packet.track_event.track_uuid or uuid, texts, ns - self.base)
        elif packet.HasField("gpu_render_stage_event"):
            yield self._stage(packet.gpu_render_stage_event, texts, ns - self.base)
        elif packet.HasField("gpu_counter_event"):
            yield {"ph": "C", "name": "GPU counters", "ts": kineto.microseconds(ns - self.base)}

    def _set_clocks(self, snapshot: pb.ClockSnapshot, sequence: int) -> None:
        self.clock = snapshot.primary_trace_clock or self.clock
        times = {clock.clock_id: clock.timestamp * (clock.unit_multiplier_ns or 1) for clock in snapshot.clocks}
        now = times.get(self.clock, 0)
        self.realtime = self.realtime or times.get(REALTIME, now) - now
        for clock in snapshot.clocks:
            key = sequence * (clock.clock_id >= OF_SEQUENCES), clock.clock_id
            offset = now - times[clock.clock_id] * (not clock.is_incremental)
            self.clocks[key] = clock.unit_multiplier_ns or 1, offset, clock.is_incremental

    def _track(self, track: pb.TrackDescriptor) -> Iterator[Row]:
        """Keeps which process and thread a track is, and yields its name."""
        kind, pid, tid = "thread", track.thread.pid, track.thread.tid
        if track.HasField("process"):
            kind, pid, tid = "process", track.process.pid, track.process.pid
        elif not track.HasField("thread"):
            pid, tid = self.tracks.get(track.parent_uuid, (0, 0))[0], FIRST_TRACK + len(self.tracks)
        self.tracks[track.uuid] = pid, tid
        if name := track.thread.name or track.process.name or track.name:
            yield {"ph": "M", "name": f"{kind}_name", "pid": pid, "tid": tid, "args": {"name": _text(name)}}

    def _slice(self, event: pb.TrackEvent, uuid: int, texts: Texts, ns: int) -> Iterator[Row | msgspec.Raw]:
        """Yields the rows that this event completes."""
        kind, place = event.type or PHASES.get(event.legacy.phase), self.tracks.get(uuid, (0, uuid % FIRST_TRACK))
        if kind == ENDS:
            self.begun[uuid].append((ns, None))
            self.open[uuid] -= 1
            if self.open[uuid] <= 0:
                del self.open[uuid]
                yield from _closed(self.begun.pop(uuid))
            return
        name = texts["names"].get(event.name_iid or event.legacy.name_iid) or _text(event.name)
        if kind not in (STARTS, COMPLETE):
            yield {"ph": "i", "name": name, "pid": place[0], "tid": place[1], "ts": kineto.microseconds(ns)}
            return
        category = ",".join([texts["categories"].get(number, "") for number in event.category_iids])
        args = _arguments(event.annotations, texts)
        category = category or ",".join(map(_text, event.categories)) or "cuda_sync" * ("cuda_sync_kind" in args)
        if launched := event.gpu_correlation.event_ids:
            args = {"correlation": launched[0]} | args
            self.launches.update(dict.fromkeys(launched, args["correlation"]))
        for number in (*event.flow_ids, *event.terminating_flow_ids):
            yield kineto.flow("f" if number in self.flows else "s", number % kineto.FIRST_DEPENDENCY, place, ns)
            self.flows.add(number)
        if kind == COMPLETE:
            yield kineto.complete(category, name, place, ns, ns + event.legacy.duration_us * 1000, args)
        else:
            self.begun[uuid].append((ns, kineto.encode(kineto.complete(category, name, place, ns, None, args))[:-1]))
            self.open[uuid] += 1

    def _stage(self, event: pb.GpuRenderStageEvent, texts: Texts, ns: int) -> Row:
        args: Row = {"device": event.gpu_id, "stream": event.queue_iid, "context": event.context}
        args["correlation"] = self.launches.get(event.event_id, 0)
        extra = {_text(item.name): _text(item.value) for item in event.extra_data}
        args |= {name: integer(extra.pop(key), -1) for key, name in STAGE_NUMBERS.items() if key in extra} | extra
        place, kind = (event.gpu_id, args["stream"]), texts["stages"].get(event.stage_iid, "")
        category = STAGES.get(kind) or texts["computing"].get(event.stage_iid) or kind or "stage"
        name = _text(event.name) or texts["names"].get(event.name_iid) or kind
        if category == EVENT_IN_GRAPH:
            # it takes no time: on the lane of its stream its end may be that of an activity, too
            place = event.gpu_id, FIRST_TRACK + event.event_id % FIRST_TRACK
            args.setdefault("graph node id", event.event_id)
        self.stages[event.event_id] = place, ns + event.duration
        self.waits += [(awaited, place, ns) for awaited in event.event_wait_ids]
        return kineto.complete(category, name, place, ns, ns + event.duration, args)


def _decoded(data: bytes) -> list[pb.Packet]:
    """Returns a packet and those packed in it, nothing where it is damaged."""
    try:
        packet = pb.Packet.FromString(data)
        packed = zlib.decompressobj().decompress(packet.compressed_packets or zlib.compress(b""), LARGEST)
        return [packet, *pb.Trace.FromString(packed).packet]
    except (DecodeError, zlib.error):
        return []


def _packet(tag: bytes, stream: BinaryIO) -> bytes:
    """Returns the fields of the packet that begins with a tag. Raises ValueError for another tag, or a part of one."""
    size = 0
    for shift in range(0, 29, 7) if tag == b"\n" else ():
        byte = (stream.read(1) or b"\x80")[0]
        size |= (byte & 0x7F) << shift
        if byte < 0x80 and size <= LARGEST and len(data := stream.read(size)) == size:
            return data
    raise ValueError


def _closed(events: list[Slice]) -> Iterator[msgspec.Raw]:
    """Yields the rows of a track's slices; where all begin before any ends, PyTorch writes the ends in that order."""
    times, half, in_order = [ns for ns, _ in events], len(events) // 2, sorted(events, key=itemgetter(0))
    ends_follow = [row is None for _, row in events] == [False] * half + [True] * half
    if ends_follow and (times != sorted(times) or all(map(int.__ge__, times[1:half], times[half:]))):
        in_order = [*chain.from_iterable(zip(events[:half], events[half:], strict=True))]
    begun: list[tuple[int, bytes]] = []
    for ns, row in in_order:
        if row:
            begun.append((ns, row))
        elif begun:
            start, of_start = begun.pop()
            yield msgspec.Raw(b'%b,"dur":%b}' % (of_start, bytes(kineto.microseconds(ns - start))))
    yield from (msgspec.Raw(row.replace(b"X", b"B", 1) + b"}") for _, row in begun)


def _arguments(annotations: Iterable[pb.Annotation], texts: Texts) -> Row:
    names = texts["annotation_names"]
    return {names.get(item.name_iid) or _text(item.name): _value(item, texts) for item in annotations}


def _value(annotation: pb.Annotation, texts: Texts) -> Any:
    """Returns what an annotation says, as JSON has it."""
    kind = annotation.WhichOneof("value")
    if kind is None:
        items = annotation.items
        return _arguments(annotation.entries, texts) if annotation.entries else [_value(item, texts) for item in items]
    value = getattr(annotation, kind)
    return texts["strings"].get(value) if kind == "string_iid" else _text(value) if isinstance(value, bytes) else value
