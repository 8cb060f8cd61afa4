"""The command trace-jsonize: an execution graph to JSON, or back."""

import argparse
from pathlib import Path

from ...schema.errors import WrongUsage
from ..command import log, print_json, progress_bar
from ..command_parser import Inputs, Output, command
from ..option_kinds import ends_as

FORMS = {".et": "et", ".json": "json"}


@command(
    "trace-jsonize",
    "Writes an execution graph as JSON, or the JSON as an execution graph, without loss: back and forth gives the same "
    "bytes.",
    "graph.0.et -o graph.0.json",
    Inputs("FILE", "graph (.et) or its JSON; gzip is accepted", ("--input", "--input_filename"), max_count=1),
    Output(
        "FILE", "the other of the two (.gz compresses, - is stdout)", ("--output_filename",), ends_as(".et", ".json")
    ),
)
def main(options: argparse.Namespace) -> None:
    """Writes the other form of a graph."""
    from ...schema.graph import graph_to_json, json_to_graph
    from ..recognise import InputKind, reading

    path, output = options.inputs[0], options.output
    to_json = _form_to_write(path, output, options.to) == "json"
    convert, expected = (graph_to_json, InputKind.GRAPH) if to_json else (json_to_graph, InputKind.GRAPH_JSON)
    source = Path(path)
    total = source.stat().st_size if source.is_file() and source.suffix != ".gz" else None
    by_option = {InputKind.GRAPH: "with --to json", InputKind.GRAPH_JSON: "with --to et"}
    what = f"to {'json' if to_json else 'et'}"
    with progress_bar(what, total) as on_progress, reading(path, expected, by_option):
        converted = convert(path, output, on_progress)
    if options.json:
        print_json({"output": output, "nodes": converted.nodes, "bytes": converted.bytes})
    log.info(f"{output}: {converted.nodes} nodes, {converted.bytes} bytes")


def _form_to_write(source: str, target: str, given: str | None) -> str:
    """Returns the form that is given, or else what the names of the files say."""
    from ..recognise import InputKind, wrong_kind

    of_source, of_target = (FORMS.get(Path(name.removesuffix(".gz")).suffix, "") for name in (source, target))
    if given or of_source != of_target:
        return given or of_target or ("et" if of_source == "json" else "json")
    if problem := wrong_kind(Path(source), InputKind.GRAPH) and wrong_kind(Path(source), InputKind.GRAPH_JSON):
        raise WrongUsage(problem)
    if of_source:
        both = f"{source} and {target} are both .{of_source} by their names"
        raise WrongUsage(f"{both}; give --to to convert all the same")
    raise WrongUsage("the file names do not say what to write; give --to et or --to json")
