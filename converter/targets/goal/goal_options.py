"""How to write a job in GOAL."""

from dataclasses import dataclass

from ....schema.choices import Algorithm, Simulator


@dataclass(frozen=True, slots=True)
class GoalOptions:
    """How to write a job in GOAL.

    With "recursive-doubling" all-reduces and all-gathers of 2^n members swap by doubling, the others go round a ring.
    Messages are cut into pieces of `chunk_bytes`. `gpus_per_node` ranks that follow each other share a node, where
    their messages have a nic of their own; 0 for one rank a node. With `measured_communication` members only meet, and
    then take as long as measured. For the `simulator` "loggopsim" a cpu learns of another one's time by messages of the
    rank to itself, "atlahs" has the time from `requires`.
    """

    algorithm: Algorithm = "ring"
    chunk_bytes: int = 512 * 1024
    gpus_per_node: int = 0
    measured_communication: bool = False
    simulator: Simulator = "loggopsim"
