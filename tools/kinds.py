"""The kinds of files that people have at hand: what each is called, which command takes it, and where it comes from."""

from enum import Enum
from typing import NamedTuple


class InputKind(Enum):
    """What a file is; the value counts files of that kind in a sentence."""

    HOST = "host traces"
    DEVICE = "device traces"
    MERGED = "device traces of several ranks in one"
    LINKED = "linked traces"
    GRAPH = "execution graphs"
    GRAPH_JSON = "execution graphs as JSON"
    GROUPS = "communicator-group files"
    REPORT = "reports of execgraph"
    TRUTH = "truth.json of trace-generate"
    TIMELINE = "timelines of replays"
    MERGED_DATABASE = "databases of several ranks"
    GOAL = "GOAL files"
    PAGE = "HTML pages"
    OTHER_EVENTS = "Chrome traces that no profiler wrote"
    OTHER_DATABASE = "databases that are no traces"
    JSON = "JSON files that are no traces"
    TEXT = "text files"
    OTHER = "files that are no traces"


class Use(NamedTuple):
    """What a file of a kind is called, the command that takes it, and which file to give where it is wanted."""

    name: str
    taken_by: str = ""
    to_give: str = ""


TRACE = Use("a host or device trace", to_give="device traces, with their host traces")
TRACE_OR_GRAPH = Use("a trace or a graph", to_give="device traces, with their host traces, linked traces or graphs")

USES = {
    InputKind.HOST: Use("a host trace", "trace-link", "the one that PyTorch's ExecutionTraceObserver wrote"),
    InputKind.DEVICE: Use(
        "a device trace", "trace-link", "the one that the PyTorch profiler wrote, or a rocpd database"
    ),
    InputKind.MERGED: Use("a device trace of several ranks", "trace-link --rank N"),
    InputKind.LINKED: Use("a linked trace", "trace-convert", "one that trace-link wrote"),
    InputKind.GRAPH: Use("a graph", "trace-replay", "one that trace-convert or trace-build wrote"),
    InputKind.GRAPH_JSON: Use("the JSON form of a graph", "trace-jsonize", "one that trace-jsonize wrote"),
    InputKind.GROUPS: Use(
        "a communicator-group file", "trace-convert --comm-groups", "the comm_groups.json that trace-build wrote"
    ),
    InputKind.REPORT: Use("a report that execgraph wrote"),
    InputKind.TRUTH: Use("the truth of a generated job"),
    InputKind.TIMELINE: Use("a timeline that trace-replay wrote"),
    InputKind.MERGED_DATABASE: Use("a database that trace-merge wrote"),
    InputKind.GOAL: Use("a GOAL file"),
    InputKind.PAGE: Use("an HTML page"),
    InputKind.OTHER_EVENTS: Use("a Chrome trace that no profiler wrote"),
    InputKind.OTHER_DATABASE: Use("a database, but not a profiler's"),
    InputKind.JSON: Use("JSON that execgraph does not know"),
    InputKind.TEXT: Use("a text file"),
    InputKind.OTHER: Use("binary data that execgraph does not know"),
}
