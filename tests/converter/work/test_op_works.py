"""Operations and bytes of single ops: as torch.utils.flop_counter counts them on a captured run, and as counted by
hand.
"""

import json
import re
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from execgraph.converter.work import RULES, RecordedOp, Tensor, Unknown, Work, work_of
from execgraph.converter.work.products import ARGUMENTS
from execgraph.converter.work.recorded_op import recorded_by_device, recorded_by_host
from execgraph.linker.readers import HostTrace, read_host_trace
from execgraph.schema.columns import BytesColumn, OpRows
from execgraph.schema.linked import NO_TENSORS, Arguments, RecordedArguments, declared_arguments
from support.folders import DATA
from support.graphs import FLOAT, HALF, LONG, tensors, work

COUNTED: list[list[Any]] = json.loads((DATA / "operators_counted.json").read_text())
NAMES = {name for name, _ in COUNTED}


def recorded(trace: HostTrace, row: int) -> RecordedOp:
    arguments = trace.arguments
    return recorded_by_host(trace.name[row], trace.schema_text[row], arguments.inputs(row), arguments.outputs(row))


def as_read(text: str | bytes) -> RecordedArguments:
    return RecordedArguments.of(text.encode() if isinstance(text, str) else text)


def callers(trace: HostTrace, row: int) -> list[str]:
    rows = {number: at for at, number in enumerate(trace.id.tolist())}
    found: list[str] = []
    while (above := rows.get(int(trace.parent[row]), row)) != row:
        row = above
        found.append(trace.name[row])
    return found


def test_what_pytorch_counts_is_counted_exactly() -> None:
    trace = read_host_trace(str(DATA / "operators.json.gz"))
    rows = sorted(range(len(trace)), key=trace.id.tolist().__getitem__)
    counted = [row for row in rows if trace.name[row] in NAMES and NAMES.isdisjoint(callers(trace, row))]
    assert [[trace.name[row], work_of(recorded(trace, row)).operations] for row in counted] == COUNTED


@pytest.mark.parametrize(
    ("name", "shapes", "result", "operations"),
    [
        ("aten::mm", [(3, 4), (4, 5)], (3, 5), 120), ("aten::addmm", [(5,), (3, 4), (4, 5)], (3, 5), 120),
        ("aten::linear", [(2, 3, 4), (5, 4)], (2, 3, 5), 240),
        ("aten::matmul", [(7, 1, 3, 4), (2, 4, 5)], (7, 2, 3, 5), 1680), ("aten::mv", [(3, 4), (4,)], (3,), 24),
        ("aten::dot", [(4,), (4,)], (), 8), ("aten::_scaled_mm", [(64, 128), (128, 256)], (64, 256), 4_194_304),
        ("aten::_int_mm", [(32, 8), (8, 16)], (32, 16), 8192), ("aten::add", [(3, 1), (4,)], (3, 4), 12),
        ("aten::addcmul", [(5,), (5,), (5,)], (5,), 15), ("aten::silu", [(8,)], (8,), 40),
        ("aten::cat", [(6,), (7,)], (13,), 0), ("aten::copy_", [(6,), (6,)], (6,), 0),
    ],
)  # fmt: skip
def test_operations(name: str, shapes: list[tuple[int, ...]], result: tuple[int, ...], operations: int) -> None:
    results = [Tensor.of(result, FLOAT, 99)]
    assert work(name, tensors(*shapes), results).operations == operations


def test_a_grouped_cudnn_convolution_with_benchmarking_is_not_transposed() -> None:
    x, weight, result = tensors((8, 16, 32, 32), (32, 4, 3, 3), (8, 32, 16, 16))
    arguments = [x, weight, [1, 1], [2, 2], [1, 1], 4, True, False, True]
    assert work("aten::cudnn_convolution", arguments, [result]).operations == 4_718_592


A, B, MADE, OUT = tensors((3, 4), (3, 4), (3, 4), (0,))
LIST, OTHERS = tensors((10,), (20,)), [Tensor.of((10,), FLOAT, 5), Tensor.of((20,), FLOAT, 6)]
TABLE, INDEX, ROWS = Tensor.of((1000, 8), FLOAT, 0), Tensor.of((5,), LONG, 1), Tensor.of((5, 8), FLOAT, 2)
"""Five rows of a table, and where they are in it."""
COPIED, X, PART = Tensor.of((1000, 8), FLOAT, 3), Tensor.of((10, 8), FLOAT, 0), Tensor.of((2, 8), FLOAT, 1)
LENGTHS, OFFSETS = tensors((12,), (13,), item=LONG)
SLICES = ("narrow_copy", "slice_copy", "select_copy")
PICKED, PUT, ADDED = (Work(40 * (times == 3), LONG * 5 + times * FLOAT * 40, FLOAT) for times in (2, 2, 3))
ADDED_TO_COPY = Work(40, LONG * 5 + FLOAT * (40 + 8000 + 8000), FLOAT)


@pytest.mark.parametrize(
    ("op", "inputs", "results", "found"),
    [
        ("aten::mm", tensors((3, 4), (4, 5), item=HALF), [Tensor.of((3, 5), HALF, 9)], Work(120, HALF * 47, HALF)),
        # the same tensor twice
        ("aten::mul", [A, A], [MADE], Work(12, FLOAT * 24, FLOAT)),
        ("aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
         [A, B, 1], [A], Work(12, FLOAT * 36, FLOAT)),
        # what takes the result is not read
        ("aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
         [A, B, OUT], [MADE], Work(12, FLOAT * 36, FLOAT)),
        # copies and sets do not read what they overwrite
        ("aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
         [A, B, False], [A], Work(0, FLOAT * 24, FLOAT)),
        ("aten::fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)",
         [A, 0], [A], Work(0, FLOAT * 12, FLOAT)),
        ("aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()",
         [LIST, OTHERS, -0.01], [], Work(30, FLOAT * 90, FLOAT)),
        ("aten::_foreach_copy_(Tensor(a!)[] self, Tensor[] src, bool non_blocking=False) -> ()",
         [LIST, OTHERS, False], [], Work(0, FLOAT * 60, FLOAT)),
        # of a table only the picked rows are read
        ("aten::embedding", [TABLE, INDEX, -1, False, False], [ROWS], PICKED),
        ("aten::index_select", [TABLE, 0, INDEX], [ROWS], PICKED),
        # what is put at places is read before only where it accumulates
        ("aten::index_put_", [TABLE, [INDEX], ROWS, False], [TABLE], PUT),
        ("aten::scatter_", [TABLE, 0, INDEX, ROWS], [TABLE], PUT),
        ("aten::index_copy_", [TABLE, 0, INDEX, ROWS], [TABLE], PUT),
        ("aten::put_", [TABLE, INDEX, ROWS], [TABLE], PUT),
        ("aten::index_put_", [TABLE, [INDEX], ROWS, True], [TABLE], ADDED),
        ("aten::_index_put_impl_", [TABLE, [INDEX], ROWS, True], [TABLE], ADDED),
        ("aten::scatter_add_", [TABLE, 0, INDEX, ROWS], [TABLE], ADDED),
        ("aten::index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor(a!)",
         [TABLE, 0, INDEX, ROWS, 1], [TABLE], ADDED),
        # what is added to a copy writes all of it
        ("aten::index_add", [TABLE, 0, INDEX, ROWS], [COPIED], ADDED_TO_COPY),
        ("aten::scatter_add", [TABLE, 0, INDEX, ROWS], [COPIED], ADDED_TO_COPY),
        # a slice moves only its own elements
        *((f"aten::{name}", [X, 0, 1, 2], [PART], Work(0, 2 * FLOAT * 16, FLOAT)) for name in SLICES),
        # offsets are sums of one addition for each length
        ("fbgemm::asynchronous_complete_cumsum", [LENGTHS], [OFFSETS], Work(12, LONG * 25, LONG)),
    ],
    ids=lambda value: value.partition("(")[0] if isinstance(value, str) else "",
)  # fmt: skip
def test_each_tensor_that_is_read_or_written_counts_once(op, inputs, results, found):
    """An op by its name or by its schema."""
    name = op.partition("(")[0].partition(".")[0]
    assert work(name, inputs, results, op if "(" in op else "") == found


def test_a_fused_optimizer_reads_and_writes_lists() -> None:
    parameters, gradients, means, squares = (
        [Tensor.of((10,), FLOAT, 10 * number), Tensor.of((20,), FLOAT, 10 * number + 1)] for number in range(4)
    )
    steps = [Tensor.of((), FLOAT, 98), Tensor.of((), FLOAT, 99)]
    lists = "Tensor(a!)[] self, Tensor(b!)[] grads, Tensor(c!)[] exp_avgs, Tensor(d!)[] exp_avg_sqs"
    schema = (
        f"aten::_fused_adamw_({lists}, Tensor(e!)[] max_exp_avg_sqs, Tensor[] state_steps, *, Tensor? grad_scale) -> ()"
    )
    arguments = [parameters, gradients, means, squares, [], steps]
    found = work("aten::_fused_adamw_", [*arguments, None], [], schema)
    assert found == Work(14 * 30, FLOAT * (30 * 4 + 2 + 30 * 3), FLOAT)
    # with a scale the gradients are written back without it
    scaled = work("aten::_fused_adamw_", [*arguments, Tensor.of((), FLOAT, 97)], [], schema)
    assert scaled.bytes == found.bytes + FLOAT * (1 + 30)


@pytest.mark.parametrize(
    ("name", "inputs", "result", "found"),
    [
        ("aten::mul", b'{"values":[[1,2,0,8,4,"cuda:0"],[3,4,0,1,8,"cpu"]],"shapes":[[8],[]],"types":[]}',
         b'{"values":[[5,6,0,8,4,"cuda:0"]],"shapes":[[8]],"types":[]}', Work(8, 64, FLOAT)),
        ("aten::neg", b'{"values":[[1,2,0,80,4,"cuda:0"]],"shapes":[[8,10]],"types":[],"strides":[[0,1]]}',
         b'{"values":[[5,6,0,80,4,"cuda:0"]],"shapes":[[8,10]],"types":[],"strides":[[10,1]]}', Work(80, FLOAT * 90, FLOAT)),
    ],
    ids=["a number on the host is no memory of the device", "an expanded dimension is in memory once"],
)  # fmt: skip
def test_of_a_host_trace_only_memory_of_the_device_counts(name: str, inputs: bytes, result: bytes, found: Work) -> None:
    assert work_of(recorded_by_host(name, "", as_read(inputs), as_read(result))) == found


F, H, L = "float", "c10::Half", "long int"
Given = tuple[Any, str, str]
"""An argument as a device trace has it: shape, type and value."""


def listed(value: str) -> Given:
    return [], "ScalarList", value


def number(value: str = "") -> Given:
    return [], "Scalar", value


ONES, TWOS, NONE = listed("[1, 1]"), listed("[2, 2]"), ([], "", "")
IMAGE, FILTERS, GRADIENT = ([1, 4, 8, 8], F, ""), ([6, 4, 3, 3], F, ""), ([1, 6, 4, 4], F, "")
NOT_TRANSPOSED = (number("False"), listed("[0, 0]"), number("1"))


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("addmm", [([5], F, ""), ([3, 4], F, ""), ([4, 5], F, ""), number(), number()], (120, 4 * 52, FLOAT)),
        ("add", [([8, 4], H, ""), ([4], H, ""), number("1")], (32, 2 * 68, HALF)),
        ("eq", [([8], F, "")] * 2, (8, 8 * 4 * 2 + 8, FLOAT)),
        ("add_", [([8], F, "")] * 2, (8, 96, FLOAT)),
        (
            "native_layer_norm",
            [([6, 8], H, ""), listed("[8]"), ([8], H, ""), ([8], H, ""), number("1e-05")],
            (384, 2 * (48 + 16 + 48) + 2 * 6 * 4, HALF),
        ),
        ("sum", [([6, 8], F, ""), listed("[0]"), number("False")], (48, 4 * (48 + 8), FLOAT)),
        *(
            ("index_select", [([6, 8], F, ""), number(axis), ([3], L, "")], (0, 4 * picked * 2 + 8 * 3, FLOAT))
            for axis, picked in (("0", 24), ("1", 18), ("-1", 18))
        ),
        (
            "convolution",
            [IMAGE, FILTERS, NONE, TWOS, ONES, ONES, *NOT_TRANSPOSED],
            (2 * 16 * 216, 4 * (256 + 216 + 96), FLOAT),
        ),
        (
            "convolution_backward",
            [GRADIENT, IMAGE, FILTERS, listed("[6]"), TWOS, ONES, ONES, *NOT_TRANSPOSED, listed("[True, True, True]")],
            (2 * 2 * 16 * 216, 4 * (96 + 2 * 256 + 2 * 216 + 6), FLOAT),
        ),
    ],
)
def test_of_a_device_trace_alone_results_follow_from_the_arguments(name, given, expected):
    shapes, types, values = zip(*given, strict=True)
    text = json.dumps({"values": values, "shapes": shapes, "types": types})
    assert work_of(recorded_by_device(f"aten::{name}", as_read(text))) == Work(*expected)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("double", 8), ("long int", 8), ("float", 4), ("int", 4), ("c10::BFloat16", 2), ("short int", 2),
        ("bool", 1), ("unsigned char", 1), ("c10::Float8_e4m3fn", 1), ("c10::complex<double>", 16),
    ],
)  # fmt: skip
def test_the_type_of_an_element_tells_its_bytes(kind: str, size: int) -> None:
    text = json.dumps({"values": [""], "shapes": [[10]], "types": [kind]})
    assert work_of(recorded_by_device("aten::relu_", as_read(text))).bytes == 2 * 10 * size


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("aten::mm", '{"values":[],"shapes":[],"types":[]}'),
        ("aten::mm", '{"values":["",""],"shapes":[[3,4],[5,6]],"types":["float","float"]}'),
        ("aten::mm", '{"values":["",""],"shapes":[[3,4],[4,6]],"types":["mine","mine"]}'),
        ("aten::mm", '{"values":["",""],"shapes":[[3,-4],[-4,6]],"types":["float","float"]}'),
        ("aten::mm", f'{{"values":["",""],"shapes":[[{1 << 60},4],[4,{1 << 60}]],"types":["float","float"]}}'),
        ("aten::cat", '{"values":["","0"],"shapes":[[[3],[4]],[]],"types":["TensorList","Scalar"]}'),
        ("aten::index_select", '{"values":["","2",""],"shapes":[[6,8],[],[3]],"types":["float","Scalar","long int"]}'),
        ("aten::mm", '{"values":{},"shapes":[[3,4],[4,6]],"types":["float","float"]}'),
        *(
            ("aten::_foreach_neg", f'{{"values":[""],"shapes":{shapes},"types":["TensorList"]}}')
            for shapes in ("[[[3],[-4]]]", "[[[3],4]]", "[7]", f"[[[{1 << 62}]]]")
        ),
        ("aten::mm", "nothing"),
    ],
)
def test_what_is_not_told_is_unknown(name: str, text: str) -> None:
    with pytest.raises(Unknown):
        work_of(recorded_by_device(name, as_read(text)))
    with pytest.raises(Unknown):
        work_of(recorded_by_host(name, "", as_read(text), as_read(text)))


def test_no_op_of_the_table_fails_at_odd_arguments() -> None:
    odd: list[Any] = [
        [], tensors(()), tensors((0,), (0,)), [*tensors((2, 3)), None, "x", [1.5], {}],
        [*tensors(*[(2, 3, 4)] * 4), *[0] * 12], [*tensors(*[(1, 2, 3, 4)] * 4), *[[0]] * 12],
    ]  # fmt: skip
    for name in RULES:
        for inputs in odd:
            for results in (None, [], tensors((2, 3))):
                try:
                    assert work(name, inputs, results).bytes >= 0
                except Unknown:
                    continue


RECORDED = b'{"values": [[3,4,0,6,4,"cuda:0"],5], "shapes": [[2,3],[]], "types": ["Tensor(float)","Int"]}'
SHARED = b'{"values": [[1,%d,0,6,4,"cuda:0"],[2,%d,0,6,4,"cuda:0"]]}'


def without_ids(*texts: bytes) -> bytes:
    """The texts with a number for each storage, offset and number of elements in place of ids."""
    memory: dict[bytes, int] = {}

    def tensor(match: re.Match[bytes]) -> bytes:
        return b"[%d,%b" % (memory.setdefault(match[1] + match[2], len(memory)), match[2])

    return re.sub(rb"\[\d+,(\d+,\d+),(\d+,\d+,\")", tensor, b"\0".join(texts))


def test_ops_are_alike_if_their_texts_are_but_for_ids_storages_and_offsets() -> None:
    texts = [RECORDED, RECORDED.replace(b"[3,4,0", b"[77,88,9"), RECORDED.replace(b"[2,3]", b"[6,1]")]
    texts += [SHARED % storages for storages in ((1, 1), (1, 2), (5, 5))]
    outputs = [NO_TENSORS] * len(texts)
    keys = Arguments(BytesColumn.of(texts), BytesColumn.of(outputs)).alike(OpRows(np.arange(len(texts))))
    for a, b in combinations(range(len(texts)), 2):
        assert (keys[a] == keys[b]) == (without_ids(texts[a], outputs[a]) == without_ids(texts[b], outputs[b]))


CAPTURED = ("operators.json.gz", "gpu/attention_bf16/host_rank0.json.gz", "gpu/attention_fp32/host_rank0.json.gz")


@pytest.mark.parametrize("name", CAPTURED)
def test_where_an_argument_stands_is_known_without_the_schema_too(name: str) -> None:
    """Attention with a mask has fewer operations than without, whether the schema or the position tells which it is."""
    trace = read_host_trace(str(DATA / name))
    seen = set()
    for row in range(len(trace)):
        flag = position_of(trace.schema_text[row], "is_causal")
        if trace.name[row] in seen or trace.name[row] not in RULES or flag is None:
            continue
        op = recorded(trace, row)
        seen.add(op.name)
        given = ([*op.inputs[:flag], to, *op.inputs[flag + 1 :]] for to in (True, False))
        masked, open_ = (RecordedOp(op.name, op.schema, inputs, None) for inputs in given)
        for with_schema in (masked, open_):
            without = RecordedOp(op.name, "", with_schema.inputs, None)
            assert operations(without) == operations(with_schema), op.name
        assert operations(masked) < operations(open_), op.name
    assert len(seen) >= 2


def test_arguments_are_listed_in_the_order_of_the_schema() -> None:
    trace = read_host_trace(str(DATA / "operators.json.gz"))
    schemas = {name: trace.schema_text[row] for row, name in enumerate(trace.name) if name in ARGUMENTS}
    compared = [
        (position_of(schema, argument), place)
        for name, schema in schemas.items()
        for place, argument in enumerate(ARGUMENTS[name].split())
        if position_of(schema, argument) is not None
    ]
    assert all(position == place for position, place in compared)
    assert len(compared) > 30


def position_of(schema: str, argument: str) -> int | None:
    names = declared_arguments(schema).names
    return names.index(argument) if argument in names else None


def operations(op: RecordedOp) -> int:
    """As far as it is known without the results, which tell no more than the bytes."""
    return work_of(RecordedOp(op.name, op.schema, op.inputs, [])).operations or 0


def test_of_a_device_trace_alone_rows_of_a_table_follow_from_the_indices() -> None:
    """3 x 5 indices of rows of 8; for the gradient of the table all of its 100 rows are written."""
    table, index = Tensor.of((100, 8), FLOAT, 0), Tensor.of((3, 5), LONG, 1)
    picked = 3 * 5 * 8
    assert work("aten::embedding", [table, index, -1], None).bytes == LONG * 15 + 2 * FLOAT * picked
    gradient = Tensor.of((3, 5, 8), FLOAT, 2)
    found = work("aten::embedding_dense_backward", [gradient, index, 100, -1, False], None)
    assert (found.operations, found.bytes) == (picked, LONG * 15 + FLOAT * (picked + 800))
    assert work("aten::gather", [table, 1, index], None).bytes == LONG * 15 + 2 * FLOAT * 15


def test_a_value_that_the_host_trace_cannot_have_is_unknown() -> None:
    """A record, a tensor without its shape, or with other extents than its elements."""
    good = '{"values":[[1,2,0,8,4,"cuda:0"],%s],"shapes":[[8],%s],"types":[]}'
    result = as_read('{"values":[[5,6,0,8,4,"cuda:0"]],"shapes":[[8]],"types":[]}')
    number, nothing = ("2", "[]"), ('"<None>"', "[]")
    for value, shape in (number, nothing, ("[1,[2]]", "[[],[[]]]"), ("[1,[2]]", "[]"), ('[0,0,0,0,4,""]', "[]")):
        assert work_of(recorded_by_host("aten::mul", "", as_read(good % (value, shape)), result)).bytes == 64
    for value, shape in (("{}", "[]"), ('[3,4,0,8,4,"cuda:0"]', "[7]"), ('[3,4,0,8,4,"cuda:0"]', "7")):
        with pytest.raises(Unknown):
            recorded_by_host("aten::mul", "", as_read(good % (value, shape)), result)


def test_a_text_that_stands_for_nothing_is_none() -> None:
    text = b'{"values":["<None>","sum",1.5,true],"shapes":[[],[],[],[]],"types":[]}'
    assert recorded_by_host("aten::x", "", as_read(text), as_read(NO_TENSORS)).inputs == [None, "sum", 1.5, True]


def test_the_host_trace_cuts_longer_lists_of_tensors() -> None:
    (x,) = tensors((1,))
    assert work("aten::_foreach_neg", [[x] * 4096], []).operations == 4096
    with pytest.raises(Unknown):
        work("aten::_foreach_neg", [[x] * 4097], [])


def test_the_tensors_of_a_device_traces_list_are_each_in_memory_of_its_own() -> None:
    text = json.dumps({"values": ["", ""], "shapes": [[[3], [0]], [4]], "types": ["TensorList", "float"]})
    _, last = recorded_by_device("aten::x", as_read(text)).inputs
    found = [*recorded_by_device("aten::x", as_read(text)).tensors(0), last]
    assert [tensor.shape for tensor in found] == [(3,), (0,), (4,)]
    assert len({tensor.memory for tensor in found}) == 3


@pytest.mark.parametrize("name", ["aten::_embedding_bag", "aten::_embedding_bag_forward_only"])
def test_a_bag_of_embeddings_reads_and_adds_the_rows_that_it_picks_and_not_the_whole_table(name: str) -> None:
    table, result = tensors((100, 16), (3, 16))
    index, offsets = tensors((7,), (3,), item=LONG)
    picked = 7 * 16
    assert work(name, [table, index, offsets], [result]) == Work(
        picked, LONG * (7 + 3) + FLOAT * (picked + 3 * 16), FLOAT
    )
