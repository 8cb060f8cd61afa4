"""A job in, what ran when out: host threads, streams, events, collectives."""

from .device import QUEUE_LIMIT as QUEUE_LIMIT
from .engine import simulate as simulate
from .record import (
    EVENT_SYNC as EVENT_SYNC,
    NONE as NONE,
    STREAM_SYNC as STREAM_SYNC,
    STREAM_WAIT as STREAM_WAIT,
    SYNC_KINDS as SYNC_KINDS,
    Edges as Edges,
    RankRun as RankRun,
    Run as Run,
    as_numpy as as_numpy,
)
from .scaling import scale_of as scale_of
