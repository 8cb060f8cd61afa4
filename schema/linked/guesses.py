"""Removes the edges of a linked trace that are known from timing alone."""

from dataclasses import fields, replace
from typing import Any, TypeVar

from ..columns import Bool, Categorical
from .linked_trace import DeviceWaits, HostWaits, LinkedTrace, Provenance, ThreadHandoffs

Guessable = TypeVar("Guessable", DeviceWaits, HostWaits, ThreadHandoffs)


def guessed(known_by: Categorical) -> Bool:
    """Returns which edges are known from timing alone."""
    return known_by.equal(Provenance.TIMING.value)


def without_guesses(linked: LinkedTrace) -> LinkedTrace:
    """Returns the trace without waits and hand-offs that are known from timing alone.

    Their waiting time becomes the thread's own time again.
    """
    tables = {name: _certain(getattr(linked, name)) for name in ("device_waits", "host_waits", "handoffs")}
    return replace(linked, **tables)


def _certain(table: Guessable) -> Guessable:
    is_certain = ~guessed(table.known_by)
    columns: dict[str, Any] = {}
    for name in (field.name for field in fields(table)):
        column = getattr(table, name)
        columns[name] = column.take(is_certain) if isinstance(column, Categorical) else column[is_certain]
    return replace(table, **columns)
