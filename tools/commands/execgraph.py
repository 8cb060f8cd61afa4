"""The command execgraph: every command by its short name, `execgraph link` for trace-link."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ...schema.errors import Audience, said_to
from ..command_parser import ARGCOMPLETE, CommandParser

NAME, PREFIX = "execgraph", "trace-"
FIRST = {
    "diagnose": "what is in traces, and what is wrong with them",
    "report": "what limits a run, as text, page or tables",
    "build": "the graphs of all ranks of a job",
    "replay": "run graphs, as measured or with changed durations",
}
COMMANDS = {
    **FIRST, "scale": "the graphs of a job on more ranks, or fewer", "merge": "the traces of all ranks in one file",
    "view": "graphs or parts of them as pictures", "link": "join a host and a device trace",
    "convert": "make the execution graph of a linked trace", "jsonize": "a graph as JSON and back",
    "generate": "traces of a simulated job, with the truth",
}  # fmt: skip


@said_to(Audience.TERMINAL)
def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the command that the first argument names; exits with 2 if there is no such command."""
    words = list(sys.argv[1:] if argv is None else argv)
    words[:1] = [word.removeprefix(PREFIX) for word in words[:1]]
    # the command on the line that a shell wants completed, once more of the line follows
    line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", 0))].split(" ")
    if ARGCOMPLETE in os.environ and len(line) > 2 and line[1] in COMMANDS:
        # the words that are completed begin with the command's name, not with ours
        os.environ[ARGCOMPLETE] = "2"
        words = [line[1]]
    if words and words[0] in COMMANDS:
        importlib.import_module(f".{PREFIX.replace('-', '_')}{words[0]}", __package__).main(words[1:])
    lines = [f"  {name:<10} {what}" for name, what in COMMANDS.items()]
    lines[len(FIRST) : len(FIRST)] = ["", "for one thing each:"]
    listed = "\n".join(lines)
    what = f"Execution graphs of PyTorch runs. Each command is installed as {PREFIX}COMMAND, too."
    record = "Record with execgraph.capture in Python, then:"
    example = f"{NAME} build traces -o graphs"
    parser = CommandParser(NAME, f"{what}\n\n{record}\n{listed}", example, reads=False)
    how = f"one of those above; {NAME} COMMAND --help"
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=how)
    parser.parse_args(words[:1] or ["--help"])
    parser.exit(2)
