"""python -m execgraph: every command by its short name."""

from .start import execgraph

if __name__ == "__main__":
    execgraph()
