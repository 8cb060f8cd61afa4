"""The values of options on graphs, here so that a command line knows them without loading what they choose."""

from typing import Final, Literal, get_args

Target = Literal["generic", "astra-sim", "goal"]
GENERIC: Final = "generic"
ASTRA_SIM: Final = "astra-sim"
GOAL: Final = "goal"
TARGETS: tuple[Target, ...] = get_args(Target)
WHOLE_JOB = "a GOAL file is of a whole job: trace-build --target goal writes it from the traces of all ranks"

Promotion = Literal["sync", "all"]
InputsOutputs = Literal["full", "none"]

Algorithm = Literal["ring", "recursive-doubling"]
Simulator = Literal["loggopsim", "atlahs"]
"""Of a job in GOAL: how all-reduces and all-gathers go, and who runs the file."""
