"""Names of the phases of training: what PyTorch records, and what users call their annotations."""

import re

LOADER = re.compile(
    r"DataLoader|data[ _]?load|load(ing)?[ _]?(the |a )?(batch|data|sample)|(next|get|fetch)[ _]?(batch|sample)", re.I
)
"""How PyTorch and users name what gets the next batch."""
OPTIMIZER = re.compile(r"^Optimizer\.|(^|[^a-z])optim", re.I)
FORWARD = re.compile(r"(^|[^a-z])(forward|fwd)([^a-z]|$)", re.I)
BACKWARD = re.compile(r"(^|[^a-z])(backward|bwd)([^a-z]|$)", re.I)
AUTOGRAD = "autograd::engine::evaluate_function"

PHASES = LOADING, FORWARD_PASS, BACKWARD_PASS, UPDATE, REST = (
    "data loading", "forward", "backward", "optimizer", "the rest",
)  # fmt: skip
"""The phases in the order in which a step goes through them."""


def phase_of(name: str) -> str:
    """Returns the phase of the outermost op, call or annotation of this name, "" where it tells none.

    >>> phase_of("autograd::engine::evaluate_function: MmBackward0"), phase_of("aten::mm")
    ('backward', '')
    """
    if name.startswith(AUTOGRAD):
        return BACKWARD_PASS
    named = {LOADING: LOADER, UPDATE: OPTIMIZER, FORWARD_PASS: FORWARD, BACKWARD_PASS: BACKWARD}
    return next((phase for phase, pattern in named.items() if pattern.search(name)), "")
