"""Collectives over all ranks: when each member arrived, how long they took, what bandwidth they reached."""

from .over_ranks import collectives_over_ranks as collectives_over_ranks
