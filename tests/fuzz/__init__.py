"""Hostile files, by the thousand: `make fuzz`, and tests of a few of each kind."""
