"""A job: the program of every host thread of every rank, as instructions that start anew on each call."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .instructions import Group, Instruction
from .machine import DEFAULT, Machine

Step = Sequence[Sequence[Instruction]]
"""One training step of one rank: the instructions of each of its threads, in the order of `Job.threads`."""


@dataclass(frozen=True, slots=True)
class Job:
    """`program(rank)` gives the steps of a rank and the same ones whenever it is asked."""

    name: str
    seed: int
    ranks: int
    threads: tuple[str, ...]
    groups: tuple[Group, ...]
    program: Callable[[int], Iterator[Step]]
    machine: Machine = DEFAULT

    def instructions(self, rank: int) -> list[Iterator[Instruction]]:
        """Yields the instructions of each thread of a rank; a step is made when the first of them needs it."""
        steps = self.program(rank)
        waiting: list[deque[Sequence[Instruction]]] = [deque() for _ in self.threads]

        def of_thread(pending: deque[Sequence[Instruction]]) -> Iterator[Instruction]:
            while True:
                if not pending:
                    step = next(steps, None)
                    if step is None:
                        return
                    for parts, part in zip(waiting, step, strict=True):
                        parts.append(part)
                yield from pending.popleft()

        return [of_thread(pending) for pending in waiting]
