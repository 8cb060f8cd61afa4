"""The command trace-jsonize: an execution graph to JSON, or back."""

import argparse
import logging
import re
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ...schema.errors import DataError
from ...schema.io import STANDARD_STREAM, open_input
from ..command import command_parser, print_json, progress_bar, run_command, usage_error

NAME = "trace-jsonize"
FORMS = {".et": "et", ".json": "json"}
BEGINNING = 64
GRAPH = re.compile(rb"[\x80-\xff]{0,4}[\x00-\x7f][\x0a\x12]|\x00")
log = logging.getLogger("execgraph")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs trace-jsonize with these arguments, by default those of the process, and ends it: 0 done, 1 unusable data, 2 wrong usage."""
    parser = command_parser(
        NAME,
        "Writes an execution graph as JSON, or the JSON as an execution graph, without loss: back and forth gives the same bytes.",
        f"{NAME} --input graph.0.et --output graph.0.json",
    )
    parser.add_argument(
        "--input", "--input_filename", required=True, metavar="FILE", help="graph (.et) or its JSON; gzip is accepted"
    )
    parser.add_argument(
        "--output",
        "--output_filename",
        required=True,
        metavar="FILE",
        help="the other of the two (.gz compresses, - is stdout)",
    )
    parser.add_argument(
        "--to", choices=sorted(set(FORMS.values())), help="what to write, where the file names do not tell"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object on stdout")
    arguments = parser.parse_args(argv)
    if arguments.json and arguments.output == STANDARD_STREAM:
        usage_error(parser, "--json and --output - both want stdout")
    try:
        arguments.to = arguments.to or _form_to_write(arguments.input, arguments.output)
    except ValueError as error:
        usage_error(parser, str(error))
    run_command(_run, arguments, NAME)


def _form_to_write(source: str, target: str) -> str:
    """What the names of the files say; raises ValueError when they say nothing, or both the same."""
    given, wanted = _form(source), _form(target)
    if given is not None and given == wanted:
        raise ValueError(f"{source} and {target} are both .{given} by their names; give --to to convert all the same")
    if wanted is None and given is None:
        raise ValueError("the file names do not tell what to write; give --to et or --to json")
    return wanted or ("et" if given == "json" else "json")


def _form(name: str) -> str | None:
    return FORMS.get(Path(name.removesuffix(".gz")).suffix)


def _is_neither(path: str) -> bool:
    """Whether a file begins neither as JSON does nor as a graph: with the length of its metadata, and these with their first field."""
    if path == STANDARD_STREAM:
        return False
    try:
        with open_input(path) as stream:
            head = stream.read(BEGINNING)
    except (OSError, EOFError, zlib.error):
        return False
    return head.lstrip()[:1] != b"{" and not GRAPH.match(head)


def _run(arguments: argparse.Namespace) -> int:
    from ...converter.jsonizer import graph_to_json, json_to_graph

    convert = graph_to_json if arguments.to == "json" else json_to_graph
    source = Path(arguments.input)
    total = source.stat().st_size if source.is_file() and source.suffix != ".gz" else None
    with progress_bar(f"to {arguments.to}", total) as bar:
        try:
            converted = convert(arguments.input, arguments.output, bar.update)
        except DataError:
            if not _is_neither(arguments.input):
                raise
            print(
                f"{NAME}: error: {arguments.input}: is neither a graph nor the JSON of one (see {NAME} --help)",
                file=sys.stderr,
            )
            return 2
    if arguments.json:
        print_json({"output": arguments.output, **converted._asdict()})
    log.info("%s: %d nodes, %d bytes", arguments.output, converted.nodes, converted.bytes)
    return 0
