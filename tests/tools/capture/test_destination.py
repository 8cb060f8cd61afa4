"""Where a rank's traces go, by which names, and the messages about them; impossible names and folders are refused."""

from pathlib import Path

import pytest
from execgraph import capture
from support.capturing import train, written

PAIR = ["device_rank3.json.gz", "host_rank3.json.gz"]


def test_files_are_named_by_the_launchers_rank(torch, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    train(torch, tmp_path, steps=4)
    assert written(tmp_path) == PAIR


def test_a_name_can_be_given(torch, tmp_path):
    train(torch, tmp_path, steps=4, name="warm/r{rank}.{trace}")
    assert written(tmp_path) == ["warm/r0.device.json.gz", "warm/r0.host.json.gz"]


@pytest.mark.parametrize("name", ["{trace}", "rank{rank}", "{trace}_{rank}_{epoch}", "{trace"])
def test_a_name_that_two_traces_would_share_is_refused(torch, tmp_path, name):
    with pytest.raises(ValueError, match=r"name: .* needs \{trace\} and \{rank\}"), capture(tmp_path, name=name):
        pass


@pytest.mark.parametrize("ranks, files", [({0, 3}, PAIR), (range(3), []), (None, PAIR)])
def test_only_the_ranks_that_were_asked_for_record(torch, tmp_path, monkeypatch, ranks, files):
    monkeypatch.setenv("RANK", "3")
    train(torch, tmp_path, steps=4, ranks=ranks)
    assert written(tmp_path) == files


def test_paths_and_the_next_command_are_said_once(torch, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "my traces"
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        train(torch, folder, steps=4)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("execgraph: ")]
    assert said == [
        f"execgraph: rank 0 recorded {folder}/host_rank0.json.gz and {folder}/device_rank0.json.gz",
        f"execgraph: next: trace-build '{folder}' -o graphs",
        f"execgraph: rank 1 recorded {folder}/host_rank1.json.gz and {folder}/device_rank1.json.gz",
    ]


@pytest.mark.parametrize("ranks", [0, 1.5])
def test_ranks_are_several(torch, tmp_path, ranks):
    with pytest.raises(TypeError):
        capture(tmp_path, ranks=ranks)


def test_a_file_is_no_folder_for_traces(torch, tmp_path):
    with pytest.raises(ValueError, match="not a folder"):
        capture(Path(__file__))
