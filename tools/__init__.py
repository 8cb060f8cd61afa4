"""What people do around a graph: capture, generate, build, replay, measure."""

from .replay import Replay, replay, replay_ranks
from .what_if import WhatIf, what_if

__all__ = ["Replay", "WhatIf", "replay", "replay_ranks", "what_if"]
