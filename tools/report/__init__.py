"""Runs in, what people look at out: one HTML page, tables on the terminal, CSV and JSON."""
