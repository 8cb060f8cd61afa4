"""What jobs do: the programs of their host threads, written instruction by instruction."""

from .jobs import NAMED, PRESETS, RANDOM, build_job

__all__ = [
    "NAMED",
    "PRESETS",
    "RANDOM",
    "build_job",
]
