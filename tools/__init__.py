"""What people do around a graph: capture, generate, build, replay, measure."""

from .replay import Replay, WhatIf, replay, replay_ranks, what_if

__all__ = ["Replay", "WhatIf", "replay", "replay_ranks", "what_if"]
