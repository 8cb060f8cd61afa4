"""Puts parts of other files into a file: subtrees of host traces, rows of device traces and linked traces."""

import copy
import json
from random import Random
from typing import Any

from fuzz import samples
from fuzz.columns import columns

OTHER_IDS = 1 << 20


def change_parts(document: dict[str, Any], file: str, random: Random) -> str:
    """Takes a part of the same file of another sample into this one. Returns what was done, in words."""
    name = samples.draw(random)
    other = json.loads(samples.linked(name) if file == samples.LINKED else samples.traces(name)[file])
    rows = "traceEvents" if "traceEvents" in document else "nodes"
    choose = random.choice([_subtree, _subtree, _stretch]) if rows == "nodes" else _stretch
    part = copy.deepcopy(choose(other[rows], random))
    ways = [way for way in (_renumber, _move_in_time, _graft) if random.random() < 0.5]
    changed = [way.__name__.strip("_") for way in ways if way(part, document[rows], random)]
    at = random.randrange(len(document[rows]) + 1)
    instead = random.choice([0, 0, len(part)])
    document[rows][at : at + instead] = part
    for key in ("calls", "communications", "groups", "device_waits", "host_waits", "handoffs", "distributedInfo"):
        if key in other and random.random() < 0.1:
            document[key] = other[key]
            changed.append(key)
    return f"{len(part)} rows of {name} in place of {instead}: {', '.join(changed) or 'as they were'}"


def _stretch(rows: list[Any], random: Random) -> list[Any]:
    begin = random.randrange(len(rows))
    return rows[begin : begin + random.choice([1, 5, 50, len(rows)])]


def _subtree(nodes: list[dict[str, Any]], random: Random) -> list[Any]:
    """A node and all below it."""
    inside = {random.choice(nodes).get("id")}
    for _ in range(20):
        inside |= {node.get("id") for node in nodes if node.get("ctrl_deps", node.get("parent")) in inside}
    return [node for node in nodes if node.get("id") in inside]


def _renumber(part: list[Any], _: list[Any], __: Random) -> bool:
    for key, slots in columns(part, ("id", "ctrl_deps", "parent", "rf_id", "correlation", "External id")).items():
        for container, place in slots:
            container[place] += OTHER_IDS if key else 0
    return True


def _move_in_time(part: list[Any], rows: list[Any], random: Random) -> bool:
    timed = [row for row in part if isinstance(row.get("ts"), int | float)]
    there = [row["ts"] for row in rows if isinstance(row.get("ts"), int | float)]
    if timed and there:
        by = random.choice(there) - timed[0]["ts"]
        for row in timed:
            row["ts"] += by
    return bool(timed)


def _graft(part: list[Any], rows: list[Any], random: Random) -> bool:
    """Gives the part's first node a parent in this file."""
    key = next((key for key in ("ctrl_deps", "parent") if key in part[0]), None) if part else None
    if key:
        part[random.choice([0, -1])][key] = random.choice(rows).get("id")
    return key is not None
