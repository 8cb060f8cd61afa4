"""Perfetto traces, as PyTorch writes them, become the rows of Kineto's: every time exact, every wait an arrow."""

import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from execgraph.converter.convert import convert
from execgraph.linker.link import link
from execgraph.linker.readers import open_trace, read_device_trace, read_host_trace
from execgraph.schema import perfetto_trace_pb2 as pb
from execgraph.schema.errors import DataError
from execgraph.tools.generate import build_job, simulate, write_traces
from execgraph.tools.recognise import InputKind, recognise
from support.device_formats import write_perfetto
from support.graphs import read_nodes

START = 1_800_000_000_000_000_000
BEGIN, END = "BEGIN", "END"


def written(path: Path, *packets: pb.Packet) -> Path:
    path.write_bytes(pb.Trace(packet=packets).SerializeToString())
    return path


def packet(ns: int = 0, **fields: Any) -> pb.Packet:
    return pb.Packet(timestamp=START + ns, sequence=1, **fields)


def interned(*packets: pb.Packet, **texts: Sequence[str]) -> pb.Packet:
    data = {kind: [{"iid": iid, "name": text.encode()} for iid, text in enumerate(t, 1)] for kind, t in texts.items()}
    return pb.Packet(sequence=1, sequence_flags=1, interned_data=pb.InternedData(**data))


def begin(ns: int, name: str, **fields: Any) -> pb.Packet:
    return packet(ns, track_event=pb.TrackEvent(**{"type": BEGIN, "track_uuid": 7, "name": name.encode(), **fields}))


def end(ns: int) -> pb.Packet:
    return packet(ns, track_event=pb.TrackEvent(type=END, track_uuid=7))


def stage(ns: int, number: int, **fields: Any) -> pb.Packet:
    event = pb.GpuRenderStageEvent(event_id=number, duration=10, gpu_id=2, queue_iid=5, stage_iid=1, **fields)
    return packet(ns, gpu_render_stage_event=event)


def rows(path: Path) -> list[dict[str, Any]]:
    with open_trace(str(path)) as stream:
        return json.loads(stream.read())["traceEvents"]  # type: ignore[no-any-return]


def spans(path: Path) -> set[tuple[str, int, int]]:
    return {(row["name"], round(row["ts"] * 1000), round(row["dur"] * 1000)) for row in rows(path) if row["ph"] == "X"}


THREAD = packet(track_descriptor=pb.TrackDescriptor(uuid=7, thread={"pid": 40, "tid": 41, "name": b"main"}))


@pytest.mark.parametrize(("job", "machine"), [("towers", 3), ("ddp", None), ("pipeline", 3)])
def test_a_job_has_the_same_graph_from_both_formats(job: str, machine: int | None, tmp_path: Path) -> None:
    from execgraph.tools.generate import DEFAULT, draw_machine

    run = simulate(build_job(job, steps=2, layers=2, machine=DEFAULT if machine is None else draw_machine(machine)))
    graphs = []
    for name in ("kineto", "perfetto"):
        host, device = write_traces(run, tmp_path / name, stacks=2)[0]
        device = write_perfetto(device) if name == "perfetto" else device
        linked = link(read_host_trace(str(host)), read_device_trace(str(device)), rank=0)
        convert(linked).write(str(tmp_path / f"{name}.et"))
        graphs.append(read_nodes(tmp_path / f"{name}.et"))
    assert graphs[0] == graphs[1]
    assert recognise(device).kind is InputKind.DEVICE and recognise(device).pid == run.ranks[0].pid


def test_texts_are_those_of_the_sequence_until_it_clears_them(tmp_path: Path) -> None:
    texts = {"names": ["aten::mm"], "categories": ["cpu_op"], "annotation_names": ["Input Dims"], "strings": ["é"]}
    nested = pb.Annotation(name_iid=1, items=[pb.Annotation(items=[pb.Annotation(int_value=2)]), pb.Annotation()])
    values = [
        nested,
        pb.Annotation(name=b"s", string_iid=1),
        pb.Annotation(name=b"d", entries=[{"name": b"x", "bool_value": True}]),
    ]
    by_number = pb.TrackEvent(type=BEGIN, track_uuid=7, name_iid=1, category_iids=[1], annotations=values)
    of_other = pb.Packet(timestamp=START + 4, sequence=2, track_event=by_number)
    cleared = pb.Packet(sequence=1, incremental_state_cleared=True)
    path = written(
        tmp_path / "t",
        THREAD,
        interned(**texts),
        packet(1, track_event=by_number),
        end(3),
        of_other,
        end(5),
        cleared,
        packet(6, track_event=by_number),
        end(7),
    )
    name, first, *others = rows(path)
    assert name == {"ph": "M", "name": "thread_name", "pid": 40, "tid": 41, "args": {"name": "main"}}
    args = {"Input Dims": [[2], []], "s": "é", "d": {"x": True}}
    row = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 40, "tid": 41, "ts": 0.001, "dur": 0.002}
    assert first == row | {"args": args}
    assert [(row["name"], row["cat"]) for row in others] == [("", ""), ("", "")]


def test_stages_are_activities_of_their_launch_and_wait_for_others(tmp_path: Path) -> None:
    kinds = [{"iid": 1, "name": b"gemm", "category": 2}, {"iid": 3, "name": b"Memset"}, {"iid": 4, "name": b"Draw"}]
    launched = begin(1, "cudaGraphLaunch", categories=[b"cuda_runtime"], gpu_correlation={"event_ids": [11, 12]})
    extra = [{"name": b"stream id", "value": b"9"}, {"name": b"correlation", "value": b"77"}]
    own = pb.GpuRenderStageEvent(
        event_id=13, duration=5, gpu_id=2, stage_iid=3, extra_data=extra, event_wait_ids=[11, 12, 99]
    )
    path = written(
        tmp_path / "t", THREAD, interned(names=["k"]), pb.Packet(sequence=1, interned_data=pb.InternedData(stages=kinds)), launched,
        end(4), stage(5, 11, name_iid=1), stage(15, 12, name=b"k2", event_wait_ids=[11]), packet(25, gpu_render_stage_event=own),
        packet(30, gpu_counter_event=pb.GpuCounterEvent()),
    )  # fmt: skip
    _, call, first, second, third, counter, *flows = rows(path)
    assert [(row["cat"], row["name"], row["pid"], row["tid"], row["args"]["correlation"]) for row in (first, second, third)] == [
        ("kernel", "k", 2, 5, 11), ("kernel", "k2", 2, 5, 11), ("gpu_memset", "Memset", 2, 9, 77)
    ]  # fmt: skip
    assert call["args"] == {"correlation": 11}
    assert counter["ph"] == "C"  # without a value that is read, but it was there
    arrows = [(row["ph"], row["id"] - 2**40, row["cat"], row["tid"], round(row["ts"] * 1000)) for row in flows]
    assert arrows == [
        ("s", 0, "ac2g", 5, 15), ("f", 0, "ac2g", 5, 15), ("s", 1, "ac2g", 5, 15), ("f", 1, "ac2g", 9, 25),
        ("s", 2, "ac2g", 5, 25), ("f", 2, "ac2g", 9, 25), ("s", 3, "ac2g", 9, 25),
    ]  # fmt: skip


def test_who_waits_for_an_event_within_a_graph_waits_for_what_that_follows(tmp_path: Path) -> None:
    kinds = [{"iid": 1, "name": b"Kernel"}, {"iid": 2, "name": b"EventRecord"}]
    stages = ((1, 1, 0, []), (2, 2, 10, [1, 3]), (3, 2, 10, [2]), (4, 1, 10, [2]))
    extra = [{"name": b"correlation", "value": b"5"}]
    events = [
        pb.GpuRenderStageEvent(
            event_id=number, stage_iid=kind, duration=10 * (kind == 1), event_wait_ids=waits, queue_iid=number,
            extra_data=[*extra, {"name": b"graph node id", "value": b"%d" % number}],
        )
        for number, kind, _, waits in stages
    ]  # fmt: skip
    of_stages = [packet(ns, gpu_render_stage_event=event) for event, (_, _, ns, _) in zip(events, stages, strict=True)]
    data = pb.Packet(sequence=1, interned_data=pb.InternedData(stages=kinds))
    path = written(tmp_path / "t", THREAD, data, begin(0, "launch", categories=[b"cuda_runtime"]), end(1), *of_stages)
    linked = link(None, read_device_trace(str(path)))
    assert (linked.device_waits.source_row.tolist(), linked.device_waits.target_row.tolist()) == ([0], [1])


@pytest.mark.parametrize(
    ("packets", "expected"),
    [
        ([begin(0, "a"), begin(2, "b"), end(4), end(9)], {("a", 0, 9), ("b", 2, 2)}),
        ([begin(0, "a"), begin(2, "b"), end(9), end(4)], {("a", 0, 9), ("b", 2, 2)}),
        ([begin(0, "a"), begin(5, "b"), end(5), end(9)], {("a", 0, 5), ("b", 5, 4)}),
        ([begin(0, "a"), end(5), begin(5, "b"), end(9)], {("a", 0, 5), ("b", 5, 4)}),
        ([begin(7, "a"), begin(0, "b"), end(9), end(3)], {("a", 7, 2), ("b", 0, 3)}),
        ([begin(3, "a"), end(5), end(6), begin(7, "b")], {("a", 3, 2)}),
    ],
    ids=["nested", "in PyTorch's order", "one after the other", "at once", "in no order", "unpaired"],
)
def test_ends_are_those_of_their_begins(packets: list[pb.Packet], expected: set[Any], tmp_path: Path) -> None:
    assert spans(written(tmp_path / "t", packet(), THREAD, *packets)) == expected


def test_clocks_are_that_of_the_trace(tmp_path: Path) -> None:
    clocks = [(6, 500, False, 1), (1, START, False, 1), (3, 100, False, 1), (64, 7, True, 1000)]
    snapshot = pb.ClockSnapshot(
        clocks=[
            dict(zip(("clock_id", "timestamp", "is_incremental", "unit_multiplier_ns"), c, strict=True)) for c in clocks
        ]
    )
    at = lambda ns, clock, kind, name: pb.Packet(  # noqa: E731
        timestamp=ns,
        timestamp_clock_id=clock,
        sequence=1,
        track_event=pb.TrackEvent(type=kind, track_uuid=7, name=name),
    )
    path = written(
        tmp_path / "t", pb.Packet(timestamp=500, sequence=1, clock_snapshot=snapshot), at(100, 3, BEGIN, b"a"), at(150, 3, END, b""),
        at(2, 64, BEGIN, b"b"), at(1, 64, END, b""),
    )  # fmt: skip
    with open_trace(str(path)) as stream:
        assert json.loads(stream.read())["baseTimeNanoseconds"] == START
    assert spans(path) == {("a", 0, 50), ("b", 2000, 1000)}


def test_packed_packets_and_old_events_are_read(tmp_path: Path) -> None:
    old = pb.TrackEvent(legacy={"phase": ord("X"), "duration_us": 3}, name=b"a", flow_ids=[5])
    inner = pb.Trace(packet=[packet(1, track_event=old), packet(2, track_event=pb.TrackEvent(type="INSTANT"))])
    path = written(tmp_path / "t", packet(), pb.Packet(compressed_packets=zlib.compress(inner.SerializeToString())))
    assert spans(path) == {("a", 1, 3000)} and [row["ph"] for row in rows(path)] == ["s", "X", "i"]


def cut(data: bytes, share: float) -> bytes:
    return data[: int(len(data) * share)]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.9])
def test_a_file_that_is_cut_off_is_read_as_far_as_it_is_whole(
    share: float, compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    files = write_traces(simulate(build_job("simple", steps=3, layers=1)), tmp_path)
    path = tmp_path / "cut.pftrace"
    path.write_bytes(cut(compress(write_perfetto(files[0].device).read_bytes()), share))
    if share <= 0.5:
        with pytest.raises(DataError, match=r"^\S+cut\.pftrace[: ][^\n]+$"):
            read_device_trace(str(path))
        return
    trace = read_device_trace(str(path))
    assert len(trace.ops.start) and trace.ends_early
    assert any("is cut off after byte" in note for note in trace.notes)
    with pytest.raises(DataError, match="leave"):
        read_device_trace(str(path), strict=True)


def test_a_packet_that_cannot_be_decoded_is_counted(tmp_path: Path) -> None:
    path = written(tmp_path / "t", packet(), THREAD, begin(0, "aten::mm", categories=[b"cpu_op"]), end(4))
    path.write_bytes(path.read_bytes() + b"\n\x02\xff\xff")
    trace = read_device_trace(str(path))
    assert len(trace.ops.start) == 1 and sum(trace.skipped.values()) == 1


@pytest.mark.parametrize("head", [b"\n{", b"\n\n\n\n", b"\nabc\n", b"\n\x0a\x0a\x08version0", b'\n[{"ph": "X"}]'])
def test_other_files_that_begin_with_a_line_are_no_packets(head: bytes, tmp_path: Path) -> None:
    from execgraph.linker.readers.perfetto import begins_perfetto

    assert not begins_perfetto(head)
