"""What ASTRA-sim reads besides the graphs: OUT/astra-sim with its configuration, and the command that runs it."""

import json
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

from ...converter.network import Network
from ...converter.targets import Roofline, idle_rank
from ...schema.io import open_output
from .job import GRAPHS
from .leftovers import GROUPS

ASTRA_SIM_FILES = "astra-sim"
BINARY = "AstraSim_Analytical_Congestion_Unaware"


class Simulation(NamedTuple):
    """What to simulate: a link's bandwidth (2**30 bytes/s) and latency (ns), and how long nodes take.

    None takes the fitted network. With `replay` every node takes its recorded time, with `roofline` kernels take the
    time of their work at these peaks.
    """

    bandwidth_gb_s: float | None = None
    latency_ns: float | None = None
    replay: bool = False
    roofline: Roofline | None = None


def write_astra_sim_files(output_dir: Path, ranks: int, fitted: Network | None, simulation: Simulation) -> None:
    """Writes system.json, network.yml and memory.json for so many ranks, each whole or not at all.

    The simulator has no network of one: a rank alone gets a second one beside it that computes for 1 µs, in files of
    this folder.
    """
    network, folder = fitted or Network(), output_dir / ASTRA_SIM_FILES
    folder.mkdir(exist_ok=True)
    if ranks == 1:
        _copy(f"{output_dir / GRAPHS}.0.et", f"{folder / GRAPHS}.0.et")
        idle_rank(1).write(f"{folder / GRAPHS}.1.et")
    bandwidth, latency = link_of(network, simulation)
    files = {
        "system.json": json.dumps(_system(network, simulation), indent=1) + "\n",
        "network.yml": "topology: [ Switch ]\n"
        f"npus_count: [ {max(ranks, 2)} ]\n"
        f"bandwidth: [ {bandwidth} ]  # 2**30 bytes/s of each link\n"
        f"latency: [ {latency} ]  # ns of each link\n",
        "memory.json": json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}) + "\n",
    }
    for name, text in files.items():
        with open_output(str(folder / name)) as out:
            out.write(text.encode())


def link_of(fitted: Network, simulation: Simulation) -> tuple[float, float]:
    """Returns the bandwidth (2**30 bytes/s) and latency (ns) of a link: as given, else as fitted."""
    bandwidth, latency = simulation.bandwidth_gb_s, simulation.latency_ns
    return (
        fitted.bandwidth_gb_s if bandwidth is None else bandwidth,
        fitted.latency_ns if latency is None else latency,
    )


def simulator_command(output_dir: Path, ranks: int) -> str:
    """Returns the command line that simulates the graphs of a folder with so many ranks."""
    folder = output_dir / ASTRA_SIM_FILES
    configuration_files = {
        "workload": (output_dir if ranks > 1 else folder) / GRAPHS,
        "system": folder / "system.json",
        "network": folder / "network.yml",
        "remote-memory": folder / "memory.json",
        "comm-group": output_dir / GROUPS,
    }
    return shlex.join([BINARY, *(f"--{what}-configuration={path}" for what, path in configuration_files.items())])


def _copy(source: str, target: str) -> None:
    with Path(source).open("rb") as graph, open_output(target) as out:
        shutil.copyfileobj(graph, out)


def _system(network: Network, simulation: Simulation) -> dict[str, object]:
    """Returns system.json: one chunk at a time, no cost but the network's, and endpoints of 1 ns (0 stops its clock).

    In roofline mode memory is the device's, which adding up in collectives waits for, too.
    """
    peaks = simulation.roofline
    return {
        "scheduling-policy": "LIFO",
        "endpoint-delay": 1,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": ["ring"],
        "all-gather-implementation": ["ring"],
        "reduce-scatter-implementation": ["ring"],
        "all-to-all-implementation": ["direct" if network.direct else "ring"],
        "collective-optimization": "localBWAware",
        "local-mem-bw": peaks.memory_gb_s if peaks else 100000,
        "boost-mode": 0,
        "trace-enabled": 0,
        "replay-only": int(simulation.replay),
    } | ({"roofline-enabled": 1, "peak-perf": peaks.tflops} if peaks else {})
