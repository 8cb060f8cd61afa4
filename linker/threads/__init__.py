"""How host threads hand work over to each other: what each thread did over time in, who called whom and who waited out."""

from .hand_off import Wait as Wait, thread_handoffs as thread_handoffs
