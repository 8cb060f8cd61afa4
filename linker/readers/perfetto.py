"""Transcodes Perfetto's protobuf traces, as PyTorch's own recorder for CUDA writes them, to the rows of a Kineto trace.

A slice is a row once its end is read, and a GPU render stage is an activity. What a stage waited for, as nodes of a
CUDA graph do, becomes a flow from the end of the one to the start of the other, as in that recorder's JSON. Interned
texts hold for one sequence of packets until it clears them. Times are exact ns, relative to the first packet's.

A packet that cannot be decoded is a damaged row; packets of other data are passed over. Of a file that is cut off all
whole packets are read, and the list of rows has no end, either.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import BufferedIOBase
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import msgspec

from ...schema.json_stream import CutOff
from ...schema.linked import integer
from .cupti_rows import FIRST_DEPENDENCY

if TYPE_CHECKING:
    from ...schema import perfetto_trace_pb2 as pb

PACKET = 0x0A
FIRST_FIELDS = b"@PZbh"
"""The tags with which packets begin that are long: a time, a sequence and its flags, an event, interned data."""
PIECE, AT_ONCE, LARGEST = 1 << 20, 1 << 10, 1 << 28
"""Bytes read and rows written at once, and bytes of the largest packet."""
REALTIME, BOOTTIME, OF_SEQUENCES = 1, 6, 64
"""Ids of clocks; those from the third on belong to one sequence."""
CLEARED, COMPUTE = 1, 2
"""The flag of packets that clear what is interned, and the category of stages that are kernels whatever their name."""
FIRST_TRACK = 1 << 30
"""From where on tracks that are no threads have numbers of threads."""
STAGES = {
    "Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Annotation": "gpu_user_annotation",
    "EventRecord": "graph_event_node", "HostNode": "graph_host_node",
}  # fmt: skip
NUMBERS = {"device id": "device", "stream id": "stream", "context id": "context", "correlation": "correlation"}
STARTS, ENDS, INSTANT, COUNTER, COMPLETE = 1, 2, 3, 4, 5
PHASES = {ord("B"): STARTS, ord("E"): ENDS, ord("C"): COUNTER, ord("X"): COMPLETE}
Track = dict[str, int]
Texts = dict[str, dict[int, str]]
Slice = tuple[int, bytes, bytes]
"""When a slice began, and what its row holds before and after its duration."""
encode = msgspec.json.encode


def begins_perfetto(head: bytes) -> bool:
    """Returns whether a file begins with a packet, of which something is known, and goes on with another one."""
    if head[:1] != b"\n":
        return False
    # here and below: who reads JSON starts without protobuf
    from google.protobuf.message import DecodeError

    from ...schema import perfetto_trace_pb2 as pb

    with suppress(ValueError, DecodeError):
        start, end = _packet_at(head, 0)
        if end > len(head):
            return start > 2 and head[start : start + 1] in FIRST_FIELDS
        return bool(pb.Packet.FromString(head[start:end]).ListFields()) and head[end : end + 1] in (b"", b"\n")
    return False


def transcode_perfetto(stream: BinaryIO, path: str) -> Iterator[bytes]:
    """Yields the text of a Kineto trace. Raises what its end is lost for, behind the rest."""
    trace = _Trace(cast(BufferedIOBase, stream))
    rows = trace.rows()
    pieces = iter(lambda: b",\n".join(islice(rows, AT_ONCE)), b"")
    first = next(pieces, b"")
    yield b'{"baseTimeNanoseconds":%d,"traceEvents":[\n%b' % (trace.base + trace.realtime, first)
    yield from (b",\n" + piece for piece in pieces)
    if trace.cut:
        raise trace.cut
    yield b"\n]}\n"


class _Trace:
    """What the packets so far say; `cut` is why the rest cannot be read."""

    def __init__(self, stream: BufferedIOBase) -> None:
        self.stream, self.base, self.realtime, self.clock = stream, -1, 0, BOOTTIME
        self.cut: Exception | None = None
        self.clocks: dict[tuple[int, int], tuple[int, int, bool]] = {}
        """Of clocks, by sequence and id: the unit, what to add, and whether each time is added to those before."""
        self.texts = defaultdict[int, Texts](lambda: defaultdict(dict))
        self.defaults = defaultdict[int, tuple[int, int]](lambda: (0, 0))
        self.tracks: dict[int, Track] = {}
        self.begun = defaultdict[int, list[tuple[int, Slice | None]]](list)
        self.open = defaultdict[int, int](int)
        self.stages: dict[int, tuple[Track, int]] = {}
        self.waits: list[tuple[int, Track, int]] = []
        self.events: dict[int, list[int]] = {}
        """What events within graphs follow; they take no time, so that their ends may be those of activities, too."""
        self.launches: dict[int, int] = {}
        self.flows = set[int]()

    def rows(self) -> Iterator[bytes]:
        """Yields the rows of all packets."""
        from google.protobuf.message import DecodeError

        from ...schema import perfetto_trace_pb2 as pb

        for data in self._packets():
            try:
                packet = pb.Packet.FromString(data)
                packed = zlib.decompressobj().decompress(packet.compressed_packets or zlib.compress(b""), LARGEST)
                packets = [packet, *pb.Trace.FromString(packed).packet]
            except (DecodeError, zlib.error):
                yield b'{"ph":0}'
                continue
            for packet in packets:
                yield from self._rows_of(packet)
        for events in self.begun.values():
            yield from _closed(events)
        followed = set[tuple[int, int, int]]()
        # the list grows: who waits for an event waits for what that follows
        for number, (awaited, track, ns) in enumerate(self.waits, FIRST_DEPENDENCY):
            before = {(event, track["tid"], ns) for event in self.events.get(awaited, ())} - followed
            followed |= before
            self.waits += [(event, track, ns) for event, *_ in sorted(before)]
            if awaited in self.stages:
                source, end = self.stages[awaited]
                yield _flow("s", number, source, end)
                yield _flow("f", number, track, ns)
            elif awaited not in self.events:
                # a flow without an end is counted
                yield _flow("s", number, track, ns)

    def _packets(self) -> Iterator[bytes]:
        """Yields the packets up to the end, or to where the file is cut off or holds something else."""
        left, at, before = b"", 0, 0
        try:
            while piece := self.stream.read1(PIECE):
                left, at, before = left[at:] + piece, 0, before + at
                while (found := _packet_at(left, at))[1] <= len(left):
                    start, at = found
                    yield left[start:at]
            if at < len(left):
                raise ValueError
        except ValueError:
            self.cut = CutOff(before + at)
        except (EOFError, OSError, zlib.error) as error:
            self.cut = error

    def _rows_of(self, packet: "pb.Packet") -> Iterator[bytes]:
        sequence = packet.sequence
        if packet.sequence_flags & CLEARED or packet.incremental_state_cleared:
            self.texts.pop(sequence, None)
        if packet.HasField("defaults"):
            self.defaults[sequence] = packet.defaults.timestamp_clock_id, packet.defaults.track_event.track_uuid
        if packet.HasField("interned_data"):
            self._intern(packet.interned_data, self.texts[sequence])
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
            yield from self._slice(packet.track_event, uuid, self.texts[sequence], ns - self.base)
        elif packet.HasField("gpu_render_stage_event"):
            yield self._stage(packet.gpu_render_stage_event, self.texts[sequence], ns - self.base)
        elif packet.HasField("gpu_counter_event"):
            yield b'{"ph":"C","name":"GPU counters","ts":%b}' % _us(ns - self.base)

    def _intern(self, data: "pb.InternedData", texts: Texts) -> None:
        for kind, entries in data.ListFields():
            texts[kind.name].update({entry.iid: _text(entry.name) for entry in entries})
        for stage in data.stages:
            other = "kernel" if stage.category == COMPUTE else _text(stage.name)
            texts["stage_categories"][stage.iid] = STAGES.get(_text(stage.name), other)

    def _set_clocks(self, snapshot: "pb.ClockSnapshot", sequence: int) -> None:
        """Takes over how far clocks are from that of the trace."""
        self.clock = snapshot.primary_trace_clock or self.clock
        times = {clock.clock_id: clock.timestamp * (clock.unit_multiplier_ns or 1) for clock in snapshot.clocks}
        now = times.get(self.clock, 0)
        self.realtime = self.realtime or times.get(REALTIME, now) - now
        for clock in snapshot.clocks:
            number, is_incremental = clock.clock_id, clock.is_incremental
            offset = now - times[number] * (not is_incremental)
            key = sequence * (number >= OF_SEQUENCES), number
            self.clocks[key] = clock.unit_multiplier_ns or 1, offset, is_incremental

    def _track(self, track: "pb.TrackDescriptor") -> Iterator[bytes]:
        """Keeps which process and thread a track is, and yields its name."""
        kind, pid, tid = "thread", track.thread.pid, track.thread.tid
        if track.HasField("process"):
            kind, pid, tid = "process", track.process.pid, track.process.pid
        elif not track.HasField("thread"):
            pid, tid = self.tracks.get(track.parent_uuid, {"pid": 0})["pid"], FIRST_TRACK + len(self.tracks)
        self.tracks[track.uuid] = {"pid": pid, "tid": tid}
        if name := track.thread.name or track.process.name or track.name:
            yield encode({"ph": "M", "name": f"{kind}_name", "pid": pid, "tid": tid, "args": {"name": _text(name)}})

    def _slice(self, event: "pb.TrackEvent", default: int, texts: Texts, ns: int) -> Iterator[bytes]:
        """Yields the rows that this event completes."""
        uuid, kind = event.track_uuid or default, event.type or PHASES.get(event.legacy.phase, INSTANT)
        track = self.tracks.get(uuid, {"pid": 0, "tid": uuid % FIRST_TRACK})
        if kind == ENDS:
            self.begun[uuid].append((ns, None))
            self.open[uuid] -= 1
            if self.open[uuid] <= 0:
                del self.open[uuid]
                yield from _closed(self.begun.pop(uuid))
            return
        name = texts["names"].get(event.name_iid or event.legacy.name_iid) or _text(event.name)
        if kind not in (STARTS, COMPLETE):
            yield b'{"ph":"%c",%b,"ts":%b}' % (b"iC"[kind == COUNTER], encode({"name": name, **track})[1:-1], _us(ns))
            return
        category = ",".join([texts["categories"].get(number, "") for number in event.category_iids])
        args = _arguments(event.annotations, texts)
        category = category or ",".join(map(_text, event.categories)) or "cuda_sync" * ("cuda_sync_kind" in args)
        if launched := event.gpu_correlation.event_ids:
            self.launches.update(dict.fromkeys(launched, args.setdefault("correlation", launched[0])))
        for flow in (*event.flow_ids, *event.terminating_flow_ids):
            yield _flow("f" if flow in self.flows else "s", flow % FIRST_DEPENDENCY, track, ns)
            self.flows.add(flow)
        before = encode({"cat": category, "name": name, **track})[1:-1] + b',"ts":' + _us(ns)
        row = ns, before, b',"args":%b}' % encode(args)
        if kind == COMPLETE:
            yield _complete(row, ns + event.legacy.duration_us * 1000)
        else:
            self.begun[uuid].append((ns, row))
            self.open[uuid] += 1

    def _stage(self, event: "pb.GpuRenderStageEvent", texts: Texts, ns: int) -> bytes:
        """Returns the row of an activity."""
        args: dict[str, Any] = {"device": event.gpu_id, "stream": event.queue_iid, "context": event.context}
        args["correlation"] = self.launches.get(event.event_id, 0)
        for item in event.extra_data:
            key, value = _text(item.name), _text(item.value)
            args[NUMBERS.get(key, key)] = integer(value, -1) if key in NUMBERS else value
        name = _text(event.name) or texts["names"].get(event.name_iid) or texts["stages"].get(event.stage_iid, "")
        track = {"pid": event.gpu_id, "tid": args["stream"]}
        category = texts["stage_categories"].get(event.stage_iid, "stage")
        if category == STAGES["EventRecord"]:
            self.events[event.event_id] = [*event.event_wait_ids]
            args.pop("graph node id", None)
        else:
            self.stages[event.event_id] = track, ns + event.duration
            self.waits += [(awaited, track, ns) for awaited in event.event_wait_ids]
        row = {"cat": category, "name": name, **track}
        before = encode(row)[1:-1] + b',"ts":' + _us(ns)
        return _complete((ns, before, b',"args":%b}' % encode(args)), ns + event.duration)


def _packet_at(data: bytes, at: int) -> tuple[int, int]:
    """Returns where the fields of the packet at a position begin and end: behind the data where its length is cut off.

    Raises ValueError where it is no packet.
    """
    size = 0
    for start, byte in enumerate(data[at + 1 : at + 6], at + 2):
        size |= (byte & 0x7F) << 7 * (start - at - 2)
        if byte < 0x80 and data[at] == PACKET and size <= LARGEST:
            return start, start + size
    if data[at : at + 1] not in (b"", b"\n") or len(data) > at + 5:
        raise ValueError
    return len(data), len(data) + 1


def _closed(events: list[tuple[int, Slice | None]]) -> Iterator[bytes]:
    """Yields the rows of a track's slices, given their begins and ends in the order of the file.

    A slice ends when those begun later have ended, unless all begun before any ended. Then PyTorch writes the ends in
    the order of the begins, which is seen by times that go back, or by no slice that begins within the one before.
    """
    runs = [[*run] for _, run in groupby(events, key=lambda event: event[1] is None)]
    if len(runs) == 2 and len(runs[0]) == len(runs[1]):
        (starts, slices), (ends, _) = (zip(*run, strict=True) for run in runs)
        goes_back = [*starts, *ends] != sorted([*starts, *ends])
        if goes_back or all(start >= end for start, end in zip(starts[1:], ends, strict=False)):
            yield from (_complete(row, end) for row, end in zip(slices, ends, strict=True) if row)
            return
    begun: list[Slice] = []
    for ns, row in sorted(events, key=itemgetter(0)):
        if row:
            begun.append(row)
        elif begun:
            yield _complete(begun.pop(), ns)
    yield from (b'{"ph":"B",%b%b' % row[1:] for row in begun)


def _complete(row: Slice, end: int) -> bytes:
    start, before, after = row
    return b'{"ph":"X",%b,"dur":%b%b' % (before, _us(end - start), after)


def _flow(phase: str, number: int, track: Track, ns: int) -> bytes:
    row = {"ph": phase, "id": number, **track, "cat": "ac2g", "name": "ac2g", "bp": "e"}
    return encode(row)[:-1] + b',"ts":%b}' % _us(ns)


def _us(ns: int) -> bytes:
    """Returns a time in µs, with the digits of its ns."""
    return b"%b%d.%03d" % (b"-" if ns < 0 else b"", *divmod(abs(ns), 1000))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _arguments(annotations: Iterable["pb.Annotation"], texts: Texts) -> dict[str, Any]:
    names = texts["annotation_names"]
    return {names.get(item.name_iid) or _text(item.name): _value(item, texts) for item in annotations}


def _value(annotation: "pb.Annotation", texts: Texts) -> Any:
    """Returns what an annotation says, as JSON has it."""
    kind = annotation.WhichOneof("value")
    if kind is None:
        items = annotation.items
        return _arguments(annotation.entries, texts) if annotation.entries else [_value(item, texts) for item in items]
    value = getattr(annotation, kind)
    return texts["strings"].get(value) if kind == "string_iid" else _text(value) if isinstance(value, bytes) else value
