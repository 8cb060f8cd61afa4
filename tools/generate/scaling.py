"""How much longer things take in a changed job: from the factors of classes and names to the factor of one thing."""

import math
from collections.abc import Mapping

from ...schema.errors import RequestError
from ..replay import Bound, NodeClass, Scale, parse_scale


class Factors:
    """Factors by name and class: `scale` has `class:NAME` or a regular expression as keys; factors multiply.

    Raises ValueError for a class, an expression or a factor that is none.

    >>> factors = Factors({"class:computation": 2.0, "gemm": 0.5})
    >>> factors.of("sgemm_128", "computation"), factors.of("fill", "computation"), factors.of("aten::mm", "host")
    (1.0, 2.0, 1.0)
    """

    def __init__(self, scale: Mapping[str, float]) -> None:
        self._scale = [parse_scale(f"{selector}={factor}") for selector, factor in scale.items()]
        self._unused = {scaled.spec for scaled in self._scale}
        self._factor_of: dict[tuple[str, str], float] = {}

    def of(self, name: str, kind: str) -> float:
        """Returns the product of all factors that apply to a name of a class, 1 if none does."""
        factor = self._factor_of.get((name, kind))
        if factor is None:
            applying = [scaled for scaled in self._scale if _applies(scaled, name, kind)]
            self._unused.difference_update(scaled.spec for scaled in applying)
            factor = self._factor_of[name, kind] = math.prod((scaled.factor for scaled in applying), start=1.0)
        return factor

    def check_all_used(self) -> None:
        """Raises RequestError for what applied to nothing so far."""
        if self._unused:
            raise RequestError(f"scale {min(self._unused)}: nothing in the job is called so or of that class")


def _applies(scale: Scale, name: str, kind: str) -> bool:
    if isinstance(scale.target, Bound):
        raise ValueError(f"{scale.spec!r}: a simulated job does not say what limits its kernels")
    return scale.target.label == kind if isinstance(scale.target, NodeClass) else bool(scale.target.search(name))


def scale_of(specifications: list[str]) -> dict[str, float]:
    """`REGEX=F` and `class:NAME=F` texts as the scale that they make together. Raises ValueError.

    >>> scale_of(["class:host=2", "gemm=0.5", "gemm=3"])
    {'class:host': 2.0, 'gemm': 1.5}
    """
    scale: dict[str, float] = {}
    for specification in specifications:
        selector = specification.rpartition("=")[0]
        scale[selector] = scale.get(selector, 1.0) * parse_scale(specification).factor
    return scale
