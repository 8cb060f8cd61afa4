"""What messages say to whoever calls from Python, where they name the options of commands."""

import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from .schema.errors import DataError

P = ParamSpec("P")
T = TypeVar("T")
IN_PYTHON = {
    "trace-link --rank N": "rank=N of link",
    "or build all with trace-build": "or build all with execgraph.build",
    "convert with --target astra-sim": 'build the job with execgraph.build(…, target="astra-sim")',
    "trace-build --target goal": 'execgraph.build(…, target="goal")',
    "trace-link HOST.json": "execgraph.link of HOST.json and",
    " -o LINKED.json": "",
    "make a linked trace with trace-link first": "give it to execgraph.link first",
    "one that trace-link wrote": "one that LinkedTrace.write wrote",
    "one that trace-convert or trace-build wrote": "one that ExecutionGraph.write or execgraph.build wrote",
    "one that trace-jsonize wrote": "one that ExecutionGraph.write wrote",
    "trace-view and trace-report show the names": "the table `nodes` of a graph has the names",
    "trace-report --modules": "execgraph.report with modules=True",
    "--diff compares two": "execgraph.compare compares two",
    "with --diff": "with execgraph.compare",
    "leave --host-trace out": "give None for the host trace",
    "--around NODE --hops N, --stream S or --time FROM:TO": "around, streams or time_us",
    "pass it to trace-link": "give it to execgraph.link",
    "pass it to trace-convert --comm-groups": "read it with execgraph.read_groups",
    "pass it to trace-convert": "give it to execgraph.convert",
    "pass it to trace-build": "give it to execgraph.build",
    "pass it to trace-replay": "give it to execgraph.replay",
    "pass it to trace-jsonize": "give it to execgraph.read_graph",
    "--csv DIR": "write_csv(folder)",
    "--allow-mismatch": "allow_mismatch=True",
    "--max-size": "set the environment variable EXECGRAPH_MAX_SIZE to",
    "--measured-communication": "GoalOptions(measured_communication=True)",
    "--bandwidth": "bandwidth_gib_s",
    "--data-parallel-group": "groups",
    "--data-parallel": "data_parallel",
    "--jobs": "jobs",
    "--latency": "latency_ns",
    "--modules": "modules=True",
    "--no-excess-time": "excess_time=False",
    "--no-host": "host=False",
    "--no-inferred": "inferred=False",
    "--rank N": "rank=N",
    "--remove-ranks": "remove_ranks",
    "--scheduler": "scheduler",
    "--strict": "strict",
    "--target astra-sim": 'target="astra-sim"',
}
"""What a message names by the option or command of the terminal, and what does the same from Python."""
COMMAND = re.compile(r"(?<![\w/.-])trace-(link|convert|build|replay|report|diagnose|merge|generate)(?![\w/-]|\.\w)")
"""Any other command, but not a part of a path."""


def in_python(text: str) -> str:
    """Returns a message in the words of Python.

    >>> in_python("these two files are not of one run (--allow-mismatch links them all the same)")
    'these two files are not of one run (allow_mismatch=True links them all the same)'
    >>> in_python("/tmp/trace-link/x: no such folder; make it with trace-build")
    '/tmp/trace-link/x: no such folder; make it with execgraph.build'
    """
    for option, argument in IN_PYTHON.items():
        text = text.replace(option, argument)
    return COMMAND.sub(r"execgraph.\1", text)


def for_python(function: Callable[P, T]) -> Callable[P, T]:
    """Returns the function, whose errors name arguments of Python in place of options of commands."""

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> T:
        try:
            return function(*args, **named)
        except DataError as error:
            error.args = (in_python(str(error)),)
            raise

    return call
