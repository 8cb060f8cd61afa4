"""What an op's schema, its signature as the host trace records it, says of the arguments, by position."""

import re
from functools import cache

COMMA = re.compile(r", (?![^\[\]]*\])")
"""Between arguments, not within a default like `[1, 1]`."""


@cache
def arguments(schema: str) -> tuple[str, ...]:
    """Returns the arguments as they are declared; none without a schema.

    >>> arguments("aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)")
    ('Tensor self', 'Tensor other', 'Tensor(a!) out')
    """
    return tuple(argument for argument in _declared(schema) if argument != "*")


@cache
def mutated(schema: str) -> tuple[int, ...]:
    """Returns positions of the arguments that are marked as written.

    >>> mutated("aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)")
    (0,)
    """
    return tuple(place for place, argument in enumerate(arguments(schema)) if "!" in argument)


@cache
def only_written(schema: str) -> tuple[int, ...]:
    """Returns positions of the arguments that take the results, what they hold before is not read: `out` and its like.

    >>> only_written("aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)")
    (2,)
    """
    declared = _declared(schema)
    positional = declared.index("*") if "*" in declared else len(declared)
    return tuple(place for place in mutated(schema) if place >= positional)


@cache
def position(schema: str, name: str) -> int | None:
    """Returns where the argument of this name stands, None for a schema without.

    >>> position("aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False) -> Tensor", "keepdim")
    2
    """
    names = [argument.split(" ")[-1].partition("=")[0] for argument in arguments(schema)]
    return names.index(name) if name in names else None


def _declared(schema: str) -> list[str]:
    # an argument may hold an arrow itself: Tensor(a -> *) self
    declared = schema.partition(") -> ")[0].partition("(")[2]
    return COMMA.split(declared) if declared else []
