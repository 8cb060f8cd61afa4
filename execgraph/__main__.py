"""python -m execgraph: every command by its short name."""

from .tools.commands.execgraph import main

if __name__ == "__main__":
    main()
