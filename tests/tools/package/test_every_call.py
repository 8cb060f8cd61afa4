"""A script of a user uses everything that `import execgraph` gives; its types are checked by `make types`."""

import inspect
import re
from pathlib import Path

import execgraph
import pytest
from support import every_call
from support.folders import ROOT

FOLDER = ROOT / "tests" / "data" / "training"
TEXT = Path(every_call.__file__).read_text()
OBJECTS = (
    execgraph.LinkedTrace,
    execgraph.ExecutionGraph,
    execgraph.Node,
    execgraph.Replay,
    execgraph.WhatIf,
    execgraph.Job,
)


def test_the_script_works(tmp_path: Path) -> None:
    graph = every_call.graphs(every_call.traces(FOLDER, tmp_path), tmp_path)
    every_call.runs(graph, tmp_path)
    every_call.jobs(FOLDER, tmp_path)
    every_call.before_linking(tmp_path)


def test_its_pictures_are_drawn() -> None:
    for library in ("altair", "polars", "pandas"):
        pytest.importorskip(library)
    every_call.pictures(FOLDER)


def test_it_uses_every_name_and_every_method() -> None:
    assert {name for name in execgraph.__all__ if not re.search(rf"\beg\.{name}\b", TEXT)} == set()
    members = [(name, value) for cls in OBJECTS for name, value in vars(cls).items() if not name.startswith("_")]
    own = {name for name, value in members if not inspect.ismemberdescriptor(value)}
    assert {name for name in own if not re.search(rf"\.{name}\b", TEXT)} == set()
