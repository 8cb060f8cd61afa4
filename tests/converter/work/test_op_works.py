"""Operations and bytes of single ops: as torch.utils.flop_counter counts them on a captured run, and as counted by
hand.
"""

import json
import re
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from execgraph.converter.work import RULES, RecordedOp, Tensor, Unknown, Work, work_of
from execgraph.converter.work.recorded_op import recorded_by_device, recorded_by_host
from execgraph.linker.readers import HostTrace, read_host_trace
from execgraph.schema.columns import OpRows
from execgraph.schema.linked import NO_TENSORS, read_arguments
from support.folders import DATA
from support.graphs import FLOAT, HALF, LONG, tensors, work

COUNTED: list[list[Any]] = json.loads((DATA / "operators_counted.json").read_text())
NAMES = {name for name, _ in COUNTED}


def recorded(trace: HostTrace, row: int) -> RecordedOp:
    return recorded_by_host(trace.name[row], trace.schema_text[row], trace.inputs[row], trace.outputs[row])


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


def test_an_op_and_the_one_that_does_it_have_the_same_operations() -> None:
    trace = read_host_trace(str(DATA / "operators.json.gz"))
    rows = {number: at for at, number in enumerate(trace.id.tolist())}
    around = {"aten::mkldnn_convolution": "aten::_convolution", "aten::_convolution": "aten::convolution"}
    compared = 0
    for row in range(len(trace)):
        above = rows.get(int(trace.parent[row]), row)
        if around.get(trace.name[row]) == trace.name[above]:
            inner, outer = (work_of(recorded(trace, at)).operations for at in (row, above))
            assert inner == outer
            compared += 1
    assert compared > 20


QUERY, KEY, VALUE, RESULT = (2, 8, 128, 64), (2, 2, 96, 64), (2, 2, 96, 32), (2, 8, 128, 32)
FORWARD, BACKWARD = 37_748_736, 100_663_296
"""What torch.utils.flop_counter gives for these shapes."""


def swapped(shape: Sequence[int]) -> tuple[int, ...]:
    """Places before heads."""
    batch, heads, places, width = shape
    return batch, places, heads, width


def test_attention_is_counted_as_pytorch_does_whatever_the_kernel() -> None:
    q, k, v, o, g = tensors(QUERY, KEY, VALUE, RESULT, RESULT)
    sums = Tensor.of((2, 8, 128), FLOAT, 9)
    for name, more in (
        ("_scaled_dot_product_flash_attention", [0.0, False, False, None]),
        ("_scaled_dot_product_efficient_attention", [None, True, 0.0, False, None]),
        ("_scaled_dot_product_cudnn_attention", [None, True, 0.0, False, False, None]),
    ):
        assert work(f"aten::{name}", [q, k, v, *more], [o, sums]).operations == FORWARD
    none = [None] * 4
    for name, more in (
        ("_scaled_dot_product_flash_attention_backward", [o, sums, *none, 0.0, False, None, None]),
        ("_scaled_dot_product_efficient_attention_backward", [None, o, sums, None, None, 0.0, [True], False]),
        ("_scaled_dot_product_cudnn_attention_backward", [o, sums, None, None, None, *none, 0.0, False]),
    ):
        assert work(f"aten::{name}", [g, q, k, v, *more], [q, k, v]).operations == BACKWARD


def test_the_kernels_beneath_have_places_before_heads() -> None:
    q, k, v, o = tensors(*map(swapped, (QUERY, KEY, VALUE, RESULT)))
    flash = [q, k, v, None, None, 128, 96, 0.0, False, False]
    assert work("aten::_flash_attention_forward", flash, [o]).operations == FORWARD
    efficient = [q, k, v, None, None, None, None, None, 0.0, 0, True]
    assert work("aten::_efficient_attention_forward", efficient, [o]).operations == FORWARD
    back = [o, q, k, v, o, None, None, None, 128, 96, 0.0, False, None, None]
    assert work("aten::_flash_attention_backward", back, [q, k, v]).operations == BACKWARD


def test_of_causal_attention_only_the_pairs_up_to_the_diagonal_count() -> None:
    (q,) = tensors((2, 3, 6, 8))
    whole, causal = (
        work("aten::_scaled_dot_product_flash_attention", [q, q, q, 0.0, flag, False, None], [q]).operations
        for flag in (False, True)
    )
    assert (whole, causal) == (6912, 6912 * 21 // 36)


def test_attention_over_sequences_one_after_the_other_is_known_if_they_are_of_one_length() -> None:
    q, offsets = Tensor.of((12, 3, 8), HALF, 0), Tensor.of((3,), FLOAT, 1)

    def operations(longest: int) -> int | None:
        arguments = [q, q, q, offsets, offsets, longest, longest, 0.0, False, False]
        return work("aten::_flash_attention_forward", arguments, [q]).operations

    assert operations(6) == 6912
    with pytest.raises(Unknown):
        operations(7)


def test_attention_within_a_window_is_unknown() -> None:
    (q,) = tensors((2, 6, 3, 8))
    schema = (
        "flash_attn::_flash_attn_forward(Tensor q, Tensor k, Tensor v, bool causal, int window_size_left) -> Tensor"
    )
    whole = work("flash_attn::_flash_attn_forward", [q, q, q, False, -1], [q], schema)
    assert whole.operations == 6912
    with pytest.raises(Unknown, match="within a window"):
        work("flash_attn::_flash_attn_forward", [q, q, q, False, 0], [q], schema)


@pytest.mark.parametrize(
    ("name", "shapes", "result", "operations"),
    [
        ("aten::mm", [(3, 4), (4, 5)], (3, 5), 120),
        ("aten::addmm", [(5,), (3, 4), (4, 5)], (3, 5), 120),
        ("aten::linear", [(2, 3, 4), (5, 4)], (2, 3, 5), 240),
        ("aten::matmul", [(7, 1, 3, 4), (2, 4, 5)], (7, 2, 3, 5), 1680),
        ("aten::mv", [(3, 4), (4,)], (3,), 24),
        ("aten::dot", [(4,), (4,)], (), 8),
        ("aten::_scaled_mm", [(64, 128), (128, 256)], (64, 256), 4_194_304),
        ("aten::_int_mm", [(32, 8), (8, 16)], (32, 16), 8192),
        ("aten::_weight_int4pack_mm", [(4, 64), (2, 1, 32, 4)], (4, 16), 8192),
        ("aten::_grouped_mm", [(10, 4), (3, 4, 5)], (10, 5), 400),
        ("aten::add", [(3, 1), (4,)], (3, 4), 12),
        ("aten::addcmul", [(5,), (5,), (5,)], (5,), 15),
        ("aten::silu", [(8,)], (8,), 40),
        ("aten::sum", [(6, 7)], (7,), 42),
        ("aten::_softmax", [(6, 7)], (6, 7), 210),
        ("aten::mse_loss", [(6,), (6,)], (), 18),
        ("aten::mse_loss_backward", [(), (6,), (6,)], (6,), 18),
        ("aten::native_layer_norm", [(6, 7)], (6, 7), 336),
        ("aten::cat", [(6,), (7,)], (13,), 0),
        ("aten::copy_", [(6,), (6,)], (6,), 0),
    ],
)
def test_operations(name: str, shapes: list[tuple[int, ...]], result: tuple[int, ...], operations: int) -> None:
    results = [Tensor.of(result, FLOAT, 99)]
    assert work(name, tensors(*shapes), results).operations == operations


def test_a_grouped_cudnn_convolution_with_benchmarking_is_not_transposed() -> None:
    x, weight, result = tensors((8, 16, 32, 32), (32, 4, 3, 3), (8, 32, 16, 16))
    arguments = [x, weight, [1, 1], [2, 2], [1, 1], 4, True, False, True]
    assert work("aten::cudnn_convolution", arguments, [result]).operations == 4_718_592


def test_each_tensor_that_is_read_or_written_counts_once() -> None:
    a, b, c = tensors((3, 4), (4, 5), (3, 5), item=HALF)
    assert work("aten::mm", [a, b], [c]).bytes == HALF * (12 + 20 + 15)
    # the same tensor twice
    assert work("aten::mul", [a, a], [Tensor.of((3, 4), HALF, 9)]).bytes == HALF * (12 + 12)


def test_an_op_in_place_reads_and_writes_its_tensor() -> None:
    a, b = tensors((3, 4), (3, 4))
    schema = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
    assert work("aten::add_", [a, b, 1], [a], schema).bytes == FLOAT * (12 + 12 + 12)


def test_what_takes_the_result_is_not_read() -> None:
    a, b = tensors((3, 4), (3, 4))
    out = Tensor.of((0,), FLOAT, 2)
    schema = "aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)"
    assert work("aten::mul", [a, b, out], [Tensor.of((3, 4), FLOAT, 3)], schema).bytes == FLOAT * (12 + 12 + 12)


def test_copies_and_sets_do_not_read_what_they_overwrite() -> None:
    a, b = tensors((10,), (10,))
    copy = "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)"
    assert work("aten::copy_", [a, b, False], [a], copy) == Work(0, FLOAT * 20, FLOAT)
    fill = "aten::fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)"
    assert work("aten::fill_", [a, 0], [a], fill) == Work(0, FLOAT * 10, FLOAT)


def test_of_a_table_only_the_picked_rows_are_read() -> None:
    table, index, rows = Tensor.of((1000, 8), FLOAT, 0), Tensor.of((5,), LONG, 1), Tensor.of((5, 8), FLOAT, 2)
    moved = LONG * 5 + 2 * FLOAT * 40
    assert work("aten::embedding", [table, index, -1, False, False], [rows]) == Work(0, moved, FLOAT)
    assert work("aten::index_select", [table, 0, index], [rows]) == Work(0, moved, FLOAT)


def test_what_is_added_at_places_is_read_before() -> None:
    table, index, rows = Tensor.of((1000, 8), FLOAT, 0), Tensor.of((5,), LONG, 1), Tensor.of((5, 8), FLOAT, 2)
    schema = "aten::index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor(a!)"
    assert work("aten::index_add_", [table, 0, index, rows, 1], [table], schema) == Work(
        40, LONG * 5 + 3 * FLOAT * 40, FLOAT
    )


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


def test_lists_of_tensors_are_written_in_place() -> None:
    a, b = [*tensors((10,), (20,))], [Tensor.of((10,), FLOAT, 5), Tensor.of((20,), FLOAT, 6)]
    schema = "aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()"
    assert work("aten::_foreach_add_", [a, b, -0.01], [], schema) == Work(30, FLOAT * 90, FLOAT)


def test_offsets_are_sums_of_one_addition_for_each_length() -> None:
    lengths, offsets = tensors((12,), (13,), item=LONG)
    name = "fbgemm::asynchronous_complete_cumsum"
    assert work(name, [lengths], [offsets]) == Work(12, LONG * 25, LONG)
    assert RULES[name].steps == 1


def test_a_number_on_the_host_is_no_memory_of_the_device() -> None:
    text = b'{"values":[[1,2,0,8,4,"cuda:0"],[3,4,0,1,8,"cpu"]],"shapes":[[8],[]],"types":[]}'
    result = b'{"values":[[5,6,0,8,4,"cuda:0"]],"shapes":[[8]],"types":[]}'
    assert work_of(recorded_by_host("aten::mul", "", text, result)) == Work(8, 64, FLOAT)


def test_an_expanded_dimension_is_in_memory_once() -> None:
    text = b'{"values":[[1,2,0,80,4,"cuda:0"]],"shapes":[[8,10]],"types":[],"strides":[[0,1]]}'
    result = b'{"values":[[5,6,0,80,4,"cuda:0"]],"shapes":[[8,10]],"types":[],"strides":[[10,1]]}'
    assert work_of(recorded_by_host("aten::neg", "", text, result)) == Work(80, FLOAT * (10 + 80), FLOAT)


@pytest.mark.parametrize(
    ("name", "shapes", "types", "values", "expected"),
    [
        ("aten::addmm", [[5], [3, 4], [4, 5], [], []], ["float"] * 3 + ["Scalar"] * 2, [""] * 5, (120, 4 * 52, FLOAT)),
        ("aten::add", [[8, 4], [4], []], ["c10::Half", "c10::Half", "Scalar"], ["", "", "1"], (32, 2 * 68, HALF)),
        ("aten::eq", [[8], [8]], ["float", "float"], ["", ""], (8, 8 * 4 * 2 + 8, FLOAT)),
        ("aten::add_", [[8], [8]], ["float", "float"], ["", ""], (8, 96, FLOAT)),
        (
            "aten::native_layer_norm",
            [[6, 8], [], [8], [8], []],
            ["c10::Half", "ScalarList", "c10::Half", "c10::Half", "Scalar"],
            ["", "[8]", "", "", "1e-05"],
            (384, 2 * (48 + 16 + 48) + 2 * 6 * 4, HALF),
        ),
        (
            "aten::sum",
            [[6, 8], [], []],
            ["float", "ScalarList", "Scalar"],
            ["", "[0]", "False"],
            (48, 4 * (48 + 8), FLOAT),
        ),
        *(
            (
                "aten::index_select",
                [[6, 8], [], [3]],
                ["float", "Scalar", "long int"],
                ["", dimension, ""],
                (0, 4 * picked * 2 + 8 * 3, FLOAT),
            )
            for dimension, picked in (("0", 24), ("1", 18), ("-1", 18))
        ),
        (
            "aten::convolution",
            [[1, 4, 8, 8], [6, 4, 3, 3], [], [], [], [], [], [], []],
            ["float", "float", "", *["ScalarList"] * 3, "Scalar", "ScalarList", "Scalar"],
            ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"],
            (2 * 16 * 216, 4 * (256 + 216 + 96), FLOAT),
        ),
        (
            "aten::convolution_backward",
            [[1, 6, 4, 4], [1, 4, 8, 8], [6, 4, 3, 3], *[[]] * 8],
            ["float", "float", "float", *["ScalarList"] * 4, "Scalar", "ScalarList", "Scalar", "ScalarList"],
            ["", "", "", "[6]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, True]"],
            (2 * 2 * 16 * 216, 4 * (96 + 2 * 256 + 2 * 216 + 6), FLOAT),
        ),
    ],
)
def test_of_a_device_trace_alone_results_follow_from_the_arguments(
    name: str, shapes: list[Any], types: list[str], values: list[str], expected: tuple[int, int, int]
) -> None:
    text = json.dumps({"values": values, "shapes": shapes, "types": types}).encode()
    assert work_of(recorded_by_device(name, text)) == Work(*expected)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("double", 8), ("long int", 8), ("float", 4), ("int", 4), ("c10::BFloat16", 2), ("short int", 2),
        ("bool", 1), ("unsigned char", 1), ("c10::Float8_e4m3fn", 1), ("c10::complex<double>", 16),
    ],
)  # fmt: skip
def test_the_type_of_an_element_tells_its_bytes(kind: str, size: int) -> None:
    text = json.dumps({"values": [""], "shapes": [[10]], "types": [kind]}).encode()
    assert work_of(recorded_by_device("aten::relu_", text)).bytes == 2 * 10 * size


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("aten::mm", '{"values":[],"shapes":[],"types":[]}'),
        ("aten::mm", '{"values":["",""],"shapes":[[3,4],[5,6]],"types":["float","float"]}'),
        ("aten::mm", '{"values":["",""],"shapes":[[3,4],[4,6]],"types":["mine","mine"]}'),
        ("aten::mm", '{"values":["",""],"shapes":[[3,-4],[-4,6]],"types":["float","float"]}'),
        ("aten::mm", f'{{"values":["",""],"shapes":[[{1 << 60},4],[4,{1 << 60}]],"types":["float","float"]}}'),
        ("aten::cat", '{"values":["","0"],"shapes":[[[3],[4]],[]],"types":["TensorList","Scalar"]}'),
        (
            "aten::index_select",
            '{"values":["","2",""],"shapes":[[6,8],[],[3]],"types":["float","Scalar","long int"]}',
        ),
        ("aten::mm", '{"values":{},"shapes":[[3,4],[4,6]],"types":["float","float"]}'),
        ("aten::mm", "nothing"),
    ],
)
def test_what_is_not_told_is_unknown(name: str, text: str) -> None:
    with pytest.raises(Unknown):
        work_of(recorded_by_device(name, text.encode()))
    with pytest.raises(Unknown):
        work_of(recorded_by_host(name, "", text.encode(), text.encode()))


def test_no_op_of_the_table_fails_at_odd_arguments() -> None:
    odd: list[Any] = [
        [],
        tensors(()),
        tensors((0,), (0,)),
        [*tensors((2, 3)), None, "x", [1.5], {}],
        [*tensors(*[(2, 3, 4)] * 4), *[0] * 12],
        [*tensors(*[(1, 2, 3, 4)] * 4), *[[0]] * 12],
    ]
    for name in RULES:
        for inputs in odd:
            for results in (None, [], tensors((2, 3))):
                try:
                    assert work(name, inputs, results).bytes >= 0
                except Unknown:
                    continue


ARGUMENTS = b'{"values": [[3,4,0,6,4,"cuda:0"],5], "shapes": [[2,3],[]], "types": ["Tensor(float)","Int"]}'
SHARED = b'{"values": [[1,%d,0,6,4,"cuda:0"],[2,%d,0,6,4,"cuda:0"]]}'


def without_ids(*texts: bytes) -> bytes:
    """The texts with a number for each storage, offset and number of elements in place of ids."""
    memory: dict[bytes, int] = {}

    def tensor(match: re.Match[bytes]) -> bytes:
        return b"[%d,%b" % (memory.setdefault(match[1] + match[2], len(memory)), match[2])

    return re.sub(rb"\[\d+,(\d+,\d+),(\d+,\d+,\")", tensor, b"\0".join(texts))


def test_ops_are_alike_if_their_texts_are_but_for_ids_storages_and_offsets() -> None:
    texts = [ARGUMENTS, ARGUMENTS.replace(b"[3,4,0", b"[77,88,9"), ARGUMENTS.replace(b"[2,3]", b"[6,1]")]
    texts += [SHARED % storages for storages in ((1, 1), (1, 2), (5, 5))]
    outputs = [NO_TENSORS] * len(texts)
    keys = read_arguments(texts, outputs).alike(OpRows(np.arange(len(texts))))
    for a, b in combinations(range(len(texts)), 2):
        assert (keys[a] == keys[b]) == (without_ids(texts[a], outputs[a]) == without_ids(texts[b], outputs[b]))


CAPTURED = ("operators.json.gz", "gpu/attention_bf16/host_rank0.json.gz", "gpu/attention_fp32/host_rank0.json.gz")


@pytest.mark.parametrize("name", CAPTURED)
def test_where_an_argument_stands_is_known_without_the_schema_too(name: str) -> None:
    """Attention with a mask has fewer operations than without, whether the schema or the position tells which it is."""
    trace = read_host_trace(str(DATA / name))
    seen = set()
    for row in range(len(trace)):
        op = recorded(trace, row)
        flag = position_of(op.schema, "is_causal")
        if op.name in seen or op.name not in RULES or flag is None:
            continue
        seen.add(op.name)
        masked, open_ = (RecordedOp(op.name, op.schema, changed(op.inputs, flag, to), None) for to in (True, False))
        for with_schema in (masked, open_):
            without = RecordedOp(op.name, "", with_schema.inputs, None)
            assert operations(without) == operations(with_schema), op.name
        assert operations(masked) < operations(open_), op.name
    assert len(seen) >= 2


def position_of(schema: str, argument: str) -> int | None:
    parameters = schema.partition("(")[2].partition(") ->")[0].replace("*, ", "").split(", ")
    names = [parameter.split("=")[0].split()[-1] for parameter in parameters if parameter]
    return names.index(argument) if argument in names else None


def changed(inputs: list[Any], position: int, value: bool) -> list[Any]:
    return [*inputs[:position], value, *inputs[position + 1 :]]


def operations(op: RecordedOp) -> int:
    """As far as it is known without the results, which tell no more than the bytes."""
    return work_of(RecordedOp(op.name, op.schema, op.inputs, [])).operations or 0


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("clamp", 2),
        ("lerp", 3),
        ("sigmoid", 4),
        ("gelu", 5),
        ("mish", 6),
        ("silu_backward", 9),
        ("gelu_backward", 11),
        ("mish_backward", 12),
    ],
)
def test_each_element_of_the_result_takes_so_many_steps(name: str, steps: int) -> None:
    x, result = tensors((4,), (8,))
    assert work(f"aten::{name}", [x, x, x], [result]).operations == 8 * steps


def test_what_is_put_at_places_is_read_and_added_only_where_it_accumulates() -> None:
    """5 rows of 8 elements of a table, at places that 5 numbers tell."""
    table, index, rows = Tensor.of((1000, 8), FLOAT, 0), Tensor.of((5,), LONG, 1), Tensor.of((5, 8), FLOAT, 2)
    for name, arguments, times in (
        ("index_put_", [table, [index], rows, False], 2),
        ("index_put_", [table, [index], rows, True], 3),
        ("_index_put_impl_", [table, [index], rows, True], 3),
        ("scatter_", [table, 0, index, rows], 2),
        ("index_copy_", [table, 0, index, rows], 2),
        ("put_", [table, index, rows], 2),
        ("scatter_add_", [table, 0, index, rows], 3),
    ):
        found = work(f"aten::{name}", arguments, [table])
        assert (found.operations, found.bytes) == (40 * (times == 3), LONG * 5 + times * FLOAT * 40), name


def test_what_is_added_to_a_copy_writes_all_of_it() -> None:
    table, index, rows = Tensor.of((10, 8), FLOAT, 0), Tensor.of((5,), LONG, 1), Tensor.of((5, 8), FLOAT, 2)
    result = Tensor.of((10, 8), FLOAT, 3)
    for name in ("index_add", "scatter_add"):
        found = work(f"aten::{name}", [table, 0, index, rows], [result])
        assert found == Work(40, LONG * 5 + FLOAT * (40 + 80 + 80), FLOAT)


def test_a_copied_list_is_not_read_where_it_is_overwritten() -> None:
    into, source = [*tensors((10,), (20,))], [Tensor.of((10,), FLOAT, 5), Tensor.of((20,), FLOAT, 6)]
    schema = "aten::_foreach_copy_(Tensor(a!)[] self, Tensor[] src, bool non_blocking=False) -> ()"
    assert work("aten::_foreach_copy_", [into, source, False], [], schema).bytes == FLOAT * 60


def test_a_slice_moves_only_its_own_elements() -> None:
    x, part = tensors((10, 8), (2, 8))
    for name in ("narrow_copy", "slice_copy", "select_copy"):
        assert work(f"aten::{name}", [x, 0, 1, 2], [part]) == Work(0, 2 * FLOAT * 16, FLOAT)


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
    result = '{"values":[[5,6,0,8,4,"cuda:0"]],"shapes":[[8]],"types":[]}'
    number, nothing = ("2", "[]"), ('"<None>"', "[]")
    for value, shape in (number, nothing, ("[1,[2]]", "[[],[[]]]"), ("[1,[2]]", "[]"), ('[0,0,0,0,4,""]', "[]")):
        assert work_of(recorded_by_host("aten::mul", "", (good % (value, shape)).encode(), result.encode())).bytes == 64
    for value, shape in (("{}", "[]"), ('[3,4,0,8,4,"cuda:0"]', "[7]"), ('[3,4,0,8,4,"cuda:0"]', "7")):
        with pytest.raises(Unknown):
            recorded_by_host("aten::mul", "", (good % (value, shape)).encode(), result.encode())


def test_a_text_that_stands_for_nothing_is_none() -> None:
    text = b'{"values":["<None>","sum",1.5,true],"shapes":[[],[],[],[]],"types":[]}'
    assert recorded_by_host("aten::x", "", text, NO_TENSORS).inputs == [None, "sum", 1.5, True]


@pytest.mark.parametrize(("listed", "is_known"), [(4096, True), (4097, False)])
def test_the_host_trace_cuts_longer_lists_of_tensors(listed: int, is_known: bool) -> None:
    (x,) = tensors((1,))
    if is_known:
        assert work("aten::_foreach_neg", [[x] * listed], []).operations == listed
    else:
        with pytest.raises(Unknown):
            work("aten::_foreach_neg", [[x] * listed], [])


@pytest.mark.parametrize("shapes", [[[[3], [-4]]], [[[3], 4]], [7], [[[1 << 62]]]])
def test_a_list_of_tensors_whose_shapes_are_none_is_unknown(shapes: Any) -> None:
    text = json.dumps({"values": [""], "shapes": shapes, "types": ["TensorList"]}).encode()
    with pytest.raises(Unknown):
        recorded_by_device("aten::_foreach_neg", text)


def test_the_tensors_of_a_device_traces_list_are_each_in_memory_of_its_own() -> None:
    text = json.dumps({"values": ["", ""], "shapes": [[[3], [0]], [4]], "types": ["TensorList", "float"]}).encode()
    first, last = recorded_by_device("aten::x", text).inputs
    assert isinstance(first, list) and isinstance(last, Tensor)
    found = [*recorded_by_device("aten::x", text).tensors(0), last]
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
