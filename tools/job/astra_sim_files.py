"""Writes what ASTRA-sim reads besides the graphs, OUT/astra-sim, and says whether its network describes the job."""

import dataclasses
import json
import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...converter.options import Options
from ...converter.ranks import Link, Network, links_text
from ...converter.targets import GoalOptions, GoalReport, Roofline, idle_rank, roofline_of
from ...schema.arguments import ASTRA_SIM, GENERIC, GOAL, Target, flags, number
from ...schema.comm_groups import ASTRA_SIM_FILES, GRAPHS, GROUPS
from ...schema.errors import Remedy, Spelled, WrongUsage
from ...schema.io import open_output, without_link
from .build_report import BuildOptions

BINARY = "AstraSim_Analytical_Congestion_Unaware"
POOR_FIT_PCT = 10.0
"""The median error above which a fitted network does not describe a job."""
FEW_SIZES = 10
ONE_SIZE = "all of one size, which does not show whether latency or bandwidth limits them: set the one that you know"


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

    Raises:
        ValueError: A number is not above 0, the device is not known, or `roofline` and `replay` are both given.
    """

    bandwidth_gib_s: float | None = None
    latency_ns: float | None = None
    replay: bool = False
    roofline: str | None = None

    def __post_init__(self) -> None:
        for name in ("bandwidth_gib_s", "latency_ns"):
            if (value := getattr(self, name)) is not None:
                number(value, f"AstraSimOptions({name}=…)", above=0)
        flags("AstraSimOptions", replay=self.replay)
        if self.peaks and self.replay:
            replay, roofline = Spelled("--replay", "AstraSimOptions: replay"), Spelled("--roofline", "roofline")
            raise WrongUsage(f"{replay} has no use for {roofline}, as every node takes its recorded time")

    @property
    def peaks(self) -> Roofline | None:
        """What `roofline` stands for, per second."""
        return None if self.roofline is None else roofline_of(self.roofline)


BuildTarget = Target | AstraSimOptions | GoalOptions
"""Who runs the graphs of a job: by name, or with what that simulator is to do."""


def build_options(
    options: Options,
    target: BuildTarget | None,
    *,
    without_profiler: bool = False,
    as_recorded: bool = False,
    changes: Iterable[str] = (),
    **of_job: bool,
) -> BuildOptions:
    """Returns how to build a job for a target, in place of that of the `options`; `of_job` are fields of BuildOptions.

    Graphs of simulators, and those of a run with `changes`, are of the run without a profiler unless it is taken
    `as_recorded`.
    """
    chosen = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)} | of_job
    if isinstance(target, AstraSimOptions):
        if target.roofline and options.host:
            needs = Spelled("--roofline needs --no-host", "build: roofline needs Options(host=False)")
            raise WrongUsage(f"{needs}, as the mode takes host nodes for kernels")
        chosen |= {"target": ASTRA_SIM, "roofline": target.peaks, "replay": target.replay}
    elif isinstance(target, GoalOptions):
        chosen |= {"target": GOAL, "goal": target}
    elif target is not None:
        chosen["target"] = target
    for name in ("start_offsets", "excess_time"):
        if not of_job[name] and chosen["target"] == GENERIC:
            option = Spelled(f"--no-{name.replace('_', '-')} is for --target", f"build({name}=False) is for")
            raise WrongUsage(f"{option} {ASTRA_SIM} and {GOAL}, whose graphs have these times")
    if without_profiler and as_recorded:
        raise WrongUsage("a run is the unprofiled or the recorded one; ask for one of them")
    if as_recorded and chosen["target"] == GENERIC and not changes:
        spelled = Spelled("--as-recorded is for --target", "build(as_recorded=True) is for")
        raise WrongUsage(f"{spelled} {ASTRA_SIM} and {GOAL}, and for changed graphs; others are as recorded anyway")
    without_profiler |= not as_recorded and (chosen["target"] != GENERIC or bool(changes))
    return BuildOptions(**chosen, without_profiler=without_profiler, changes=tuple(changes))


def write_astra_sim_files(output_dir: Path, ranks: int, fitted: Network | None, simulation: AstraSimOptions) -> None:
    """Writes system.json, network.yml and memory.json for so many ranks, each whole or not at all.

    The simulator has no network of one: beside a rank alone there is a second one that computes for 1 µs.
    """
    folder = without_link(output_dir / ASTRA_SIM_FILES)
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        without_link(path)
    if ranks == 1:
        with Path(f"{output_dir / GRAPHS}.0.et").open("rb") as graph, open_output(f"{folder / GRAPHS}.0.et") as out:
            shutil.copyfileobj(graph, out)
        idle_rank(1).write(f"{folder / GRAPHS}.1.et")
    links, fit = (fitted or Network()).used(max(ranks, 2), simulation.bandwidth_gib_s, simulation.latency_ns)
    files = {
        "system.json": json.dumps(_system(len(links), fit.direct, simulation), indent=1) + "\n",
        "network.yml": f"topology: {_listed('Switch' for _ in links)}\n"
        f"npus_count: {_listed(link.ranks for link in links)}\n"
        f"bandwidth: {_listed(link.bandwidth_gib_s for link in links)}  # 2**30 bytes/s of each link\n"
        f"latency: {_listed(link.latency_ns for link in links)}  # ns of each link\n",
        "memory.json": json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}) + "\n",
    }
    for name, text in files.items():
        with open_output(str(folder / name)) as out:
            out.write(text.encode())


def simulator_command(output_dir: Path, ranks: int) -> str:
    """Returns the command line that simulates the graphs of a folder with so many ranks."""
    folder = output_dir / ASTRA_SIM_FILES
    configuration_files = {
        "workload": (output_dir if ranks > 1 else folder) / GRAPHS, "system": folder / "system.json",
        "network": folder / "network.yml", "remote-memory": folder / "memory.json", "comm-group": output_dir / GROUPS,
    }  # fmt: skip
    return shlex.join([BINARY, *(f"--{what}-configuration={path}" for what, path in configuration_files.items())])


def _listed(values: Iterable[object]) -> str:
    """Returns a list of the simulator's configuration, with an entry for each dimension."""
    return f"[ {', '.join(map(str, values))} ]"


def _system(dimensions: int, direct: bool, simulation: AstraSimOptions) -> dict[str, object]:
    """Returns system.json: one chunk at a time, no cost but the network's, and endpoints of 1 ns (0 stops its clock).

    In roofline mode memory is the device's, which adding up in collectives waits for, too.
    """
    peaks = simulation.peaks
    return {
        "scheduling-policy": "LIFO", "endpoint-delay": 1,
        "active-chunks-per-dimension": 1, "preferred-dataset-splits": 1,
        "all-reduce-implementation": (ring := ["ring"] * dimensions), "all-gather-implementation": ring,
        "reduce-scatter-implementation": ring,
        "all-to-all-implementation": ["direct" if direct else "ring"] * dimensions,
        "collective-optimization": "localBWAware", "local-mem-bw": peaks.memory_gb_s if peaks else 100000,
        "boost-mode": 0, "trace-enabled": 0, "replay-only": int(simulation.replay),
    } | ({"roofline-enabled": 1, "peak-perf": peaks.tflops} if peaks else {})  # fmt: skip


def network_text(fitted: Network | None, simulation: AstraSimOptions, ranks: int) -> str:
    """Returns the bandwidth and latency that network.yml has for so many ranks, and where they are from."""
    links, used = (fitted or Network()).used(ranks, simulation.bandwidth_gib_s, simulation.latency_ns)
    link = links_text(links)
    if simulation.replay:
        return "not used, as every node takes its recorded time"
    if ranks == 1:
        return f"{link}, not used, as a rank alone sends nothing"
    is_given = [simulation.bandwidth_gib_s is not None, simulation.latency_ns is not None]
    if all(is_given):
        return f"{link}, as given"
    if fitted is None or not fitted.transfers:
        return f"{link}; no collective or message was measured to fit a network to"
    why = "".join(f"; {why}" for why in _one_network(links, fitted)) if used.fit_error_pct is None else ""
    error = ONE_SIZE if used.sizes == 1 and not any(is_given) else fit_error_text(used.fit_error_pct)
    fit = f"fitted to {fitted.transfers} collectives and messages, {error}{why}"
    if any(is_given):
        return f"{link}; the {'bandwidth as given, the latency' if is_given[0] else 'latency as given, the bandwidth'} {fit}"
    return f"{link}, {fit}"


def fit_error_text(error: float | None) -> str:
    """Returns the median error in % of a fit, None where nothing could be left out of it, in words."""
    return "too few sizes to judge the fit" if error is None else f"median fit error {error:g} %"


def poor_fit(fitted: Network | None, simulation: AstraSimOptions, *, lacks_members: bool) -> str | None:
    """Returns why simulated communication will be wrong; None where a fit is good enough or not used."""
    is_used = not simulation.replay and None in (simulation.bandwidth_gib_s, simulation.latency_ns)
    if not is_used or fitted is None:
        return None
    links, used = fitted.used(0, simulation.bandwidth_gib_s, simulation.latency_ns)
    if any(link.has_any_bandwidth for link in links):
        return f"measured times do not grow with bytes, so no bandwidth follows from them; give {Remedy.BANDWIDTH}"
    if (used.fit_error_pct or 0.0) <= POOR_FIT_PCT:
        return None
    reasons = ["members of groups are absent"] if lacks_members else []
    if used.sizes < FEW_SIZES:
        reasons.append(f"only {used.sizes} sizes")
    if (repeat_pct := fitted.repeat_error_pct or 0.0) > POOR_FIT_PCT:
        reasons.append(f"transfers of one size differ by {repeat_pct:g} % from their median: they wait or share links")
    reasons = [*reasons, *_one_network(links, fitted)] or ["its latency and bandwidth are not enough"]
    return f"the fitted network may not describe this job: {fit_error_text(used.fit_error_pct)} ({'; '.join(reasons)})"


def poor_goal_fit(report: GoalReport) -> str | None:
    """Returns why messages in the fitted network will take other times than measured; None for a good fit or none."""
    fit = report.network
    if fit is None or fit.fit_error_pct is None or fit.fit_error_pct <= POOR_FIT_PCT:
        return None
    misfit = f"do not describe the messages of this job: median fit error {fit.fit_error_pct:g} %"
    return f"one latency and one time of a byte {misfit}; {Remedy.MEASURED_COMMUNICATION} keeps the measured times"


def _one_network(links: Sequence[Link], fitted: Network) -> list[str]:
    """Returns why groups that may have two networks get one; nothing for others."""
    is_given = fitted.two_dimensions and len(links) != 2
    why = "a given bandwidth or latency describes one" if is_given else fitted.one_because
    return [f"one network for all groups, as {why}"] if why else []
