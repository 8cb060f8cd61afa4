"""Hand-offs between host threads: what each thread did over time, which thread called another, and which waited for it."""

from .hand_off import Wait as Wait, thread_handoffs as thread_handoffs
