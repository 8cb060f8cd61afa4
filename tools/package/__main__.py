"""python -m execgraph: every command by its short name."""

from . import start

if __name__ == "__main__":
    start.execgraph()
