"""Gives nodes other parents: exchanged, in circles, at random, missing."""

from collections.abc import Callable
from random import Random
from typing import Any

Nodes = list[dict[str, Any]]
MISSING = 1 << 40


def change_parents(document: dict[str, Any], random: Random) -> str:
    """Changes the parents of nodes of a host trace or a linked trace. Returns what was done, in words."""
    key = random.choice([key for key in ("ctrl_deps", "parent") if key in document["nodes"][0]])
    nodes = [node for node in document["nodes"] if isinstance(node.get(key), int)]
    # those of a thread, a part of them, or all
    nodes = random.choice(
        [nodes, nodes, random.sample(nodes, len(nodes) // 2), random.sample(nodes, min(len(nodes), 3))]
    )
    way = random.choice(WAYS)
    parents = way([node["id"] for node in nodes], [node[key] for node in nodes], random)
    for node, parent in zip(nodes, parents, strict=True):
        node[key] = parent
    without_inputs = random.random() < 0.3
    if without_inputs:
        for node in document["nodes"]:
            node["inputs"] = {name: [] for name in node["inputs"]} if isinstance(node.get("inputs"), dict) else []
    return f"{way.__name__.strip('_')} parents of {len(nodes)} nodes{', without inputs' if without_inputs else ''}"


def _themselves(ids: list[int], _: list[int], __: Random) -> list[int]:
    return ids


def _ring(ids: list[int], _: list[int], __: Random) -> list[int]:
    return ids[1:] + ids[:1]


def _pairs(ids: list[int], _: list[int], __: Random) -> list[int]:
    """The first of two has the second, and the second the first."""
    return [ids[place ^ 1] if place ^ 1 < len(ids) else ids[place] for place in range(len(ids))]


def _tail_into_ring(ids: list[int], _: list[int], random: Random) -> list[int]:
    """A chain that runs into a circle of its last ones."""
    return [*ids[1:], ids[random.randrange(len(ids))]]


def _chain(ids: list[int], _: list[int], __: Random) -> list[int]:
    return ids[:1] + ids[:-1]


def _drawn(ids: list[int], _: list[int], random: Random) -> list[int]:
    return [random.choice(ids) for _ in ids]


def _exchanged(_: list[int], parents: list[int], random: Random) -> list[int]:
    return random.sample(parents, len(parents))


def _one_for_all(ids: list[int], _: list[int], random: Random) -> list[int]:
    return [random.choice(ids)] * len(ids)


def _children(ids: list[int], parents: list[int], _: Random) -> list[int]:
    """Each has one of its children, if it has any."""
    child = dict(zip(parents, ids, strict=True))
    return [child.get(number, parent) for number, parent in zip(ids, parents, strict=True)]


def _later(ids: list[int], _: list[int], random: Random) -> list[int]:
    return [max(number, random.choice(ids)) for number in ids]


def _missing(ids: list[int], _: list[int], __: Random) -> list[int]:
    return [number + MISSING for number in ids]


WAYS: tuple[Callable[[list[int], list[int], Random], list[int]], ...] = (
    _themselves, _ring, _pairs, _tail_into_ring, _chain, _drawn, _exchanged, _one_for_all, _children, _later, _missing,
)  # fmt: skip
