"""A random program while it is drawn, and while it is written for a rank: what its parts share.

A seed and a number of ranks decide the streams, how long kernels and host ops take, and the numbers of results and
events.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from execgraph.tools.generate import COMPUTE, Communicator, Process, Script, Tensor, Work

from .more_instructions import GraphNode

SIDE_STREAMS = (20, 24, 28)


@dataclass(slots=True)
class Rank:
    """One rank while the parts are written for it: the step, collectives under way and captured graphs, by number."""

    process: Process
    communicator: Communicator
    step: int = 0
    works: dict[int, Work] = field(default_factory=dict)
    graphs: dict[int, tuple[GraphNode, ...]] = field(default_factory=dict)

    def result(self, number: int, of_last_step: bool = False) -> Tensor:
        """Returns a result; each step has its own storages, so that nothing is overwritten that may still be read."""
        return self.process.tensor(f"result {number} of {self.step - of_last_step}", 64, 64)


Part = Callable[[Rank, Script], None]
"""Writes its instructions for one rank and step on a thread."""


class Draft:
    """A program while it is drawn."""

    def __init__(self, seed: int, ranks: int) -> None:
        self.random = random = Random(f"program {seed}")
        self.ranks = ranks
        self.streams = (COMPUTE, *random.sample(SIDE_STREAMS, random.randint(0, len(SIDE_STREAMS))))
        self.joined = random.random() < 0.5
        self._kernel_us = 5.0, random.choice((50.0, 150.0, 500.0))
        self._host_us = 3.0, random.choice((8.0, 20.0, 50.0))
        self._numbers = 0
        self.readable: dict[int, list[int]] = {stream: [] for stream in self.streams}
        """By stream the results that it may read."""
        self.latest: dict[int, int] = {}
        """By stream the result that it wrote last."""
        self.in_use = COMPUTE
        """The stream that the program works on, which PyTorch calls the current one."""
        self.under_way: list[int] = []
        """Collectives that nothing waits for yet."""

    def number(self) -> int:
        """Numbers results, events and all else that has to be told apart."""
        self._numbers += 1
        return self._numbers

    def stream(self) -> int:
        """Returns one of the program's streams."""
        return self.random.choice(self.streams)

    def two_streams(self) -> tuple[int, int]:
        """Different ones, unless there is only one."""
        first, *_, second = self.random.sample(self.streams, min(2, len(self.streams))) * 2
        return first, second

    def kernel_us(self) -> float:
        """Returns how long a kernel takes."""
        return self._between(*self._kernel_us)

    def host_us(self) -> float:
        """Returns how long a host op takes by itself."""
        return self._between(*self._host_us)

    def _between(self, low: float, high: float) -> float:
        """Any order of magnitude is as likely as any other."""
        return math.exp(self.random.uniform(math.log(low), math.log(high)))

    def has_waited(self, stream: int, results: Sequence[int]) -> None:
        """From now on a stream may read these results."""
        self.readable[stream] = list(dict.fromkeys([*self.readable[stream], *results]))
