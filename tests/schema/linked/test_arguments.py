"""What schemas say of the arguments of an op: their positions, and which are written.

Tensors and members of arguments that are found by the form of texts are those that each text holds.
"""

from collections import Counter

import numpy as np
import pytest
from execgraph.linker.readers import read_host_trace
from execgraph.schema import linked
from execgraph.schema.columns import BytesColumn, OpRows
from execgraph.schema.linked import HOST, argument_lists, read_arguments, recorded_tensors, usable_arguments
from execgraph.schema.reasons import Counts, Reason
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
    b'{"values": [{"a": [5,6,7,8,2,"cpu:0"]}], "shapes": [[]], "types": ["Dict"]}',
)


def recorded(name: str) -> list[bytes]:
    trace = read_host_trace(str(DATA / name / "host_rank0.json.gz"))
    return [*trace.inputs, *trace.outputs]


@pytest.mark.parametrize("texts", [[*TEXTS], recorded("ddp"), recorded("attention")], ids=["odd", "ddp", "attention"])
def test_the_same_tensors_are_found_as_in_each_text(texts: list[bytes]) -> None:
    found = read_arguments(texts, ()).tensors
    columns = (found.tensor, found.storage, found.offset, found.elements, found.size, found.argument)
    rows: dict[int, list[tuple[int, ...]]] = {}
    for row, *numbers in zip(found.row.tolist(), *(column.tolist() for column in columns), strict=True):
        rows.setdefault(row, []).append(tuple(numbers))
    for row, text in enumerate(texts):
        assert rows.get(row, []) == [(*tensor[:5], tensor.argument) for tensor in recorded_tensors(text)]


def test_of_a_tensor_the_argument_device_and_what_it_spans_are_known() -> None:
    tensors = read_arguments(TEXTS, ()).tensors
    assert tensors.argument.tolist() == [0, 0, 1, 1, 0, 0]
    assert tensors.device.tolist() == [0, 11, HOST, -2, 0, HOST]
    assert tensors.spanned.tolist() == [6, 53, 0, 0, 0, 0]


def test_tensors_are_by_op_its_arguments_before_its_results() -> None:
    found = read_arguments(TEXTS[:2], TEXTS[:5:4]).tensors
    assert [*zip(found.row.tolist(), found.is_output.tolist(), found.storage.tolist(), strict=True)] == [
        (0, False, 4), (0, True, 4), (1, False, 42), (1, True, 8), (1, True, 10),
    ]  # fmt: skip
    assert (found.low.tolist(), found.high.tolist()) == ([0, 0, 400, 0, 16], [24, 24, 424, 8, 40])
    chosen = found.of(OpRows(np.array([1, 0])))
    assert (chosen.row.tolist(), chosen.storage.tolist()) == ([0, 0, 0, 1, 1], [42, 8, 10, 4, 4])


@pytest.mark.parametrize(
    "text",
    [
        b'{"values": [[1,2,0,1,4,"cuda:0"]], "shapes": [[1,2,3,4,5,"x"]], "types": []}',
        b'{"values": [[1,2,0,1,4,"cuda:0"]], "values": [7]}',
        b'{"values": {"a": 1}, "shapes": [[1,2,3,4,5,"x"]]}',
    ],
)
def test_what_only_looks_like_a_tensor_is_none_and_other_texts_keep_theirs(text: bytes) -> None:
    found = read_arguments([TEXTS[0], text, TEXTS[1]], ()).tensors
    assert (found.row.tolist(), found.storage.tolist()) == ([0, 2], [4, 42])


def test_line_ends_in_texts_are_blanks() -> None:
    texts = [text.replace(b" ", b"\n") for text in TEXTS]
    assert read_arguments(texts, ()).tensors.storage.tolist() == read_arguments(TEXTS, ()).tensors.storage.tolist()


@pytest.mark.parametrize("texts", [[*TEXTS], recorded("ddp")], ids=["odd", "ddp"])
def test_members_are_those_of_each_text(texts: list[bytes]) -> None:
    skipped, skipped_one_by_one = Counter[str](), Counter[str]()
    members = linked.member_texts(BytesColumn.of(texts), read_arguments(texts, ()).input_form, skipped)
    usable = usable_arguments(texts, skipped_one_by_one)
    for column, name in zip(members, ("values", "shapes", "types"), strict=True):
        listed = [argument_lists(b'{"%b":%b}' % (name.encode(), text), name) for text in column]
        assert listed == [argument_lists(text, name) for text in usable]
    assert skipped == skipped_one_by_one


def test_arguments_that_are_no_lists_and_tensors_too_large_are_counted_in_the_order_of_members():
    skipped = Counts()
    text = b'{"types":5,"values":[[%b,2,0,1,4,"cuda"]],"shapes":5}' % (20 * b"9")
    assert usable_arguments([text], skipped) == [b'{"types":[],"values":[[]],"shapes":[]}']
    assert list(skipped.items()) == [(Reason.TENSORS_TOO_LARGE, 1), (Reason.ARGUMENTS_NO_LISTS, 2)]


ADD = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
OUT = "aten::max.dim_max(Tensor self, int dim, *, Tensor(a!) max, Tensor(b!) max_values) -> (Tensor(a!), Tensor(b!))"
LIST = "aten::f(Tensor(a -> *) self, int[2] stride=[1, 1], Tensor(b!) last) -> Tensor"


@pytest.mark.parametrize(
    ("schema", "names", "written", "only_written"),
    [
        (ADD, "self other alpha", (0,), ()),
        (OUT, "self dim max max_values", (2, 3), (2, 3)),
        (LIST, "self stride last", (2,), ()),
        ("aten::f() -> ()", "", (), ()),
        ("", "", (), ()),
    ],
)
def test_written_arguments_are_marked_and_those_by_name_alone_are_not_read(schema, names, written, only_written):
    assert linked.declared_arguments(schema) == (tuple(names.split()), written, only_written)
