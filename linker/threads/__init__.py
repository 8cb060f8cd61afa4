"""How host threads hand work over to each other: what each thread did over time in, who called whom and who waited out."""

from .hand_off import Wait, hand_overs

__all__ = [
    "Wait",
    "hand_overs",
]
