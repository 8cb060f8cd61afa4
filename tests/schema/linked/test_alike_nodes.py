"""Nodes that are read by their shape are what they are when each is decoded."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from execgraph.linker import link
from execgraph.linker.readers import read_traces
from execgraph.schema.columns import Categorical
from execgraph.schema.linked import write_linked
from execgraph.schema.linked.alike_nodes import AlikeNodes
from execgraph.schema.linked.layout import ExactNode, Node
from execgraph.schema.linked.nodes import NodePiece, decoded_piece
from support.folders import DATA

NODES = (
    b'{"id":7,"name":"mm 1","ctrl_deps":3,"attrs":[],"ts":12.5,"inclusive_dur":3,"exclusive_dur":0.25,"thread":1}',
    b'{"id":1234567890123,"name":"mm 22","ctrl_deps":44,"attrs":[],"ts":123456.789,"inclusive_dur":33,'
    b'"exclusive_dur":1.005,"thread":1}',
    b'{"id":8,"name":"k","cat":"kernel","device":-1,"stream":7,"sync_dep":[5,66]}',
    b'{"id":9,"name":"k","cat":"kernel","device":-1,"stream":7,"sync_dep":[77,8]}',
    b'{"id":10,"name":"x","attrs":[{"name":"rf_id","value":5},{"name":"kernel_file","value":"a10.py"}]}',
)


def decoded(elements: bytes) -> NodePiece:
    text = b"[" + elements + b"]"
    nodes = msgspec.json.decode(text, type=list[Node])
    return decoded_piece(nodes, lambda: msgspec.json.decode(text, type=list[ExactNode]))


def assert_equal(a: NodePiece, b: NodePiece) -> None:
    for name, x, y in zip(NodePiece._fields, a, b, strict=True):
        if name == "times":
            assert all(np.array_equal(*columns) for columns in zip(x, y, strict=True))
        elif name == "integers":
            assert x.keys() == y.keys()
            assert all(np.array_equal(x[key], y[key]) for key in x)
        elif name == "texts":
            assert {key: texts_of(column) for key, column in x.items()} == {
                key: texts_of(column) for key, column in y.items()
            }
        elif isinstance(x, np.ndarray):
            assert np.array_equal(x, y), name
        else:
            assert x == y, name


def texts_of(column: Categorical) -> list[str]:
    return [column.table[code] for code in column.codes.tolist()]


def test_numbers_names_waits_and_further_attributes_are_those_of_each_node() -> None:
    elements = b",\n".join(NODES)
    piece = AlikeNodes().piece(elements)
    assert piece is not None
    assert_equal(piece, decoded(elements))


@pytest.mark.parametrize("run", ["ddp", "compiled", "threads", "training"])
def test_all_nodes_of_a_linked_file_are_read_so(tmp_path: Path, run: str) -> None:
    write_linked(
        link(*read_traces(str(DATA / run / "host_rank0.json.gz"), str(DATA / run / "device_rank0.json.gz"))),
        str(tmp_path / "linked.json"),
    )
    elements = (tmp_path / "linked.json").read_bytes().partition(b'"nodes":[\n')[2].partition(b"],\n")[0]
    kept = b",\n".join(line.removesuffix(b",") for line in elements.split(b"\n") if b"\\" not in line)
    piece = AlikeNodes().piece(kept)
    assert piece is not None
    assert_equal(piece, decoded(kept))


@pytest.mark.parametrize(
    "node",
    [
        b'{"id":07,"name":"x"}',
        b'{"id":7,"name":"x\\u0041"}',
        b'{"id":7,"name":"x","ts":1e3}',
        b'{"id":7,"name":"x","ts":1.2345}',
        b'{"id":9223372036854775807,"name":"x"}',
        b'{"id":7,"name":"x","inputs":7}',
        b'{"id":7,"name":"x","attrs":[{"name":"rf_id","value":"5"}]}',
        b'{"id":7,\n"name":"x"}',
        b'{"id":7}',
        b'{"id":7,"name":"x"',
    ],
)
def test_odd_nodes_are_left_to_the_decoder(node: bytes) -> None:
    assert AlikeNodes().piece(NODES[0] + b",\n" + node) is None
