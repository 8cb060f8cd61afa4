"""What a build for ASTRA-sim writes beside the graphs, ready to start."""

import json
import re
import shlex
from pathlib import Path

import pytest
from execgraph.tools.build_job import Simulation, write_astra_sim_files
from execgraph.tools.commands.trace_build import main
from execgraph.tools.generate import build_job, simulate, write_traces


def built(tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str = "", job: str = "ddp") -> tuple[Path, str]:
    """The output folder, and what was said."""
    folder, out = tmp_path / "traces", tmp_path / "graphs"
    if not folder.exists():
        write_traces(simulate(build_job(job, ranks=2, steps=1, layers=2, seed=1)), folder)
    with pytest.raises(SystemExit) as left:
        main(
            [
                "--input-dir",
                str(folder),
                "--output-dir",
                str(out),
                "--target",
                "astra-sim",
                "--jobs",
                "1",
                *more.split(),
            ]
        )
    assert left.value.code == 0
    return out, capsys.readouterr().err


def test_the_command_that_is_printed_names_files_that_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, said = built(tmp_path, capsys)
    _, *options = shlex.split(next(line for line in said.splitlines() if line.startswith("simulate")).split(None, 1)[1])
    given = dict(option.removeprefix("--").split("-configuration=") for option in options)
    assert given.pop("workload") == str(out / "graph")
    assert set(given) == {"system", "network", "remote-memory", "comm-group"}
    assert all(Path(path).is_file() for path in given.values())
    assert "npus_count: [ 2 ]" in Path(given["network"]).read_text()
    assert json.loads(Path(given["system"]).read_text())["replay-only"] == 0


def test_the_network_is_what_the_measured_collectives_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, said = built(tmp_path, capsys)
    fitted = re.search(r"network +(\S+) GB/s, (\S+) ns a link, as (\d+) collectives and messages fit", said)
    assert fitted
    text = (out / "astra-sim" / "network.yml").read_text()
    assert [float(found) for found in re.findall(r": \[ ([\d.]+) \]  #", text)] == [float(fitted[1]), float(fitted[2])]


def test_what_is_given_stands_and_the_fit_is_kept_by_a_build_that_is_up_to_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, first = built(tmp_path, capsys)
    _, again = built(tmp_path, capsys, "--bandwidth 12.5 --replay")
    assert [line for line in first.splitlines() if line.startswith("network")] == [
        line for line in again.splitlines() if line.startswith("network")
    ]
    assert "bandwidth: [ 12.5 ]" in (out / "astra-sim" / "network.yml").read_text()
    assert json.loads((out / "astra-sim" / "system.json").read_text())["replay-only"] == 1


def test_without_communication_the_network_is_the_default_one(tmp_path: Path) -> None:
    write_astra_sim_files(tmp_path, 3, None, Simulation(latency_ns=0.0))
    text = (tmp_path / "astra-sim" / "network.yml").read_text()
    assert "bandwidth: [ 100.0 ]" in text
    assert "latency: [ 0.0 ]" in text


@pytest.mark.parametrize("option", ["--bandwidth=5", "--latency=5", "--replay"])
def test_other_targets_have_no_simulation(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--input-dir", "a", "--output-dir", "b", option])
    assert left.value.code == 2
    assert "are for --target astra-sim" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["0", "-1", "inf", "nan", "fast"])
def test_a_bandwidth_is_a_number_above_0(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--input-dir", "a", "--output-dir", "b", "--target", "astra-sim", f"--bandwidth={value}"])
    assert left.value.code == 2
    assert f"{value} is not a number above 0" in capsys.readouterr().err
