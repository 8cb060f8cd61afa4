"""The documents of both file formats: made of the tables in the code, and true of the files that traces become."""

import json
import runpy
import tempfile
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from execgraph.converter.convert import convert
from execgraph.converter.options import Options
from execgraph.converter.ranks import with_values
from execgraph.converter.rewiring import HOST_TIME_AFTER
from execgraph.converter.scaling import Growth, copied, plan_scaling, rank_facts, resized
from execgraph.converter.targets import EXCESS_TIME, START_OFFSET, lower_for_target
from execgraph.converter.timeline import IDLE, UNRECORDED
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.graph import (
    ATTRIBUTES,
    LOSSES,
    Delay,
    DependencyKind,
    ExecutionGraph,
    NodeType,
    execution_graph_pb2 as pb,
    read_frames,
)
from execgraph.schema.io import open_input
from execgraph.schema.linked import LinkedTrace, Provenance, write_linked
from execgraph.schema.reasons import MENDED, Reason
from execgraph.tools.generate import DEFAULT, Machine, build_job, simulate, write_traces
from support.folders import DATA, ROOT

DOCS = ROOT / "docs"
PAGES: dict[str, Callable[[], str]] = runpy.run_path(str(DOCS / "formats.py"))["PAGES"]

from counted_words import COUNTED  # noqa: E402
from graph_words import DELAY_CAUSES, KINDS, MEANINGS, METADATA, TYPES, Where  # noqa: E402
from linked_words import ACTIVITIES, KNOWN_BY, OPS, RECORDS  # noqa: E402

CROWDED = Machine(at_once=1)
JOBS = {"halo": DEFAULT, "uneven": DEFAULT, "towers": CROWDED}
"""Coalesced messages, a collective with a root, a device that is full."""


@cache
def linked_traces() -> tuple[LinkedTrace, ...]:
    """The first rank of every capture on a CPU, of two small ones on a GPU, and of some simulated jobs."""
    on_a_gpu = [DATA / "gpu" / name / "host_rank0.json.gz" for name in ("small_graph", "loader_pinned")]
    hosts = [
        *on_a_gpu,
        *sorted(DATA.glob("[!t]*/host_rank0.json.gz")),
        *sorted(DATA.glob("t*[gs2]/host_rank0.json.gz")),
    ]
    pairs = [(host, host.with_name("device_rank0.json.gz")) for host in hosts]
    with tempfile.TemporaryDirectory() as folder:
        for job, machine in JOBS.items():
            run = simulate(build_job(job, steps=1, layers=1, seed=1, machine=machine))
            pairs.append(write_traces(run, Path(folder, job), stacks=3)[0][:2])
        return tuple(
            link(read_host_trace(str(host)), read_device_trace(str(device), modules=True)) for host, device in pairs
        )


class Graph(NamedTuple):
    """A graph file as the protobuf library reads it, and the names of the run's ops and activities."""

    metadata: pb.GlobalMetadata
    nodes: list[pb.Node]
    ops: set[str]
    activities: set[str]
    has_host: bool


@cache
def graphs() -> tuple[Graph, ...]:
    """Of each trace with and without host, a rank of a scaled job, and one that began to record later for ASTRA-sim."""
    made = tuple(
        graph_of(linked, convert(linked, Options(host=with_host)), with_host)
        for linked in linked_traces()
        for with_host in (True, False)
        if with_host or len(linked.activities)
    )
    with tempfile.TemporaryDirectory() as folder:
        run = simulate(build_job("ddp", steps=1, layers=1))
        pairs = [files[:2] for files in write_traces(run, folder)]
        linked = [link(read_host_trace(str(host)), read_device_trace(str(device))) for host, device in pairs]
    linked[1].report.oddities.update(dict.fromkeys(LOSSES.values(), 1))
    ranks = [convert(one) for one in linked]
    plan = plan_scaling([rank_facts(graph) for graph in ranks], Growth(2))
    scaled = copied(resized(ranks[0], plan.ranks[0]), plan, 1)
    collective = int(ranks[1].id[np.flatnonzero(ranks[1].type == NodeType.COMM_COLL)[0]])
    late = lower_for_target(with_values(ranks[1], "excess_ns", {collective: 1_000}), "astra-sim", start_offset_ns=5_000)
    return (*made, graph_of(linked[0], scaled, True), graph_of(linked[1], late, True))


def graph_of(linked: LinkedTrace, graph: ExecutionGraph, with_host: bool) -> Graph:
    with tempfile.NamedTemporaryFile(suffix=".et") as file:
        graph.write(file.name)
        with open_input(file.name) as stream:
            first, *rest = (
                bytes(block.data[start:end])
                for block in read_frames(stream, file.name)
                for start, end in zip(block.starts, block.ends, strict=True)
            )
    names = set(linked.ops.name.table), set(linked.activities.name.table)
    return Graph(pb.GlobalMetadata.FromString(first), [pb.Node.FromString(node) for node in rest], *names, with_host)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "write it anew: make docs"


def places_of(node: pb.Node, graph: Graph) -> set[Where]:
    """Which of the places that may have attributes a node is."""
    on_host = next(a.bool_val for a in node.attr if a.name == "is_cpu_op")
    is_delay = any(a.name == "delay" for a in node.attr)
    is_message = node.type in (NodeType.COMM_SEND, NodeType.COMM_RECV)
    is_slice = on_host and node.name in graph.ops
    is_activity = (
        not on_host and not is_delay and (node.name in graph.activities or node.name in (HOST_TIME_AFTER, EXCESS_TIME))
    )
    places = {
        Where.NODES: True, Where.DEPENDENT: len(node.data_deps) > 0, Where.HOST: on_host, Where.SLICES: is_slice,
        Where.WORK: is_slice or is_activity,
        Where.CALLED: (on_host and node.name not in (IDLE, UNRECORDED)) or is_activity, Where.ACTIVITIES: is_activity,
        Where.ACTIVITIES_AND_WAITS: is_activity or (on_host and not is_slice and node.name not in (IDLE, UNRECORDED)),
        Where.COMPUTATION: not on_host and node.type == NodeType.COMP,
        Where.DELAYS: not on_host and node.name not in graph.activities, Where.EXCESS: node.name == EXCESS_TIME,
        Where.OFFSET: node.name == START_OFFSET, Where.DEVICE_ONLY: not graph.has_host,
        Where.COMMUNICATION: is_message or node.type == NodeType.COMM_COLL,
        Where.COLLECTIVES: node.type == NodeType.COMM_COLL,
        Where.ROOTED: is_message or node.type == NodeType.COMM_COLL, Where.MESSAGES: is_message,
        Where.COALESCED: is_message and is_activity,
    }  # fmt: skip
    return {where for where, is_there in places.items() if is_there}


@cache
def written() -> set[tuple[str, str]]:
    """The names of all attributes on nodes, and the types of their values."""
    return {(one.name, one.WhichOneof("value")) for graph in graphs() for node in graph.nodes for one in node.attr}


def test_the_table_has_every_written_attribute_with_its_type_and_a_meaning_and_no_other() -> None:
    assert [*MEANINGS] == [attribute.name for attribute in ATTRIBUTES]
    assert written() - {(attribute.name, attribute.value) for attribute in ATTRIBUTES} == set()
    assert {name for name, _ in written()} == {attribute.name for attribute in ATTRIBUTES}


def test_attributes_are_on_the_nodes_that_the_table_names_alone() -> None:
    astray = {
        (one.name, node.name)
        for graph in graphs()
        for node in graph.nodes
        for places in [places_of(node, graph)]
        for one in node.attr
        if MEANINGS[one.name].where not in places
    }
    assert astray == set()


def test_attributes_of_every_node_are_on_every_node() -> None:
    everywhere = {name for name, meaning in MEANINGS.items() if meaning.where is Where.NODES}
    assert all(everywhere <= {written.name for written in node.attr} for graph in graphs() for node in graph.nodes)


def test_the_metadata_is_what_the_table_says() -> None:
    written = {(m.name.rstrip("0123456789"), m.WhichOneof("value")) for graph in graphs() for m in graph.metadata.attr}
    assert written == {(key.name, key.value) for key in METADATA}


def test_every_value_of_an_enumeration_has_a_meaning() -> None:
    enumerations = (
        (TYPES, NodeType),
        (KINDS, DependencyKind),
        (DELAY_CAUSES, Delay),
        (KNOWN_BY, [kind.value for kind in Provenance]),
    )
    assert [list(table) for table, _ in enumerations] == [list(values) for _, values in enumerations]


@cache
def linked_files() -> tuple[dict[str, Any], ...]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "linked.json")
        files = []
        for linked in linked_traces():
            write_linked(linked, str(path))
            files.append(json.loads(path.read_bytes()))
    return tuple(files)


def keys_in_files() -> dict[str, set[str]]:
    """The keys of each kind of object, by the record's title."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for file in linked_files():
        machine = file["trace"]["machine"]
        objects = {
            "File": [file],
            "Node": file["nodes"],
            "Calls": [file["calls"]],
            "Waits": [file["device_waits"], file["host_waits"]],
            "Hand-offs": [file["handoffs"]],
            "Communication": file["communications"]
            + [part for one in file["communications"] for part in one.get("coalesced", [])],
            "Process group": file["groups"],
            "Trace": [file["trace"]],
            "Machine": [machine],
            "Latency statistics": [
                usual for key in ("launch", "gap", "sync_return") for usual in machine.get(key, {}).values()
            ],
            "Link report": [file["link_report"]],
        }
        for title, members in objects.items():
            found[title] |= {key for one in members for key in one}
    return found


def test_every_written_key_is_in_the_tables() -> None:
    known = {record.title: {member.name for member in record.members} for record in RECORDS}
    assert {title: keys - known[title] for title, keys in keys_in_files().items() if keys - known[title]} == {}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.title)
def test_what_is_read_is_in_the_tables(record: Any) -> None:
    read = [field.encode_name for field in msgspec.structs.fields(record.read)]
    listed = [member.name for member in record.members if not member.written]
    # that key tells a device trace from a linked one
    assert sorted(listed) == sorted(set(read) - {"traceEvents"})


@pytest.mark.parametrize("title", ["File", "Calls", "Hand-offs", "Trace", "Link report"])
def test_keys_stand_in_files_in_the_order_of_the_table(title: str) -> None:
    [record] = [record for record in RECORDS if record.title == title]
    file = linked_files()[-1]
    written = file if title == "File" else file[title.lower().replace("-", "").replace(" ", "_")]
    absent = {"measured"} - written.keys()  # of what `capture` alone writes
    assert list(written) == [member.name for member in record.members if member.name not in absent]


def test_ops_and_activities_have_the_members_that_the_table_gives_them() -> None:
    [node] = [record for record in RECORDS if record.title == "Node"]
    for is_activity, kind in ((False, OPS), (True, ACTIVITIES)):
        keys = {key for file in linked_files() for one in file["nodes"] if ("cat" in one) is is_activity for key in one}
        assert keys <= {member.name for member in node.members if member.of in ("", kind)}


# What is counted

ELSEWHERE = MENDED | {
    Reason.ACTIVITIES_OF_ZERO_LENGTH, Reason.OPS_OUTSIDE_HOST_WINDOW, Reason.OPS_NOT_IN_DEVICE_TRACE,
    Reason.OPS_OF_TWO_NAMES, Reason.SYNC_RECORDS, Reason.EVENT_RECORDS, Reason.UNKNOWN_DTYPES, Reason.OTHER,
}  # fmt: skip
"""Reasons that the page explains together or in a line of their own, and those of trace-diagnose alone."""


def test_everything_that_is_counted_is_explained_once() -> None:
    explained = [reason for meanings in COUNTED.values() for reasons in meanings for reason in reasons]
    assert len(explained) == len(set(explained)) > 80
    assert set(explained) == set(Reason) - ELSEWHERE
