"""Edges of a linked trace that are known from timing alone, and the trace without them."""

from dataclasses import fields, replace
from typing import Any, TypeVar

from ..columns import Bool, Categorical
from .linked_trace import DeviceWaits, HostWaits, LinkedTrace, Provenance, ThreadHandoffs

Guessable = TypeVar("Guessable", DeviceWaits, HostWaits, ThreadHandoffs)


def guessed(found: Categorical) -> Bool:
    """Returns which edges are known from timing alone."""
    return found.equal(Provenance.TIMING.value)


def without_guesses(linked: LinkedTrace) -> LinkedTrace:
    """Returns the trace without waits and hand-offs that are known from timing alone; what they took for waiting is a
    thread's own time again.
    """
    tables = {name: _certain(getattr(linked, name)) for name in ("device_waits", "host_waits", "handoffs")}
    return replace(linked, **tables)


def _certain(table: Guessable) -> Guessable:
    known = ~guessed(table.found)
    columns: dict[str, Any] = {column.name: getattr(table, column.name) for column in fields(table)}
    kept: dict[str, Any] = {
        name: c.take(known) if isinstance(c, Categorical) else c[known] for name, c in columns.items()
    }
    return replace(table, **kept)
