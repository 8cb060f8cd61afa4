"""Loops that are captured, and what is in the files that they leave, row by row and by none of the project's code."""

import gzip
import json
import re
from collections import Counter
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from execgraph import capture
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace


def train(torch, folder: Path, steps: int, work=None, rest=None, **window) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    with capture(folder, **{"wait": 1, "warmup": 1, "together": True} | window) as recorder:
        for _ in range(steps):
            model(torch.randn(4, 8)).sum().backward()
            if work:
                work()
            recorder.step()
        if rest:
            rest()


def written(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.json.gz"))


def linked(folder: Path, kind: str = "device", rank: int = 0):
    """What linking says of a pair, of which every host op must be found."""
    host, device = (str(folder / f"{trace}_rank{rank}.json.gz") for trace in ("host", kind))
    report = link(read_host_trace(host), read_device_trace(device)).report
    assert report.host_ops == report.matched > 0
    assert report.matched_by == "record function id"
    return report


def load(path: Path) -> dict:
    return json.loads(gzip.decompress(path.read_bytes()))


def host_ops(folder: Path) -> dict[int, str]:
    """Names by record function id."""
    ops = {}
    for node in load(folder / "host_rank0.json.gz")["nodes"]:
        rf_id = next(attribute["value"] for attribute in node["attrs"] if attribute["name"] == "rf_id")
        if rf_id and node["name"] != "## process_group:init ##":
            ops[rf_id] = node["name"]
    return ops


def device_ops(folder: Path) -> dict[int, str]:
    return dict(device_pairs(folder))


def device_pairs(folder: Path) -> list[tuple[int, str]]:
    rows = load(folder / "device_rank0.json.gz")["traceEvents"]
    ops = (row for row in rows if row.get("cat") in ("cpu_op", "user_annotation") and row["args"].get("finished", True))
    return [(row["args"]["Record function id"], row["name"]) for row in ops]


def said_by(warned) -> list[str]:
    return [str(one.message) for one in warned if "execgraph" in str(one.message)]


def other_observer(torch, folder: Path):
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(folder / "other.json"))
    return observer


def profiled(torch, handler, steps: int, **more) -> None:
    """A loop with a profiler of its own."""
    with torch.profiler.profile(on_trace_ready=handler, execution_trace_observer=handler, **more) as profiler:
        for _ in range(steps):
            torch.nn.Linear(8, 8)(torch.randn(4, 8)).sum().backward()
            profiler.step()


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
