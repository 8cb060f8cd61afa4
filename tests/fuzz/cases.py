"""The kinds of hostile files. Each makes files that nobody should write, and does with them what a user could."""

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from fuzz import mixed_ranks as flows, samples
from fuzz.changes import change_database, changed_bytes, changed_json
from fuzz.columns import IDS, change_column
from fuzz.crowds import change_parents, write_crowd
from fuzz.graph_changes import change_fields
from fuzz.mixed_ranks import change_parts, mixed_job
from fuzz.running import Failed, Transcript, must, run
from fuzz.samples import DEVICE, GRAPH, HOST, LINKED, REPORT, meddle
from fuzz.texts import change_texts, change_times, spelled_anew

Change = Callable[[Any, Random], str]


def _host(folder: Path, random: Random) -> None:
    samples.write_sample(folder, random)
    _change(folder / HOST, changed_json, random)
    flows.use_traces(folder, random, with_host=True)


def _device(folder: Path, random: Random) -> None:
    samples.write_sample(folder, random)
    _change(folder / DEVICE, changed_json, random)
    flows.use_traces(folder, random)


def _linked(folder: Path, random: Random) -> None:
    _write_linked(folder, random)
    _change(folder / LINKED, changed_json, random)
    flows.use_linked(folder, random)


def _write_linked(folder: Path, random: Random) -> None:
    (folder / LINKED).write_bytes(samples.linked(samples.draw(random)))


def _graph(folder: Path, random: Random) -> None:
    _on_graph(folder, random, lambda content: changed_bytes(content, random))


def _fields(folder: Path, random: Random) -> None:
    def change(content: bytes) -> bytes:
        changed, said = change_fields(content, random)
        Transcript.add(f"# {said}")
        return changed

    _on_graph(folder, random, change)


def _on_graph(folder: Path, random: Random, change: Callable[[bytes], bytes]) -> None:
    """Changes a graph alone, or one of a job's."""
    sample, target = samples.draw(random), random.choice([[], [], ["--target", "astra-sim"]])
    if random.random() < 0.6:
        (folder / GRAPH).write_bytes(change(samples.graph(sample, *target)))
        flows.use_graph(folder, random)
        return
    samples.write(folder / "graphs", samples.graphs(sample, *target))
    path = folder / "graphs" / GRAPH
    path.write_bytes(change(path.read_bytes()))
    flows.use_graphs(folder, random)


def _json(folder: Path, random: Random) -> None:
    text, graph = folder / "graph.json", folder / GRAPH
    text.write_bytes(changed_json(samples.graph_json(samples.draw(random)), random))
    if not run("jsonize", text, "-o", graph)[0]:
        flows.use_graph(folder, random)


def _groups(folder: Path, random: Random) -> None:
    groups = folder / "groups.json"
    groups.write_text('{"1": [0, 1], "2": [0], "3": [1, 0]}')
    _write_linked(folder, random)
    _change(groups, changed_json, random)
    run("convert", folder / LINKED, "-o", folder / GRAPH, "--comm-groups", groups)


def _database(folder: Path, random: Random) -> None:
    database = folder / "device_rank0.db"
    samples.write_rocpd(database, random)
    change_database(database, random)
    if not run("link", database, "-o", folder / LINKED)[0]:
        flows.use_linked(folder, random, must_convert=True)
    run(random.choice(["diagnose", "report"]), database)
    if random.random() < 0.3:
        run("merge", database, "-o", folder / "merged.json")


def _noise(folder: Path, random: Random) -> None:
    """What is none of these, and files that are in another's place."""
    samples.write_sample(folder, random)
    noise, linked = folder / "noise", folder / LINKED
    source = random.choice([folder / HOST, folder / DEVICE, Path(sys.executable), Path(__file__)])
    content = source.read_bytes()[: random.choice([0, 1, 9, 5000])]
    noise.write_bytes(
        random.choice([content, gzip.compress(content), random.randbytes(len(content)), changed_bytes(content, random)])
    )
    for command, *arguments in (
        ("link", noise, "-o", linked),
        ("link", "--host-trace", noise, "--device-trace", folder / DEVICE, "-o", linked),
        ("convert", noise, "-o", folder / "graph.et"),
        ("jsonize", noise, "-o", folder / "graph.et", "--to", "et"),
        ("jsonize", noise, "-o", folder / "graph.json", "--to", "json"),
        ("replay", noise),
        ("view", noise, "-o", folder / "view.svg"),
        ("diagnose", noise),
        ("report", noise, "--json"),
        ("merge", noise, "-o", folder / "merged.json"),
    ):
        run(command, *arguments)


def _parents(folder: Path, random: Random) -> None:
    _on_one_of(folder, random, [HOST, HOST, LINKED], change_parents)


def _ids(folder: Path, random: Random) -> None:
    _on_one_of(folder, random, [HOST, DEVICE, LINKED], lambda document, _: change_column(document, IDS, random))


def _times(folder: Path, random: Random) -> None:
    _on_one_of(folder, random, [DEVICE, DEVICE, LINKED], change_times)


def _texts(folder: Path, random: Random) -> None:
    _on_one_of(folder, random, [HOST, DEVICE, LINKED], change_texts)


def _parts(folder: Path, random: Random) -> None:
    file = random.choice([HOST, DEVICE, LINKED])
    _on_one_of(folder, random, [file], lambda document, _: change_parts(document, file, random))


def _several(folder: Path, random: Random) -> None:
    """Changes of several kinds in both traces."""
    samples.write_sample(folder, random)
    changes = {HOST: [change_parents, change_texts, _change_ids], DEVICE: [change_times, change_texts, _change_ids]}
    for file, kinds in changes.items():
        for change in random.sample(kinds, 2):
            _change_document(folder / file, change, random)
    flows.use_traces(folder, random, with_host=True)


def _change_ids(document: Any, random: Random) -> str:
    return change_column(document, IDS, random)


def _on_one_of(folder: Path, random: Random, files: list[str], change: Change) -> None:
    file = random.choice(files)
    if file == LINKED:
        _write_linked(folder, random)
    else:
        samples.write_sample(folder, random)
    for _ in range(random.choice([1, 1, 2])):
        _change_document(folder / file, change, random)
    if file == LINKED:
        flows.use_linked(folder, random)
    else:
        flows.use_traces(folder, random, with_host=file == HOST)


def _mixed(folder: Path, random: Random) -> None:
    files, said = mixed_job(random)
    Transcript.add(f"# {said}")
    samples.write(folder, files)
    if random.random() < 0.5:
        flows.use_traces(folder, random)
    else:
        flows.use_job(folder, random)


def _crowds(folder: Path, random: Random) -> None:
    Transcript.add(f"# {write_crowd(folder, random)}")
    flows.use_traces(folder, random, with_host=True)


def _jobs(folder: Path, random: Random) -> None:
    """What is wrong with the files of a build is put right by the next one."""
    sample = samples.draw(random)
    graphs = folder / "graphs"
    samples.write(folder / "traces", samples.traces(sample))
    samples.write(graphs, samples.graphs(sample))
    said = meddle(graphs, random)
    Transcript.add(f"# {sample}: {said}")
    if random.random() < 0.5:
        flows.use_graphs(folder, random)
    must("build", folder / "traces", "-o", graphs)
    for name, content in samples.graphs(sample).items():
        # other figures in the report stay, where they are possible
        if name in said and name == REPORT:
            continue
        if not (graphs / name).exists() or (graphs / name).read_bytes() != content:
            raise Failed(
                f"trace-build calls a changed {name.replace('0', 'N').replace('1', 'N')} up to date", str(graphs / name)
            )


def _spellings(folder: Path, random: Random) -> None:
    """The same content in other words gives the same graph."""
    sample = samples.draw(random)
    graph = folder / GRAPH
    file = random.choice([HOST, DEVICE, LINKED, "graph.json"])
    if file == "graph.json":
        said = _spell(folder / file, samples.graph_json(sample), random)
        must("jsonize", folder / file, "-o", graph)
    else:
        if file == LINKED:
            said = _spell(folder / LINKED, samples.linked(sample), random)
        else:
            samples.write(folder, samples.traces(sample))
            said = _spell(folder / file, samples.traces(sample)[file], random)
            must("link", folder / HOST, folder / DEVICE, "-o", folder / LINKED)
        must("convert", folder / LINKED, "-o", graph)
    if graph.read_bytes() != samples.graph(sample):
        raise Failed(f"the graph depends on the {said} of {file}", sample)


def _spell(path: Path, text: bytes, random: Random) -> str:
    content, said = spelled_anew(text, random)
    Transcript.add(f"# {path.name}: {said}")
    path.write_bytes(content)
    return said


def _change(path: Path, changed: Callable[[bytes, Random], bytes], random: Random) -> None:
    path.write_bytes(changed(path.read_bytes(), random))


def _change_document(path: Path, change: Change, random: Random) -> None:
    document = json.loads(path.read_bytes())
    Transcript.add(f"# {path.name}: {change(document, random)}")
    path.write_text(json.dumps(document))


KINDS: dict[str, Callable[[Path, Random], None]] = {
    kind.__name__.strip("_"): kind
    for kind in (
        _host, _device, _linked, _graph, _fields, _json, _groups, _database, _noise, _parents, _ids, _times, _texts, _parts,
        _several, _mixed, _crowds, _jobs, _spellings,
    )
}  # fmt: skip
