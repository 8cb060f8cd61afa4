"""Kineto traces as PyTorch's CUPTI backend would have written them, with the dependencies within launched graphs."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from execgraph.tools.generate import RankRun, as_numpy, record

Row = dict[str, Any]
Dependencies = Mapping[int, Sequence[tuple[int, int]]]
FIRST = 1 << 40
OF_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "graph_event_node")
OF_HOST = ("cuda_runtime", "cuda_driver")
COPY = re.compile(r"(Memcpy|Memset) ?(\w+)? \((\w+)(?: -> (\w+))?\)")
MEMORY = ("Unknown", "Pageable", "Pinned", "Device")


def dependencies_of(rank: RankRun) -> Dependencies:
    """By correlation of the launch, pairs of nodes of its graph: those between streams, and each stream's order."""
    work, pairs = rank.activities, defaultdict[int, list[tuple[int, int]]](list)
    call, node = as_numpy(work.call), as_numpy(work.node)
    last: dict[tuple[int, int], int] = {}
    for row in range(len(call)):
        key = int(call[row]), work.stream[row]
        if key in last:
            pairs[record.correlation(key[0])].append((last[key], int(node[row])))
        last[key] = int(node[row])
    for source, target in zip(*rank.graph_order.columns(), strict=True):
        if call[source] == call[target]:
            pairs[record.correlation(int(call[source]))].append((int(node[source]), int(node[target])))
    return pairs


def rewritten(trace: Row, dependencies: Dependencies, lanes: Mapping[int, int] | None = None) -> Row:
    """The trace in the backend's form; `lanes` are where nodes of graphs are shown, by stream."""
    rows = [_rewritten(row, lanes or {}) for row in trace["traceEvents"]]
    nodes = {
        (row["args"]["correlation"], row["args"]["graph node id"]): row
        for row in rows
        if row.get("cat") in OF_DEVICE and "graph node id" in row["args"]
    }
    inside = {(launch, target) for launch, pairs in dependencies.items() for _, target in pairs}
    at = {(row["pid"], row["tid"], row["ts"]) for key, row in nodes.items() if key in inside}
    rows = [row for row in rows if row["ph"] != "f" or (row["pid"], row["tid"], row["ts"]) not in at]
    for launch, pairs in dependencies.items():
        for source, target in pairs:
            if (launch, source) in nodes and (launch, target) in nodes:
                rows += _flow(FIRST + len(rows), nodes[launch, source], nodes[launch, target])
    return trace | {"traceEvents": rows}


def _flow(number: int, source: Row, target: Row) -> list[Row]:
    until = (round(1000 * source["ts"]) + round(1000 * source["dur"])) / 1000
    begin = {"ph": "s", "ts": until, "pid": source["pid"], "tid": source["tid"]}
    end = {"ph": "f", "ts": target["ts"], "pid": target["pid"], "tid": target["tid"], "bp": "e"}
    return [each | {"id": number, "cat": "ac2g", "name": "ac2g"} for each in (begin, end)]


def _rewritten(row: Row, lanes: Mapping[int, int]) -> Row:
    if row.get("cat") not in (*OF_DEVICE, *OF_HOST, "cuda_sync", "ac2g"):
        return row
    args = {name: value for name, value in row.get("args", {}).items() if name != "External id"}
    moved = {"args": args} if args else {}
    stream = args.get("stream")
    if "graph node id" in args and lanes.get(stream, stream) != stream:
        moved["tid"] = lanes[stream]
        args |= {"stream": lanes[stream], "original_stream": stream}
    if "wait_on_stream" in args:
        args["wait_on_stream"] = -1
    if match := COPY.fullmatch(str(row.get("name"))):
        moved["name"], kind, source, target = match.groups()
        args.pop("memory bandwidth (GB/s)", None)
        is_copy = moved["name"] == "Memcpy"
        copied = {"copy kind": kind, "src kind": source.lower(), "dst kind": str(target).lower(), "flags": 0}
        args |= copied if is_copy else {"value": 0, "memory kind": MEMORY.index(source)}
    return row | moved
