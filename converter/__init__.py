"""Linked trace -> execution graph (.et), and graphs as JSON.

`convert` in the module of that name makes a graph of a linked trace, by its `options`. Nothing is loaded here: commands
that only read graphs start without the converter.
"""
