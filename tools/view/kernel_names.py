"""Shortens a kernel's recorded name: without return type, namespaces and parameters."""

import re

RETURN_TYPE = re.compile(r"^(?:static |inline )*(?:void|int|bool|auto) ")
NAMESPACE = re.compile(r"(?:\(anonymous namespace\)|[A-Za-z_]\w*)::")
ONE_WORD = re.compile(r"\(\w+\)")


def short_name(name: str) -> str:
    """Returns a C++ function's name without return type, namespaces and parameters; other names stay as they are.

    >>> short_name("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float*)")
    'vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>'
    >>> short_name("Memcpy HtoD (Pinned -> Device)"), short_name("aten::mm")
    ('Memcpy HtoD (Pinned -> Device)', 'aten::mm')
    """
    is_template = bool(RETURN_TYPE.match(name)) or "<" in name
    if not is_template and ("(" not in name or " (" in name):
        return name
    return NAMESPACE.sub("", _without_parameters(RETURN_TYPE.sub("", name))) or name


def _without_parameters(name: str) -> str:
    """Cuts the outermost brackets at the end, unless they hold a single word."""
    depth = 0
    for position in range(len(name) - 1, 0, -1):
        depth += (name[position] == ")") - (name[position] == "(")
        if depth == 0:
            return name if name[position] != "(" or ONE_WORD.fullmatch(name, position) else name[:position]
    return name
