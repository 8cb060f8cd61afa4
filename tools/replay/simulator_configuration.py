"""Reads the configuration of ASTRA-sim beside the graphs of a job: its network, algorithms, mode and groups."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...converter.ranks import Link
from ...converter.targets import Roofline
from ...schema.comm_groups import ASTRA_SIM_FILES, GRAPHS, GROUPS, RankList, read_groups
from ...schema.errors import DataError
from ...schema.graph import CollectiveType

NETWORK_FILE = "network.yml"
SYSTEM_FILE = "system.json"
LISTED = re.compile(r"^(\w+):[ \t]*\[?([^\]#\n]*)", re.MULTILINE)
"""A line of network.yml such as `latency: [ 500, 7000 ]  # ns`."""
HOPS = {"Switch": 2, "FullyConnected": 1}
"""Links from one rank to another."""
RING, DIRECT = "ring", "direct"


class Configuration(NamedTuple):
    """What a simulation reads besides the graphs; `hops` from rank to rank and `algorithms` of each type of collective
    are by dimension.

    Adding up in collectives goes through a memory of `memory_gb_s` (10**9 bytes/s). With `peaks`, computation takes the
    time of its work.
    """

    links: tuple[Link, ...]
    hops: tuple[int, ...]
    algorithms: dict[int, list[str]]
    memory_gb_s: float
    groups: dict[str, RankList]
    is_replay: bool
    peaks: Roofline | None

    @property
    def ranks(self) -> int:
        """How many ranks the network joins."""
        return math.prod(link.ranks for link in self.links)


class _System(msgspec.Struct, rename={"local_mem_bw": "local-mem-bw", "peak_perf": "peak-perf"}):
    """The settings of system.json that decide how long nodes take."""

    all_reduce: list[str] = msgspec.field(name="all-reduce-implementation")
    all_gather: list[str] = msgspec.field(name="all-gather-implementation")
    reduce_scatter: list[str] = msgspec.field(name="reduce-scatter-implementation")
    all_to_all: list[str] = msgspec.field(name="all-to-all-implementation")
    local_mem_bw: float
    splits: int = msgspec.field(name="preferred-dataset-splits", default=1)
    peak_perf: float = 0.0
    replay_only: int = msgspec.field(name="replay-only", default=0)
    roofline_enabled: int = msgspec.field(name="roofline-enabled", default=0)


def configuration_of(paths: Sequence[str]) -> tuple[Configuration | None, str]:
    """Returns the configuration of the job that these graphs are, or None and why it is not known."""
    folders = {Path(path).parent for path in paths}
    configuration = read_configuration(folders.pop()) if len(folders) == 1 else None
    if configuration is None:
        return None, f"there is no {ASTRA_SIM_FILES}/{NETWORK_FILE} beside the graphs"
    is_alone = Path(paths[0]).with_name(ASTRA_SIM_FILES).joinpath(f"{GRAPHS}.1.et").exists()
    if len(paths) != (1 if is_alone else configuration.ranks):
        return None, f"{len(paths)} graphs are not the {configuration.ranks} ranks of {NETWORK_FILE}"
    return configuration, ""


def read_configuration(folder: Path) -> Configuration | None:
    """Returns what `trace-build --target astra-sim` wrote beside the graphs in a folder, as it is now; None if nothing.

    Raises DataError for a network or algorithm whose times are not known.
    """
    network, system = (folder / ASTRA_SIM_FILES / name for name in (NETWORK_FILE, SYSTEM_FILE))
    if not (network.is_file() and system.is_file()):
        return None
    try:
        settings = msgspec.json.decode(system.read_bytes(), type=_System)
    except msgspec.DecodeError as error:
        raise DataError(f"{system}: is no configuration of the simulator ({error}); build the graphs again") from error
    links, hops = _dimensions(network)
    algorithms = {
        int(CollectiveType.ALL_REDUCE): settings.all_reduce,
        int(CollectiveType.ALL_GATHER): settings.all_gather,
        int(CollectiveType.REDUCE_SCATTER): settings.reduce_scatter,
        int(CollectiveType.ALL_TO_ALL): settings.all_to_all,
    }
    for kind, names in algorithms.items():
        supported = {RING, DIRECT} if kind == CollectiveType.ALL_TO_ALL else {RING}
        if not set(names) <= supported or len(names) != len(links) or settings.splits != 1:
            raise DataError(
                f"{system}: how long collectives take is known for {' or '.join(sorted(supported))} in each of "
                f"{len(links)} dimensions and one split, not for {names} and {settings.splits}; run the simulator"
            )
    peaks = Roofline(settings.peak_perf, settings.local_mem_bw) if settings.roofline_enabled else None
    is_replay = bool(settings.replay_only)
    return Configuration(links, hops, algorithms, settings.local_mem_bw, _groups(folder / GROUPS), is_replay, peaks)


def _groups(path: Path) -> dict[str, RankList]:
    """Returns the ranks of each group by the number that nodes have as its name."""
    listed = read_groups(str(path)) if path.is_file() else {}
    return {str(number): ranks for ranks, number in listed.items()}


def _dimensions(path: Path) -> tuple[tuple[Link, ...], tuple[int, ...]]:
    """Returns the links of each dimension of a network.yml, and how many of them are between two ranks."""
    listed = {name: [value.strip() for value in values.split(",")] for name, values in LISTED.findall(path.read_text())}
    try:
        columns = [listed[name] for name in ("npus_count", "bandwidth", "latency")]
        links = tuple(
            Link(int(ranks), float(gib_s), float(latency)) for ranks, gib_s, latency in zip(*columns, strict=True)
        )
        hops = tuple(HOPS[topology] for topology, _ in zip(listed["topology"], links, strict=True))
    except (KeyError, ValueError) as error:
        raise DataError(
            f"{path}: is no network of {' and '.join(HOPS)} dimensions ({error}); build the graphs again, or run the "
            "simulator"
        ) from error
    return links, hops
