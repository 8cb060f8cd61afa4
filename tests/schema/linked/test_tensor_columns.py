"""Tensors and members of arguments that are found by the shape of texts are those that each text holds."""

from collections import Counter

import pytest
from execgraph.linker.readers import read_host_trace
from execgraph.schema.columns import BytesColumn
from execgraph.schema.linked import HOST, NOWHERE, TENSOR, TensorReader, argument_lists, member_texts, usable_arguments
from support.folders import DATA

TEXTS = (
    b'{"values": [[3,4,0,6,4,"cuda:0"],5], "shapes": [[2,3],[]], "types": ["Tensor(float)","Int"], "strides": [[3,1],[]]}',
    b'{"values": [[31,42,100,6,4,"cuda:11"],5], "shapes": [[2,3],[]], "types": ["Tensor(float)","Int"], "strides": [[50,1],[]]}',
    b'{"values": [], "shapes": [], "types": []}',
    b'{"values":[],"shapes":[],"types":[]}',
    b'{"values": [1,[[7,8,0,1,8,"cpu"],[9,10,2,3,8,"meta"]]], "shapes": [[],[[],[3]]], "types": ["Int","List"]}',
    b'{"values": [[1,1000000000000000000,0,1,4,"cuda:0"]], "shapes": [[1]], "types": ["Tensor(float)"]}',
    b'{"shapes": [[1]], "values": [[1,2,0,1,4,"cuda"]], "types": ["a:1"]}',
    b'{"values": ["{\\"ranks\\": [0, 1]}"], "shapes": [[]], "types": ["String"]}',
)


def recorded(name: str) -> list[bytes]:
    trace = read_host_trace(str(DATA / name / "host_rank0.json.gz"))
    return [*trace.inputs, *trace.outputs]


@pytest.mark.parametrize("texts", [[*TEXTS], recorded("ddp"), recorded("attention")], ids=["odd", "ddp", "attention"])
def test_the_same_tensors_are_found_as_in_each_text(texts: list[bytes]) -> None:
    tensors = TensorReader().of(texts)
    columns = (tensors.storage, tensors.offset, tensors.elements, tensors.size)
    rows: dict[int, list[tuple[int, ...]]] = {}
    for row, *numbers in zip(tensors.row.tolist(), *(column.tolist() for column in columns), strict=True):
        rows.setdefault(row, []).append(tuple(numbers))
    for row, text in enumerate(texts):
        assert rows.get(row, []) == [tuple(map(int, match[:4])) for match in TENSOR.findall(text)]


def test_of_a_tensor_the_argument_device_and_what_it_spans_are_known() -> None:
    tensors = TensorReader().of(TEXTS[:5])
    assert tensors.argument.tolist() == [0, 0, 1, 1]
    assert tensors.device.tolist() == [0, 11, HOST, NOWHERE]
    assert tensors.spanned.tolist() == [6, 53, 0, 0]


@pytest.mark.parametrize("texts", [[*TEXTS], recorded("ddp")], ids=["odd", "ddp"])
def test_members_are_those_of_each_text(texts: list[bytes]) -> None:
    members = member_texts(BytesColumn.of(texts), Counter())
    usable = usable_arguments(texts, Counter())
    for column, name in zip(members, ("values", "shapes", "types"), strict=True):
        listed = [argument_lists(b'{"%b":%b}' % (name.encode(), text), name) for text in column]
        assert listed == [argument_lists(text, name) for text in usable]
