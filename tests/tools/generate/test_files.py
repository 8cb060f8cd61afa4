"""The files of a run: alone in their folder, as large as asked for, with arguments as varied as in recorded traces."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from execgraph.schema.errors import DataError
from execgraph.tools.generate import build_job, simulate, sized_job, write_traces
from support.folders import DATA

RECORDED = ("attention", "ddp", "modules", "torch_2.14.0")


def test_traces_of_another_job_are_not_mixed_with_this_one(tmp_path: Path) -> None:
    pair = simulate(build_job("ddp", ranks=2, layers=1, steps=1))
    write_traces(simulate(build_job("ddp", ranks=3, layers=1, steps=1)), tmp_path)
    with pytest.raises(DataError, match=r"holds traces of another job, such as device_rank2\.json; name a new folder"):
        write_traces(pair, tmp_path)
    with pytest.raises(DataError, match="holds traces of another job"):
        write_traces(pair, tmp_path, compress=True)


def test_the_same_job_is_written_again(tmp_path: Path) -> None:
    run = simulate(build_job("ddp", ranks=2, layers=1, steps=1))
    assert write_traces(run, tmp_path) == write_traces(run, tmp_path)


def test_traces_are_about_as_large_as_asked_for(tmp_path: Path) -> None:
    job = sized_job("ddp", ranks=2, layers=2, size_mb=1)
    first_rank = write_traces(simulate(job), tmp_path)[0]
    assert sum(path.stat().st_size for path in first_rank) == pytest.approx(1_000_000, rel=0.2)


def test_rows_of_python_calls_count_so_there_are_fewer_steps() -> None:
    with_stacks = sized_job("ddp", ranks=2, layers=2, size_mb=2, stacks=100)
    without = sized_job("ddp", ranks=2, layers=2, size_mb=2)
    assert len(simulate(with_stacks).ranks[0].activities) < len(simulate(without).ranks[0].activities)


# Numbers of tensors, which are reused as addresses are


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
