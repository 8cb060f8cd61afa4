"""Command lines: inputs by position, `-o`, the options that all commands have, wrong usage in one line."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, NoReturn

from ..schema.errors import Audience, DataError, MissingLibrary, nearest, require, said_to
from ..schema.io import STANDARD_STREAM
from . import terminal
from .command import end_without_reader, run_command

EXIT_STATUS = "exit status: 0 done, 1 the data cannot be used (one line says why), 2 wrong usage, 130 interrupted"
ARGCOMPLETE = "_ARGCOMPLETE"
"""What the shell sets while it asks a command for completions."""
INPUTS_NAMED = 3
READ = ("inputs", "host_trace", "device_trace", "comm_groups", "captures", "diff")
WRITTEN = ("output", "perfetto")
"""The options that name files."""
CHAKRA = "pytorch"
"""The sub-command that Chakra's tools want before their options."""
Main = Callable[[Sequence[str] | None], NoReturn]


class Inputs(NamedTuple):
    """What a command reads, as `inputs`, by position or older `spellings`; needed `unless` these options are there."""

    metavar: str
    help: str
    spellings: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    max_count: int = sys.maxsize
    choices: Iterable[str] | None = None
    title: str = "input"


class Output(NamedTuple):
    """What a command writes, after `-o`, `--output` or one of the older `spellings`."""

    metavar: str
    help: str
    spellings: tuple[str, ...] = ()
    read: Callable[[str], Any] | None = None
    is_required: bool = True


def command(
    name: str, description: str, example: str, inputs: Inputs, output: Output | None = None, **settings: Any
) -> Callable[[Callable[[argparse.Namespace], int | None]], Main]:
    """Makes a command of the function that does its work, which ends the process; `settings` are its parser's."""

    def command_of(work: Callable[[argparse.Namespace], int | None]) -> Main:
        @said_to(Audience.TERMINAL)
        def main(arguments: Sequence[str] | None = None) -> NoReturn:
            parser = CommandParser(name, description, f"{name} {example}", inputs, output, **settings)
            run_command(work, parser.parse_args(arguments), name, parser.error)

        return main

    return command_of


class CommandParser(argparse.ArgumentParser):
    """Reads a command line, like Chakra's too if it `is_chakra`; completes it where argcomplete is installed."""

    def __init__(
        self,
        name: str,
        description: str,
        example: str,
        inputs: Inputs | None = None,
        output: Output | None = None,
        *,
        reads: bool = True,
        is_chakra: bool = False,
        appendix: str = "",
    ) -> None:
        super().__init__(
            prog=name, description=description, epilog=f"{appendix}{EXIT_STATUS}\n\nexample:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, add_help=False,
        )  # fmt: skip
        # a window such as -5:100 is a value, too
        self._negative_number_matcher = re.compile(r"-\d")
        self._example, self._reads, self._is_chakra, self._input = example, reads, is_chakra, inputs
        self._output = output.metavar if output and output.is_required else ""
        if inputs:
            self._add_options(name, inputs, output)

    def _add_options(self, name: str, inputs: Inputs, output: Output | None) -> None:
        from .options import COMMANDS

        groups: dict[str, argparse._ActionsContainer] = {"": self, inputs.title: self.add_argument_group(inputs.title)}
        settings: dict[str, Any] = {"choices": inputs.choices, "metavar": inputs.metavar}
        groups[inputs.title].add_argument("inputs", nargs="*", help=inputs.help, **settings)
        if inputs.spellings:
            settings |= {"dest": "named_inputs", "nargs": "+", "action": "extend", "default": []}
            groups[inputs.title].add_argument(*inputs.spellings, help=argparse.SUPPRESS, **settings)
        for title, options, intro, _ in COMMANDS[name]:
            group = groups[title] if title in groups else self.add_argument_group(title, intro)
            if output and title == "output":
                read = output.read or str
                group.add_argument("-o", "--output", metavar=output.metavar, type=read, help=output.help)
                for spelling in output.spellings:
                    group.add_argument(spelling, dest="output", type=read, help=argparse.SUPPRESS)
            for option in options:
                option.add_to(group)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Reads the arguments, by default the process's; ends the process on wrong usage and for completions."""
        words = list(sys.argv[1:] if args is None else args)
        self._add_common_options("--version" in words)
        if ARGCOMPLETE in os.environ:
            try:
                require("completion")
            except MissingLibrary as error:
                self.error(str(error))
            import argcomplete

            argcomplete.autocomplete(self)
        positional = next((str(action.metavar) for action in self._actions if not action.option_strings), "")
        several = " ..." if self._input and self._input.max_count > 1 else ""
        parts = [self.prog, positional + several, self._output and f"-o {self._output}", "[options]"]
        self.usage = self.usage or " ".join(filter(None, parts))
        if self._is_chakra and len(words) > 1 and words[0].lower() == CHAKRA and words[1].startswith("-"):
            del words[0]
        self._refuse_unknown_options(words)
        options, unused = self.parse_known_intermixed_args(words, namespace)
        options.prog = self.prog
        if unused:
            self.error(f"unexpected argument {unused[0]!r}")
        if self._input:
            options.inputs = self._inputs(options, self._input)
        if self._output and options.output is None:
            self.error(f"no output given: add -o {self._output}, as in: {self._example}")
        if getattr(options, "json", False) and getattr(options, "output", None) == STANDARD_STREAM:
            self.error("--json and --output - both write to stdout; name a file")
        # `open_output` would say it after the work
        outputs, inputs = _files(options, WRITTEN), _files(options, READ)
        if same := next(((path, file) for file in outputs for path in inputs if path.samefile(file)), None):
            linked_name = "" if same[0] == same[1] else f", {same[0]}"
            self.error(f"{same[1]} is an input{linked_name}: give another name for the output")
        return options

    def _add_common_options(self, says_version: bool) -> None:
        import importlib.metadata

        from .options import LIMITS, LOUDNESS

        if self._reads:
            group = self.add_argument_group("limits")
            for option in LIMITS:
                option.add_to(group)
        group = self.add_argument_group("help and messages")
        group.add_argument("-h", "--help", action="help", help="show this help and exit")
        # to look it up takes longer than to read a small trace
        version = f"{self.prog} {importlib.metadata.version('execgraph')}" if says_version else ""
        group.add_argument("--version", action="version", version=version, help="show the version and exit")
        one_of_two = group.add_mutually_exclusive_group()
        for option in LOUDNESS:
            option.add_to(one_of_two)

    def _inputs(self, options: argparse.Namespace, expected: Inputs) -> list[str]:
        inputs = [*getattr(options, "named_inputs", ()), *options.inputs]
        if not inputs and not any(getattr(options, name, None) for name in expected.unless):
            self.error(f"no input given: name {expected.metavar}, as in: {self._example}")
        if len(inputs) > expected.max_count:
            names = ", ".join([*inputs[:INPUTS_NAMED], *["…"] * (len(inputs) > INPUTS_NAMED)])
            limit = "one input" if expected.max_count == 1 else f"at most {expected.max_count} inputs"
            self.error(f"{self.prog} reads {limit}, not {len(inputs)}: {names}")
        return inputs

    def _refuse_unknown_options(self, words: Sequence[str]) -> None:
        """Comes before all else: a mistyped option leaves what it stands for missing, and that is not the mistake."""
        actions = self._option_string_actions
        for word in words:
            name = word.partition("=")[0]
            if word == "--":
                return
            if name.startswith("--") and name not in actions:
                visible_options = [option for option, action in actions.items() if action.help != argparse.SUPPRESS]
                self.error(f"unknown option {name}{nearest(name, visible_options, listed=False)}")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Reads a value; what a reader of ours says of a wrong one stands in place of the parser's own words."""
        if not isinstance(action.type, FunctionType):
            return super()._get_value(action, arg_string)
        try:
            return action.type(arg_string)
        except (ValueError, DataError, argparse.ArgumentTypeError) as error:
            raise argparse.ArgumentError(action, str(error)) from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # Python 3.10 checks the empty list of a missing positional, too
        if action.choices is not None and value != [] and value not in action.choices:
            what = str(action.metavar or action.dest.replace("_", " ")).lower()
            raise argparse.ArgumentError(None, f"unknown {what} {value!r}{nearest(str(value), action.choices)}")

    def error(self, message: str) -> NoReturn:
        """Ends the process with one line about what is wrong with its arguments, and exit status 2."""
        self.exit(2, f"{self.prog}: error: {terminal.in_one_line(message)} (see {self.prog} --help)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Prints help and version; ends the process, as `run_command` does, where standard output takes nothing."""
        if file is not sys.stdout:
            super()._print_message(terminal.plain(message), file)
            return
        try:
            terminal.print_text(message.rstrip("\n"))
        except DataError as error:
            self.exit(1, f"{self.prog}: error: {error}\n")
        except BrokenPipeError:
            end_without_reader()


def _files(options: argparse.Namespace, names: Iterable[str]) -> list[Path]:
    """Returns the files among the values of these options that exist."""
    values = [getattr(options, name, None) or () for name in names]
    paths = [file for value in values for file in ([value] if isinstance(value, (str, Path)) else value)]
    # Path.is_file fails for names that are too long
    return [path for path in map(Path, paths) if os.path.isfile(path)]  # noqa: PTH113
