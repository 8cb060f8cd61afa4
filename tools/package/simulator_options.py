"""How a job is built for a simulator, in place of the target's name alone."""

from dataclasses import dataclass
from typing import Literal

from .converter.targets import GoalOptions, Roofline, roofline_of
from .schema.arguments import ASTRA_SIM, GOAL, Target, flags, number
from .tools.job import Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class AstraSimOptions:
    """How to build a job for ASTRA-sim, as the options of `trace-build --target astra-sim`.

    >>> import execgraph as eg
    >>> job = eg.build("tests/data/training", target=eg.AstraSimOptions(bandwidth_gib_s=100, latency_ns=500))
    >>> job.simulate().network[0].bandwidth_gib_s
    100.0

    Args:
        bandwidth_gib_s: The bandwidth of a link in 2**30 bytes/s; fitted to the measured collectives by default.
        latency_ns: The latency of a link; fitted by default.
        replay: Whether every node takes its recorded time, collectives included.
        roofline: A device and format, such as "V100:fp32", or "TFLOPS:GB/S": kernels of known work take its time at
            these peaks. It needs graphs without host nodes, `Options(host=False)`.
        incomplete_groups: What to do with groups of which the job lacks ranks: "restrict" them to the ranks that are
            there, or "keep" them whole with measured times.

    Raises:
        ValueError: A number is not above 0, the device is not known, or `roofline` and `replay` are both given.
    """

    bandwidth_gib_s: float | None = None
    latency_ns: float | None = None
    replay: bool = False
    roofline: str | None = None
    incomplete_groups: Literal["restrict", "keep"] = "restrict"

    def __post_init__(self) -> None:
        for name in ("bandwidth_gib_s", "latency_ns"):
            value = getattr(self, name)
            if value is not None and not number(value, f"AstraSimOptions({name}=…)") > 0:
                raise ValueError(f"AstraSimOptions({name}={value!r}): give a number above 0")
        flags("AstraSimOptions", replay=self.replay)
        if self.incomplete_groups not in ("restrict", "keep"):
            raise ValueError(
                f'AstraSimOptions: incomplete_groups is "restrict" or "keep", not {self.incomplete_groups!r}'
            )
        if self.peaks and self.replay:
            raise ValueError("AstraSimOptions: replay has no use for roofline, as every node takes its recorded time")

    @property
    def peaks(self) -> Roofline | None:
        """What `roofline` stands for, per second."""
        return None if self.roofline is None else roofline_of(self.roofline)

    @property
    def simulation(self) -> Simulation:
        """What the simulator's configuration says."""
        return Simulation(self.bandwidth_gib_s, self.latency_ns, self.replay, self.peaks)


BuildTarget = Target | AstraSimOptions | GoalOptions
"""Who runs the graphs of a job: by name, or with what that simulator is to do."""


def target_name(target: BuildTarget) -> Target:
    """Returns the name of a target.

    >>> target_name(GoalOptions()), target_name("generic")
    ('goal', 'generic')
    """
    if isinstance(target, AstraSimOptions):
        return ASTRA_SIM
    return GOAL if isinstance(target, GoalOptions) else target
