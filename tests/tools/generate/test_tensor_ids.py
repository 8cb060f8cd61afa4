"""Arguments in generated host traces are as varied as in recorded ones: numbers are reused as addresses are."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from execgraph.tools.generate import simulate, write_traces
from support.folders import DATA

from benchmarks.programs import build_job

RECORDED = ("attention", "ddp", "modules", "torch_2.14.0")


def nodes_of(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    nodes: list[dict[str, Any]] = json.loads(text)["nodes"]
    return nodes


def distinct_share(nodes: list[dict[str, Any]], member: str) -> float:
    texts = [json.dumps(node[member]) for node in nodes if node[member]["values"]]
    return len({*texts}) / len(texts)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    run = simulate(build_job("ddp", ranks=2, steps=8, layers=6))
    return nodes_of(write_traces(run, tmp_path_factory.mktemp("traces"))[0].host)


@pytest.mark.parametrize("member", ["inputs", "outputs"])
def test_as_many_arguments_are_distinct_as_in_recorded_traces(nodes: list[dict[str, Any]], member: str) -> None:
    shares = [distinct_share(nodes_of(DATA / name / "host_rank0.json.gz"), member) for name in RECORDED]
    assert min(shares) - 0.05 < distinct_share(nodes, member) < max(shares) + 0.3


def test_what_an_op_makes_has_a_new_number_in_each_step_and_parameters_keep_theirs(nodes: list[dict[str, Any]]) -> None:
    products = [node for node in nodes if node["name"] == "aten::linear"]
    weights = [node["inputs"]["values"][1][1] for node in products]
    results = [node["outputs"]["values"][0][1] for node in products]
    assert len({*weights}) == 6
    assert len({*results}) > 3 * 6


def test_numbers_of_tensors_that_are_gone_are_used_again(nodes: list[dict[str, Any]]) -> None:
    made = [node["outputs"]["values"][0][0] for node in nodes if node["name"] == "aten::mm"]
    assert len({*made}) < len(made)


def test_a_caller_lists_the_tensor_that_the_op_which_it_calls_makes(nodes: list[dict[str, Any]]) -> None:
    name_of = {node["id"]: node for node in nodes}
    inner = [node for node in nodes if node["name"] == "aten::addmm"]
    assert inner
    assert all(node["outputs"] == name_of[node["ctrl_deps"]]["outputs"] for node in inner)
