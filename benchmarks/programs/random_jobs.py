"""A job whose seed draws what it does; its program is written a step at a time.

All steps and ranks run the parts that were drawn once, only durations differ. No program waits for ever.
"""

from collections.abc import Iterator
from random import Random

from execgraph.tools.generate import Communicator, Process, steps, world

from .random_draft import Draft, Part, Rank
from .random_ops import work_on
from .random_parts import KINDS, awaited, fork, join

COLLECTIVE_STREAM = 32
PARTS_PER_LAYER = 5
SHARE_WITH_RANKS = 0.3
"""How many of the programs run on two ranks."""
SHARE_AWAITED = 0.3
"""After how many of the parts the collectives under way are waited for."""


def ranks_of(seed: int) -> int:
    """Returns how many ranks the program of a seed runs on."""
    return 2 if Random(f"ranks of program {seed}").random() < SHARE_WITH_RANKS else 1


def random_program(process: Process) -> Iterator[None]:
    """Yields a random program per seed: streams, events, waits of the host, graphs, a backward pass, collectives."""
    rank = Rank(process, Communicator(process, world(process.size.ranks), COLLECTIVE_STREAM))
    parts = _parts(Draft(process.seed, process.size.ranks), PARTS_PER_LAYER * process.size.layers)
    for rank.step in steps(process):
        for part in parts:
            part(rank, process.main)
        yield


def _parts(draft: Draft, count: int) -> list[Part]:
    """Work on every stream, as many drawn parts, and what a step begins and ends with.

    A program has much of some kinds and little of others.
    """
    weights = [weight * draft.random.choice((0, 1, 1, 3)) + 0.01 for weight in KINDS.values()]
    of_streams = [work_on(draft, stream) for stream in draft.streams]
    kinds = draft.random.choices([*KINDS], weights, k=count)
    drawn = [part for kind in kinds for part in (kind(draft), *_waits(draft, SHARE_AWAITED))]
    parts = [*of_streams, *drawn, *_waits(draft, 1.0)]
    return [fork(draft.streams), *parts, join(draft.streams)] if draft.joined else parts


def _waits(draft: Draft, share: float) -> Iterator[Part]:
    if draft.under_way and draft.random.random() <= share:
        yield from map(awaited, draft.under_way)
        draft.under_way = []
