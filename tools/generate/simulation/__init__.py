"""A job in, what ran when out: host threads, streams, events, collectives."""

from .device import QUEUE_LIMIT
from .engine import simulate
from .record import EVENT_SYNC, NONE, STREAM_SYNC, STREAM_WAIT, SYNC_KINDS, Edges, RankRun, Run, as_numpy
from .scaling import scale_of

__all__ = [
    "EVENT_SYNC",
    "NONE",
    "QUEUE_LIMIT",
    "STREAM_SYNC",
    "STREAM_WAIT",
    "SYNC_KINDS",
    "Edges",
    "RankRun",
    "Run",
    "as_numpy",
    "scale_of",
    "simulate",
]
