"""How to convert a linked trace."""

from dataclasses import dataclass


@dataclass(slots=True)
class Options:
    """How to convert; without `host` only activities are in the graph.

    Where only some ranks of a job are simulated, groups lose the members that are not, unless `whole_groups`: then what such groups
    communicate takes its measured time. Slices below `shortest_slice` ns are folded. Without `delays` an activity starts when what is known
    of its dependencies allows. Without the rules named in `left_out` the graph lacks their edges, which shows what they are for.
    """

    target: str = "generic"
    promote: str = "sync"
    io: str = "full"
    inferred: bool = True
    host: bool = True
    whole_groups: bool = False
    shortest_slice: int = 1_000
    delays: bool = True
    left_out: tuple[str, ...] = ()
