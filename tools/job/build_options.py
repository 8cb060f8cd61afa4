"""How to build the graphs of a job."""

from dataclasses import dataclass, field

from ...converter.options import Options
from ...converter.targets import GoalOptions, Roofline


@dataclass(frozen=True, slots=True)
class BuildOptions(Options):
    """How to convert each rank, and what to do with groups of which the build lacks members.

    Where only some ranks of a job are simulated, groups lose the members that are not, unless `whole_groups`: then what
    such groups communicate takes its measured time. `goal` is how the file of the target "goal" is written, `roofline`
    the peaks with which ASTRA-sim's roofline mode is to run. With `modules` Python's calls are read, and nodes tell
    their module. With `start_offsets` the ranks of a job for a simulator begin when they began to record, else all at
    once. Graphs for ASTRA-sim's `replay` mode keep measured times alone; others say where a send waits for its
    receiver and, with `excess_time`, keep what collectives took beyond what the fitted network gives them.
    """

    whole_groups: bool = False
    goal: GoalOptions = field(default_factory=GoalOptions)
    roofline: Roofline | None = None
    modules: bool = False
    start_offsets: bool = True
    replay: bool = False
    excess_time: bool = True
