"""Linked trace -> execution graph (.et). Nothing is loaded here: commands that only read graphs start without it."""
