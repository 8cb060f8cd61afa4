"""Reports on runs for people: one HTML page, tables on the terminal, CSV and JSON."""
