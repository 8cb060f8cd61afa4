"""One table has the options of the commands and the arguments of the calls from Python."""

import argparse
import inspect
import re
from collections.abc import Callable
from typing import Any

import execgraph as eg
import numpy as np
import pytest
from execgraph.schema.errors import Remedy
from execgraph.tools import replay
from execgraph.tools.command_parser import CommandParser, Inputs, Output
from execgraph.tools.option_kinds import FLAG, Option
from execgraph.tools.options import ROWS, SCALABLE, checked, chosen_for, options_of

CALLS: dict[str, Callable[..., Any]] = {
    "link": eg.link, "Options": eg.Options, "to_graph": eg.LinkedTrace.to_graph, "build": eg.build,
    "Window": eg.Window, "AstraSimOptions": eg.AstraSimOptions, "GoalOptions": eg.GoalOptions, "replay": eg.replay,
    "what_if": eg.what_if, "report": eg.report, "compare": eg.compare, "AnalysisOptions": eg.AnalysisOptions,
    "draw": eg.ExecutionGraph.draw, "plot": eg.ExecutionGraph.plot, "scale": eg.Job.scale, "generate": eg.generate,
    "merge": eg.merge,
}  # fmt: skip
OF_PYTHON_ALONE = {
    "link": {"host", "device", "window"}, "Options": {"left_out"},
    "build": {"traces", "output", "options", "target", "window"}, "replay": {"graphs"}, "what_if": {"graphs"},
    "report": {"inputs", "path", "window", "options"}, "compare": {"before", "after", "path", "window"},
    "AnalysisOptions": {"queue_limit", "quantiles", "longest_pattern", "captures"}, "draw": {"path"},
    "plot": {"stream", "max_nodes"}, "scale": {"output"}, "generate": {"job", "folder"}, "merge": {"inputs", "output"},
}  # fmt: skip
"""What is a path or an object of Python, or was never asked for on a command line."""
OTHER_DEFAULTS = {("AnalysisOptions", "peaks"), ("build", "jobs"), ("scale", "jobs"), ("scale", "data_parallel")}
"""Commands use all cores; `scale` of Python makes one copy; a default is made for each object."""


def test_every_call_of_the_table_is_one() -> None:
    assert {call for option in ROWS for call in option.calls.split()} == CALLS.keys()


@pytest.mark.parametrize("call", CALLS)
def test_a_call_has_the_arguments_of_the_table_and_no_others(call: str) -> None:
    parameters = {*inspect.signature(CALLS[call]).parameters} - {"self", "cls"}
    assert parameters - OF_PYTHON_ALONE.get(call, set()) == options_of(call).keys()


def default_of(option: Option) -> Any:
    """What the command takes without the option."""
    parser = argparse.ArgumentParser()
    option.add_to(parser)
    return getattr(parser.parse_args([]), option.key)


@pytest.mark.parametrize(("call", "name"), [(call, name) for call in CALLS for name in options_of(call)])
def test_the_command_and_the_call_have_the_same_default(call: str, name: str) -> None:
    option, default = options_of(call)[name], inspect.signature(CALLS[call]).parameters[name].default
    of_command = default_of(option)
    if (
        (call, name) in OTHER_DEFAULTS
        or option.name == "captures"
        or call == "GoalOptions"
        or default is inspect.Parameter.empty
    ):
        assert not of_command
    else:
        assert of_command == default or (not of_command and not default)


def test_an_argument_of_the_wrong_kind_is_refused_by_the_name_that_python_has() -> None:
    with pytest.raises(TypeError, match=re.escape("link(modules=…) takes True or False, not str")):
        checked("link", modules="yes")
    with pytest.raises(ValueError, match=re.escape("scale(data_parallel=…) takes 1 or more, not 0")):
        checked("scale", data_parallel=0)
    assert checked("link", rank=np.int64(3), strict=True) == {"rank": 3, "strict": True}


def test_options_that_are_given_become_the_arguments_of_a_call() -> None:
    parser = CommandParser("trace-link", "", "", Inputs("TRACE", ""), Output("LINKED", ""))
    options = parser.parse_args(["a", "-o", "b", "--steps", "2:4", "--window", "0:10", "--rank", "3"])
    assert chosen_for("Window", options) == {"steps": (2, 4), "clock": (0.0, 10.0)}
    assert chosen_for("link", options) == {"rank": 3, "allow_mismatch": False, "strict": False, "modules": False}


def test_flags_that_leave_out_are_what_python_sets_to_false() -> None:
    left_out = [option for option in ROWS if option.spellings.startswith("--no-")]
    assert left_out and all(option.kind is FLAG and default_of(option) is True for option in left_out)


def test_classes_that_the_help_names_are_those_of_the_replay() -> None:
    assert tuple(replay.SCALABLE) == SCALABLE


@pytest.mark.parametrize("remedy", [remedy for remedy in Remedy if remedy.value.in_terminal.startswith("--")])
def test_a_remedy_is_an_option_of_the_table_or_of_all_commands(remedy: Remedy) -> None:
    spelling = remedy.value.in_terminal.split()[0]
    assert spelling == "--max-size" or any(spelling in option.spellings.split() for option in ROWS)
