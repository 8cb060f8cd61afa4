"""How to write a job in GOAL."""

from dataclasses import dataclass

from ....schema.choices import Algorithm, Simulator


@dataclass(frozen=True, slots=True)
class GoalOptions:
    """How to write a job in GOAL.

    With the algorithm "recursive-doubling" all-reduces and all-gathers of 2^n members use recursive doubling, all
    others a ring. Messages are cut into pieces of `chunk_bytes`. Each `gpus_per_node` consecutive ranks share a node,
    within which messages have a nic of their own; 0 is one rank per node. With `measured_communication` the members of
    a collective only wait for each other and then take their measured time. The `simulator` "loggopsim" gets the time
    of other cpus by messages of the rank to itself, "atlahs" by `requires`.
    """

    algorithm: Algorithm = "ring"
    chunk_bytes: int = 512 * 1024
    gpus_per_node: int = 0
    measured_communication: bool = False
    simulator: Simulator = "loggopsim"
