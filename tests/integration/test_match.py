"""Host ops find their counterparts in the device trace, or the pair is refused with the evidence.

A graph depends on what the files say, not on how they are written: order of rows and keys, blanks.
"""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from execgraph.converter.convert import convert
from execgraph.linker.link import link
from execgraph.linker.match import match_ops
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.linked import NO_TENSORS, plain_arguments, read_linked, write_linked
from execgraph.schema.reasons import Reason
from fuzz.texts import spelled_in_every_way, with_rows_shuffled
from support.builder.timeline import TraceBuilder
from support.folders import DATA
from support.runs import convert_linked, read_pair

LAYER = ("aten::linear", "aten::relu", "aten::linear", "aten::add")


def layers(t: TraceBuilder, names: Sequence[str] = LAYER, **described: Any) -> None:
    for name in names:
        with t.op(name, **described):
            t.work(2)
            t.launch(f"{name} kernel", duration=3)


# A window of a longer host trace, and files that overlap


def seen_by(t: TraceBuilder, only: str) -> None:
    """An iteration that both traces hold (""), or one of them; work that the host trace alone holds has no calls."""
    if only == "host":
        for name in LAYER:
            t.leaf(name, 6, only="host")
    else:
        layers(t, only=only)


def overlapping(torch: str, held_by: Sequence[str], *, marked: bool) -> TraceBuilder:
    """Identical iterations, each held by both traces or by one, in steps from 3 on if these are marked."""
    t = TraceBuilder(torch=torch)
    for number, only in enumerate(held_by, 3):
        if marked:
            with t.annotation(f"ProfilerStep#{number}", only=only):
                seen_by(t, only)
        else:
            seen_by(t, only)
    return t


def matched_rightly(t: TraceBuilder) -> bool:
    """Whether the ops that both traces hold are matched, each with itself."""
    host, device = read_pair(t)
    found = match_ops(host, device)
    starts = {op.id: op.start + t.origin_ns for op in t.ops if not op.only}
    rows = zip(host.id[found.host_row].tolist(), device.ops.start[found.device_row].tolist(), strict=True)
    return dict(rows) == starts


HOST_IS_LONGER = ["host", "", "host"]
DEVICE_IS_LONGER = ["device", "", "device"]
HOST_ENDS_FIRST = ["host", "host", "", "device", "device"]
DEVICE_ENDS_FIRST = ["device", "device", "", "host", "host"]


@pytest.mark.parametrize("held_by", [HOST_IS_LONGER, DEVICE_IS_LONGER, HOST_ENDS_FIRST, DEVICE_ENDS_FIRST])
@pytest.mark.parametrize(("torch", "marked"), [("2.1", True), ("2.13", True), ("2.13", False)])
def test_what_both_files_hold_is_linked_and_the_rest_is_counted(torch: str, marked: bool, held_by: list[str]) -> None:
    """By ids, or by the marks of steps, which tell identical iterations apart."""
    t = overlapping(torch, held_by, marked=marked)
    assert matched_rightly(t)
    linked = link(*read_pair(t))
    nodes, dropped, size = convert_linked(linked), linked.report.dropped, len(LAYER) + marked
    assert nodes.report.activities == linked.report.activities == len(LAYER)
    assert nodes.replay_error() == 0
    assert linked.report.matched == size and linked.report.agreement_pct == 100
    assert any(note.startswith("the host trace covers ") for note in linked.report.notes) == ("device" in held_by)
    assert dropped.get(Reason.OPS_OUTSIDE, 0) == size * held_by.count("device")
    assert dropped.get(Reason.HOST_OPS_OUTSIDE, 0) == size * held_by.count("host")


def test_a_thread_with_one_step_says_where_a_larger_one_without_lies() -> None:
    t = TraceBuilder(torch="2.1")
    for number, only in enumerate(("device", "", "device"), 3):
        with t.annotation(f"ProfilerStep#{number}", only=only):
            with t.thread(2, start=t.now):
                for _ in range(6):
                    t.leaf("aten::sum", 5, only=only)
            t.leaf("aten::mm", 50, only=only)
    assert matched_rightly(t)
    assert link(*read_pair(t)).report.agreement_pct == 100


# Equal content

CAPTURES = "training", "torch_2.1.2"


def text_of(capture: str, kind: str) -> bytes:
    """A file of a capture with numbers as Python writes them: those in arguments are quoted as they stand."""
    return json.dumps(json.loads(gzip.decompress((DATA / capture / f"{kind}_rank0.json.gz").read_bytes()))).encode()


def written(folder: Path, host: bytes, device: bytes) -> tuple[bytes, bytes]:
    """The linked trace of a pair, and its graph."""
    paths = [folder / name for name in ("host.json", "device.json", "linked.json", "graph.et")]
    for path, content in zip(paths, (host, device), strict=False):
        path.write_bytes(content)
    write_linked(link(read_host_trace(str(paths[0])), read_device_trace(str(paths[1]))), str(paths[2]))
    return paths[2].read_bytes(), graph_of(paths[2])


def graph_of(linked: Path) -> bytes:
    target = linked.with_name("graph.et")
    convert(read_linked(str(linked))).write(str(target))
    return target.read_bytes()


@pytest.mark.parametrize("capture", CAPTURES)
def test_the_same_content_gives_the_same_graph(capture: str, tmp_path: Path) -> None:
    host, device = text_of(capture, "host"), text_of(capture, "device")
    linked, graph = written(tmp_path, host, device)
    random = Random(7)
    for change in (with_rows_shuffled, spelled_in_every_way):
        assert written(tmp_path, change(host, random), change(device, random))[1] == graph, change.__name__
        (tmp_path / "linked.json").write_bytes(change(linked, random))
        assert graph_of(tmp_path / "linked.json") == graph, f"{change.__name__} of the linked trace"


def test_ops_of_one_span_lie_in_each_other_as_they_were_numbered(tmp_path: Path) -> None:
    t = TraceBuilder("2.13", rank=0, world_size=2)
    t.collective(group=t.group([0, 1]), tensors=[t.tensor((4, 8))])
    host, device = (path.read_bytes() for path in t.write(tmp_path))
    ops = [row for row in json.loads(device)["traceEvents"] if row.get("cat") == "cpu_op"]
    assert len({(row["ts"], row["dur"]) for row in ops}) < len(ops)
    graphs = {written(tmp_path, host, with_rows_shuffled(device, Random(seed)))[1] for seed in range(4)}
    assert graphs == {written(tmp_path, host, device)[1]}


def test_delays_that_begin_together_are_in_the_order_of_what_they_delay(t: TraceBuilder, tmp_path: Path) -> None:
    with t.op("aten::mm"):
        for number in range(6):
            t.launch(f"kernel {number}", 7, 10)
        event = t.record_event(stream=7)
        for stream in (8, 9):
            t.wait_event(event, stream=stream)
            t.launch(f"held {stream}", stream, 10, start=100 * stream)
    host, device = (path.read_bytes() for path in t.write(tmp_path))
    graphs = {written(tmp_path, host, with_rows_shuffled(device, Random(seed)))[1] for seed in range(4)}
    assert graphs == {written(tmp_path, host, device)[1]}


def test_equal_arguments_are_equal_texts_and_numbers_blanks_and_escapes_in_texts_stay() -> None:
    plain = b'{"values": [[1,2],"a , b",true], "shapes": [[],[]], "types": ["Tensor(float)"], "strides": [[]]}'
    for way in range(50):
        assert plain_arguments([spelled_in_every_way(plain, Random(way))]) == [plain]
    numbers = b'{"values": [-0.010000,1e3], "shapes": [[],[]], "types": ["Double","Double"]}'
    assert plain_arguments([plain, numbers]) == [plain, numbers]
    for text in ("{}", '{"types":[],"values": []}', '{"values": [], "shapes": [], "types": []}', '{ "shapes" : [ ] }'):
        assert plain_arguments([text.encode()]) == [NO_TENSORS]
    texts = [b'{"values": [" [1, 2] ", "x  y", "\\"\\\\n\\n: [ , "], "shapes": [], "types": ["a: [", ", "]}']
    expected = [texts[0].replace(b'", "x', b'","x').replace(b'y", "', b'y","').replace(b'[", ",', b'[",",')]
    assert plain_arguments(texts) == expected and json.loads(texts[0]) == json.loads(expected[0])
