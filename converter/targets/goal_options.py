"""How to write a job in GOAL."""

from dataclasses import dataclass
from typing import get_args

from ...schema.choices import Algorithm, Simulator


@dataclass(frozen=True, slots=True)
class GoalOptions:
    """How to write a job in GOAL, as the options of `trace-build --target goal`.

    >>> import execgraph as eg
    >>> job = eg.build("tests/data/training", target=eg.GoalOptions(measured_communication=True))
    >>> (job.folder / "job.goal").is_file()
    True

    Args:
        algorithm: With "recursive-doubling" all-reduces and all-gathers of 2^n members use it, all others a ring.
        chunk_bytes: The longest message; longer ones are cut.
        gpus_per_node: How many consecutive ranks share a node, within which messages have a nic of their own; 0 is one
            rank per node.
        measured_communication: Whether members of a collective only wait for each other and then take their measured
            time.
        simulator: Who runs the file: "loggopsim" gets the time of other cpus by messages of the rank to itself,
            "atlahs" by `requires`.

    Raises:
        ValueError: An option has a value that does not exist.
    """

    algorithm: Algorithm = "ring"
    chunk_bytes: int = 512 * 1024
    gpus_per_node: int = 0
    measured_communication: bool = False
    simulator: Simulator = "loggopsim"

    def __post_init__(self) -> None:
        for name, choices in (("algorithm", get_args(Algorithm)), ("simulator", get_args(Simulator))):
            if getattr(self, name) not in choices:
                raise ValueError(f"GoalOptions: {name} is {getattr(self, name)!r}, not one of {choices}")
        if self.chunk_bytes < 1 or self.gpus_per_node < 0:
            raise ValueError("GoalOptions: chunk_bytes and gpus_per_node are numbers from 1 on")
