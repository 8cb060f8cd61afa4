"""A graph depends on what the files say, not on how they are written: order of rows and keys, blanks, escapes."""

import gzip
import json
from pathlib import Path
from random import Random

import pytest
from execgraph.converter.convert import convert
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.linked import NO_TENSORS, plain_arguments, read_linked, write_linked
from fuzz.texts import spelled_in_every_way, with_rows_shuffled
from support.folders import DATA

from support.builder import TraceBuilder

CAPTURES = "training", "gloo_fast", "torch_2.1.2", "torch_2.14.0"


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
        assert written(tmp_path, change(host, random), device)[1] == graph, f"{change.__name__} of the host trace"
        assert written(tmp_path, host, change(device, random))[1] == graph, f"{change.__name__} of the device trace"
        (tmp_path / "linked.json").write_bytes(change(linked, random))
        assert graph_of(tmp_path / "linked.json") == graph, f"{change.__name__} of the linked trace"


def test_ops_of_one_span_lie_in_each_other_as_they_were_numbered(tmp_path: Path) -> None:
    t = TraceBuilder("2.13", rank=0, world_size=2)
    t.collective(group=t.group([0, 1]), tensors=[t.tensor((4, 8))])
    host, device = (path.read_bytes() for path in t.write(tmp_path))
    ops = [row for row in json.loads(device)["traceEvents"] if row.get("cat") == "cpu_op"]
    assert len({(row["ts"], row["dur"]) for row in ops}) < len(ops)
    graphs = {written(tmp_path, host, with_rows_shuffled(device, Random(seed)))[1] for seed in range(10)}
    assert graphs == {written(tmp_path, host, device)[1]}


def test_delays_that_begin_together_are_in_the_order_of_what_they_delay(tmp_path: Path) -> None:
    t = TraceBuilder()
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


def test_equal_arguments_are_equal_texts() -> None:
    plain = b'{"values": [[1,2],"a , b",true], "shapes": [[],[]], "types": ["Tensor(\xc3\xa9)"], "strides": [[]]}'
    for way in range(50):
        assert plain_arguments([spelled_in_every_way(plain, Random(way))]) == [plain]
    assert plain_arguments([plain]) == [plain]


def test_numbers_among_arguments_stay_as_they_are_written() -> None:
    texts = [b'{"values": [-0.010000,1e3], "shapes": [[],[]], "types": ["Double","Double"]}']
    assert plain_arguments(texts) == texts


@pytest.mark.parametrize(
    "text", ["{}", '{"types":[],"values": []}', '{"values": [], "shapes": [], "types": []}', '{ "shapes" : [ ] }']
)
def test_no_arguments_are_one_text(text: str) -> None:
    assert plain_arguments([text.encode()]) == [NO_TENSORS]


def test_blanks_and_escapes_in_texts_stay() -> None:
    texts = [b'{"values": [" [1, 2] ", "x  y", "\\"\\\\n\\n: [ , "], "shapes": [], "types": ["a: [", ", "]}']
    expected = [texts[0].replace(b'", "x', b'","x').replace(b'y", "', b'y","').replace(b'[", ",', b'[",",')]
    assert plain_arguments(texts) == expected and json.loads(texts[0]) == json.loads(expected[0])
