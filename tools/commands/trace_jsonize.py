"""The command trace-jsonize: an execution graph to JSON, or back."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ...schema.errors import Audience, said_to
from ..command import print_json, progress_bar, run_command
from ..command_parser import CommandParser, Inputs, Output
from ..option_kinds import ends_as

NAME = "trace-jsonize"
FORMS = {".et": "et", ".json": "json"}
log = logging.getLogger("execgraph")


@said_to(Audience.TERMINAL)
def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs trace-jsonize and ends the process: 0 done, 1 unusable data, 2 wrong usage."""
    parser = CommandParser(
        NAME,
        "Writes an execution graph as JSON, or the JSON as an execution graph, without loss: back and forth gives the "
        "same bytes.",
        f"{NAME} graph.0.et -o graph.0.json",
        Inputs("FILE", "graph (.et) or its JSON; gzip is accepted", ("--input", "--input_filename"), max_count=1),
        Output(
            "FILE",
            "the other of the two (.gz compresses, - is stdout)",
            ("--output_filename",),
            ends_as(".et", ".json").read,
        ),
    )
    arguments = parser.parse_args(argv)
    arguments.input = arguments.inputs[0]
    try:
        arguments.to = arguments.to or _form_to_write(arguments.input, arguments.output)
    except ValueError as error:
        parser.error(_neither(arguments.input) or str(error))
    run_command(_run, arguments, NAME)


def _form_to_write(source: str, target: str) -> str:
    """Returns what the names of the files say; raises ValueError when they say nothing, or both the same."""
    source_form, target_form = _form(source), _form(target)
    if source_form is not None and source_form == target_form:
        raise ValueError(
            f"{source} and {target} are both .{source_form} by their names; give --to to convert all the same"
        )
    if target_form is None and source_form is None:
        raise ValueError("the file names do not say what to write; give --to et or --to json")
    return target_form or ("et" if source_form == "json" else "json")


def _neither(source: str) -> str:
    """Returns a sentence on a file that is neither a graph nor the JSON of one, "" for one that is, or none."""
    from ..recognise import InputKind
    from ..wrong_kind import wrong_kind

    return wrong_kind(Path(source), InputKind.GRAPH) and wrong_kind(Path(source), InputKind.GRAPH_JSON)


def _form(name: str) -> str | None:
    return FORMS.get(Path(name.removesuffix(".gz")).suffix)


def _run(arguments: argparse.Namespace) -> None:
    from ...schema.graph import graph_to_json, json_to_graph
    from ..recognise import InputKind
    from ..wrong_kind import reading

    convert = graph_to_json if arguments.to == "json" else json_to_graph
    source = Path(arguments.input)
    total = source.stat().st_size if source.is_file() and source.suffix != ".gz" else None
    expected = InputKind.GRAPH if arguments.to == "json" else InputKind.GRAPH_JSON
    by_option = {InputKind.GRAPH: "with --to json", InputKind.GRAPH_JSON: "with --to et"}
    with progress_bar(f"to {arguments.to}", total) as on_progress, reading(arguments.input, expected, by_option):
        converted = convert(arguments.input, arguments.output, on_progress)
    for note in converted.notes:
        log.warning(f"{NAME}: note: {note}")
    if arguments.json:
        print_json({"output": arguments.output, "nodes": converted.nodes, "bytes": converted.bytes})
    log.info("%s: %d nodes, %d bytes", arguments.output, converted.nodes, converted.bytes)
