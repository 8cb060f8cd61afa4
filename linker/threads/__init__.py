"""Hand-offs between host threads: what each thread did over time, which one called another, and which one waited."""

from .handoffs import Wait as Wait, thread_handoffs as thread_handoffs
