"""Names that were read from text inside a trace."""

from typing import Any


def name_of(value: Any) -> str:
    r"""Returns the value as text that a file can hold: with `?` for half a surrogate pair, which escapes may name.

    >>> name_of("gemm \ud83d")
    'gemm ?'
    """
    return str(value).encode("utf-8", "replace").decode()
