"""What people do around a graph: capture, generate, build, replay, measure."""

from .replay import replay, replay_ranks

__all__ = ["replay", "replay_ranks"]
