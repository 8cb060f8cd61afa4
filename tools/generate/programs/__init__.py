"""What jobs do: the programs of their host threads, written instruction by instruction."""

from .jobs import NAMED as NAMED, PRESETS as PRESETS, RANDOM as RANDOM, build_job as build_job
