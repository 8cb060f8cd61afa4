"""How to convert a linked trace."""

from dataclasses import dataclass, fields
from typing import get_args

from ..schema.arguments import TARGETS, InputsOutputs, Promotion, Target
from .dependencies import RULES

CHOICES = {"target": TARGETS, "promote": get_args(Promotion), "io": get_args(InputsOutputs)}
RULE_NAMES = tuple(rule.__name__ for rule in RULES)


@dataclass(frozen=True, slots=True)
class Options:
    """How to convert; the defaults keep everything that is known.

    >>> import execgraph as eg
    >>> eg.Options(target="nonsense")
    Traceback (most recent call last):
    ValueError: Options: target is 'nonsense', not one of 'generic', 'astra-sim', 'goal'

    Attributes:
        target: Who runs the graph; for "goal" a job is built as a whole.
        promote: With "sync" the host runs ahead of the device as it did, with "all" it blocks on what it launched.
        io: With "none" the graph lacks the tensors of the ops.
        inferred: Whether to keep edges that are known from timing alone.
        host: Whether to keep what is not a device activity.
        shortest_slice: Shorter slices of host time (ns) are folded into their neighbours; by default those below 1 µs,
            where fewer than a fifth are.
        delays: Whether delays stay in the graph; else an activity starts as soon as its known dependencies allow.
        left_out: Rules whose edges the graph lacks, which shows what they are for.

    Raises:
        ValueError: An option has a value that does not exist; the text names both.
    """

    target: Target = "generic"
    promote: Promotion = "sync"
    io: InputsOutputs = "full"
    inferred: bool = True
    host: bool = True
    shortest_slice: int | None = None
    delays: bool = True
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            _check(name, getattr(self, name), choices)
        for name in (field.name for field in fields(self) if field.type is bool):
            _check(name, getattr(self, name), (True, False))
        if self.shortest_slice is not None and (not isinstance(self.shortest_slice, int) or self.shortest_slice < 0):
            raise ValueError(f"Options: shortest_slice is {self.shortest_slice!r}, not a whole number of ns, 0 or more")
        for rule in self.left_out:
            _check("a rule in left_out", rule, RULE_NAMES)


def _check(name: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        raise ValueError(f"Options: {name} is {value!r}, not one of {', '.join(map(repr, choices))}")
