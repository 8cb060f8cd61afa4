"""What schemas say of the arguments of an op: their positions, and which are written."""

import pytest
from execgraph.schema.linked.arguments import argument_position, declared_arguments, mutated, only_written

ADD = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
OUT = "aten::max.dim_max(Tensor self, int dim, *, Tensor(a!) max, Tensor(b!) max_values) -> (Tensor(a!), Tensor(b!))"
LIST = "aten::f(Tensor(a -> *) self, int[2] stride=[1, 1], Tensor(b!) last) -> Tensor"


@pytest.mark.parametrize(("schema", "count"), [(ADD, 3), (OUT, 4), (LIST, 3), ("aten::f() -> ()", 0), ("", 0)])
def test_arguments_are_those_between_the_brackets_but_for_the_star(schema: str, count: int) -> None:
    assert len(declared_arguments(schema)) == count


def test_written_arguments_are_marked_and_those_by_name_alone_are_not_read() -> None:
    assert [mutated(schema) for schema in (ADD, OUT, LIST, "")] == [(0,), (2, 3), (2,), ()]
    assert [only_written(schema) for schema in (ADD, OUT, LIST, "")] == [(), (2, 3), (), ()]


def test_an_argument_is_found_by_its_name() -> None:
    assert [argument_position(ADD, name) for name in ("self", "other", "alpha", "out")] == [0, 1, 2, None]
    assert argument_position(LIST, "last") == 2
