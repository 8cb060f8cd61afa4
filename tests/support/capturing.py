"""Loops that are captured, and what is in the traces that they leave."""

import gzip
import json
from pathlib import Path

from execgraph import capture
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace


def train(torch, folder: Path, steps: int, work=None, **window) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    with capture(folder, **{"wait": 1} | window) as recorder:
        for _ in range(steps):
            model(torch.randn(4, 8)).sum().backward()
            if work:
                work()
            recorder.step()


def written(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.json.gz"))


def linked(folder: Path, rank: int = 0):
    """What linking says of a pair, of which every host op must be found."""
    host, device = (str(folder / f"{trace}_rank{rank}.json.gz") for trace in ("host", "device"))
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
    rows = load(folder / "device_rank0.json.gz")["traceEvents"]
    return {
        row["args"]["Record function id"]: row["name"]
        for row in rows
        if row.get("cat") in ("cpu_op", "user_annotation") and row["args"].get("finished", True)
    }


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
