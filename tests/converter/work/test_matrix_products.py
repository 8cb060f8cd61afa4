"""Operations and shapes of matrix products, and whether their results have the type of their arguments."""

import pytest
from execgraph.converter.work import Tensor, Unknown
from execgraph.converter.work.matrix_products import broadcast, product
from support.graphs import FLOAT, tensors, work

Shape = tuple[int, ...]


@pytest.mark.parametrize(
    ("left", "right", "operations", "shape"),
    [
        ((3, 4), (4, 5), 120, (3, 5)),
        ((4,), (4, 5), 40, (5,)),
        ((3, 4), (4,), 24, (3,)),
        ((4,), (4,), 8, ()),
        ((1, 4), (4, 1), 8, (1, 1)),
        ((2, 3, 4), (2, 4, 5), 240, (2, 3, 5)),
        ((7, 1, 3, 4), (2, 4, 5), 1680, (7, 2, 3, 5)),
        ((2, 3, 4), (4,), 48, (2, 3)),
    ],
)
def test_a_product_drops_the_dimensions_that_meet(left: Shape, right: Shape, operations: int, shape: Shape) -> None:
    assert product(left, right) == (operations, shape)


@pytest.mark.parametrize(
    ("left", "right"), [((), (4,)), ((4,), ()), ((3, 4), (5, 4)), ((3,), (4,)), ((2, 3, 4), (3, 4, 5))]
)
def test_shapes_that_do_not_fit_have_no_product(left: Shape, right: Shape) -> None:
    with pytest.raises(Unknown):
        product(left, right)


@pytest.mark.parametrize(
    ("shapes", "together"),
    [
        ([(3, 1), (4,)], (3, 4)),
        ([(2, 3), (3,), ()], (2, 3)),
        ([(1, 1), (1,)], (1, 1)),
        ([()], ()),
        ([], ()),
        ([(0, 3), (1, 3)], (0, 3)),
    ],
)
def test_broadcast_shapes_have_the_longest_extent_of_each_dimension(shapes: list[Shape], together: Shape) -> None:
    assert broadcast(shapes) == together
    with pytest.raises(Unknown):
        broadcast([*shapes, (2, 3), (2, 4)])


def test_a_packed_weight_tells_no_more_than_the_result() -> None:
    x, weight, result = tensors((7, 4, 64), (2, 1, 32, 4), (7, 4, 16))
    assert work("aten::_weight_int4pack_mm", [x, weight], [result]).operations == 2 * 28 * 64 * 16
    for results in ([], [Tensor.of((), FLOAT, 9)]):
        with pytest.raises(Unknown):
            work("aten::_weight_int4pack_mm", [x, weight], results)


@pytest.mark.parametrize("name", ["aten::_int_mm", "aten::_scaled_mm", "quantized::linear"])
def test_results_of_another_type_do_not_follow_from_the_arguments(name: str) -> None:
    with pytest.raises(Unknown):
        work(name, tensors((3, 4), (4, 5)), None)


def test_results_of_the_same_type_do() -> None:
    a, b = tensors((3, 4), (4, 5), item=2)
    assert work("aten::mm", [a, b], None).bytes == 2 * (12 + 20 + 15)
    (bias,) = tensors((5,), item=FLOAT)
    assert work("aten::addmm", [bias, *tensors((3, 4), (4, 5))], None).operations == 120


@pytest.mark.parametrize(
    ("left", "right", "operations"),
    [
        ((10, 4), (3, 4, 5), 400),
        ((3, 10, 4), (4, 5), 400),
        ((10, 4), (4, 5), 400),
        ((3, 10, 4), (3, 4, 5), 1200),
    ],
)
def test_groups_that_are_concatenated_multiply_each_row_once(left: Shape, right: Shape, operations: int) -> None:
    assert work("aten::_grouped_mm", tensors(left, right), [Tensor.of((1,), FLOAT, 9)]).operations == operations


@pytest.mark.parametrize(("left", "right"), [((10, 4), (3, 5, 4)), ((4,), (4, 5)), ((2, 3, 10, 4), (4, 5))])
def test_groups_that_do_not_fit_are_unknown(left: Shape, right: Shape) -> None:
    with pytest.raises(Unknown):
        work("aten::_grouped_mm", tensors(left, right), [Tensor.of((1,), FLOAT, 9)])
