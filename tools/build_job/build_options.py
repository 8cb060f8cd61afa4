"""How to build the graphs of a job."""

from dataclasses import dataclass

from ...converter import Options


@dataclass(frozen=True, slots=True)
class BuildOptions(Options):
    """How to convert each rank, and what to do with groups of which the build lacks members.

    Where only some ranks of a job are simulated, groups lose the members that are not, unless `whole_groups`: then what such groups
    communicate takes its measured time.
    """

    whole_groups: bool = False
