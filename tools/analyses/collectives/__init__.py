"""Collectives as all ranks together saw them: who came when, how long they took, what bandwidth they reached."""

from .over_ranks import collectives_over_ranks as collectives_over_ranks
