"""How fast and in how much memory: commands on generated traces of growing size, against the least that any reader
needs.
"""
