"""Arguments of an op by position, from its schema: the signature that the host trace records."""

import re
from functools import cache

COMMA = re.compile(r", (?![^\[\]]*\])")
"""Between arguments, not within a default like `[1, 1]`."""


@cache
def arguments(schema: str) -> tuple[str, ...]:
    """Returns the declarations of the arguments; none without a schema.

    >>> arguments("aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)")
    ('Tensor self', 'Tensor other', 'Tensor(a!) out')
    """
    return tuple(argument for argument in _declared(schema) if argument != "*")


@cache
def mutated(schema: str) -> tuple[int, ...]:
    """Returns the positions of the arguments that are marked as written.

    >>> mutated("aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)")
    (0,)
    """
    return tuple(index for index, argument in enumerate(arguments(schema)) if "!" in argument)


@cache
def only_written(schema: str) -> tuple[int, ...]:
    """Returns the positions of the arguments that only take results (such as `out`): their earlier content is not read.

    >>> only_written("aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)")
    (2,)
    """
    declared = _declared(schema)
    positional = declared.index("*") if "*" in declared else len(declared)
    return tuple(index for index in mutated(schema) if index >= positional)


@cache
def position(schema: str, name: str) -> int | None:
    """Returns the position of the argument of this name, None for a schema without it.

    >>> position("aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False) -> Tensor", "keepdim")
    2
    """
    names = [argument.split(" ")[-1].partition("=")[0] for argument in arguments(schema)]
    return names.index(name) if name in names else None


def _declared(schema: str) -> list[str]:
    # an argument may hold an arrow itself: Tensor(a -> *) self
    declared = schema.partition(") -> ")[0].partition("(")[2]
    return COMMA.split(declared) if declared else []
