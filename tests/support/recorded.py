"""What trace files say, row by row and by none of the project's code: the figures that linking them should come to."""

import gzip
import json
import re
from collections import Counter
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]

NO_OP = re.compile(r"\[pytorch\|profiler\|execution_trace|process_group:init")
OPS = ("cpu_op", "user_annotation", "hpu_op")
CALLS = ("cuda_runtime", "cuda_driver", "mtia_runtime", "xpu_runtime", "privateuse1_runtime", "privateuse1_driver")
ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events")
QUEUE_EVENTS = ("event_wait", "event_record")
SYNCHRONISES = re.compile(r"^(cuda|hip)(Stream|Device|Event)Synchronize$|synchronizeStream")


class Tensors(NamedTuple):
    """What an op lists, as JSON values."""

    inputs: Any
    outputs: Any

    @property
    def any(self) -> bool:
        return re.search(r'"(cpu|cuda:\d+)"', json.dumps(self)) is not None


class Recorded:
    """A pair of files, or a device trace alone."""

    def __init__(self, host: Path | None, device: Path) -> None:
        self._nodes = _read(host)["nodes"] if host else []
        self._rows = [row for row in _read(device, parse_float=Decimal)["traceEvents"] if row.get("ph") == "X"]

    def _of(self, *categories: str) -> list[Json]:
        return [row for row in self._rows if row.get("cat") in categories]

    @cached_property
    def host_ops(self) -> Counter[str]:
        return Counter(node["name"] for node in self._nodes if not NO_OP.search(node["name"]))

    @cached_property
    def device_ops(self) -> Counter[tuple[str, int]]:
        """Names and starts in ns."""
        return Counter((row["name"], _ns(row)) for row in self._of(*OPS))

    @property
    def ops_of_both(self) -> int:
        """How many ops have one of their name in the other file."""
        names = Counter(name for name, _ in self.device_ops.elements())
        return sum((names & self.host_ops).values())

    @cached_property
    def tensors(self) -> dict[int, Tensors]:
        """The ops that list tensors, by id."""
        found = {node["id"]: Tensors(_values(node, "inputs"), _values(node, "outputs")) for node in self._nodes}
        return {number: tensors for number, tensors in found.items() if tensors.any}

    @cached_property
    def launches(self) -> Counter[tuple[str, int, str]]:
        """Activities with their start and the call of their correlation, "" for none."""
        calls = {_correlation(row): row["name"] for row in reversed(self._of(*CALLS))}
        calls[0] = ""
        work = [row for row in self._of(*ACTIVITIES) if row["name"] not in QUEUE_EVENTS]
        return Counter((row["name"], _ns(row), calls.get(_correlation(row), "")) for row in work)

    @property
    def sizes_of_graphs(self) -> list[int]:
        """How many activities each call launched that launched several, ascending."""
        work = [row for row in self._of(*ACTIVITIES) if row["name"] not in QUEUE_EVENTS]
        correlations = Counter(_correlation(row) for row in work)
        calls = {_correlation(row) for row in self._of(*CALLS)} - {0}
        return sorted(count for correlation, count in correlations.items() if count > 1 and correlation in calls)

    @property
    def synchronising_calls(self) -> Counter[str]:
        return Counter(row["name"] for row in self._of(*CALLS) if SYNCHRONISES.search(row["name"]))

    @property
    def queue_waits(self) -> int:
        """Waits that the queues of a device recorded themselves."""
        return sum(row["name"] == "event_wait" for row in self._of("mtia_ccp_events"))

    @cached_property
    def communications(self) -> Counter[str]:
        """What the communication library was told to do, but for waits, spelt without underscores and variants."""
        if self._nodes:
            texts = [
                next((text for text in _values(node, "inputs") if isinstance(text, str)), "")
                if node["name"] == "record_param_comms"
                else node["name"].partition("gloo:")[2]
                for node in self._nodes
                if node["name"] == "record_param_comms" or node["name"].startswith("gloo:")
            ]
        else:
            texts = [row["args"]["Collective name"] for row in self._of("kernel") if "Collective name" in row["args"]]
        plain = (text.replace("_", "").replace("alltoallv", "alltoall") for text in texts)
        return Counter(text for text in plain if text not in ("", "wait", "init"))


def _read(path: Path, **options: Any) -> Json:
    text = path.read_bytes()
    found: Json = json.loads(gzip.decompress(text) if path.suffix == ".gz" else text, **options)
    return found


def _values(node: Json, side: str) -> Any:
    lists = node[side]
    return lists["values"] if isinstance(lists, dict) else lists


def _correlation(row: Json) -> int:
    return int(row["args"].get("correlation", 0))


def _ns(row: Json) -> int:
    time: int = round(row["ts"] * 1000)
    return time
