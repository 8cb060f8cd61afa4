"""Time and memory of the commands on generated traces of growing size, next to the least that any reader needs."""
