"""How host threads hand work over to each other: what each thread did over time in, who called whom and who waited out."""

from .hand_off import Wait, thread_handoffs

__all__ = [
    "Wait",
    "thread_handoffs",
]
