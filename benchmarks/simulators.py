"""How far simulators end from the measured run.

python -m benchmarks.simulators --goal atlahs/sim/LogGOPSim ddp:8 tests/data/training

Builds each job for ASTRA-sim, with host and without, and for GOAL, as messages in the fitted network and with measured
communication; runs the simulators given by their paths; and prints a row of a Markdown table for each job, with the
error in % of the worst rank against the end of the rank in the measured run.
"""

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

BIN = Path(sys.executable).parent
DEEP = {"pipeline": ("--layers", "64")}
"""What makes a job for more than eight ranks."""
STEPS = ("ddp", "moe", "pipeline")
"""Jobs that are generated with three steps."""
FINISHED = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles")
HOST = re.compile(r"Host (\d+): (\d+)")
EAGER = 1
"""Messages up to so many bytes do not wait until they are received."""
LIMIT_S = 900

Ends = dict[int, int]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulators",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("jobs", nargs="+", metavar="JOB", help="a folder of traces, or NAME:RANKS of trace-generate")
    parser.add_argument("--astra-sim", action="append", default=[], metavar="PATH", help="a binary; may be repeated")
    parser.add_argument("--goal", metavar="FOLDER", help="the folder with txt2bin and LogGOPSim, those of ATLAHS")
    options = parser.parse_args()
    columns = [f"{path} {kind}" for path in options.astra_sim for kind in ("host", "no host")]
    head = ["job", "ranks", "network", *columns, "L, G", "GOAL, messages", "GOAL, measured"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for job in options.jobs:
        with tempfile.TemporaryDirectory() as folder:
            print("| " + " | ".join(_row(job, Path(folder), options)) + " |", flush=True)


def _row(job: str, folder: Path, options: argparse.Namespace) -> Iterator[str]:
    traces = _traces(job, folder)
    measured = _report(
        traces, folder / "measured", "--target", "goal", "--simulator", "atlahs", "--measured-communication"
    )
    ranks = measured["goal"]["ranks"]
    ends: Ends = {rank["number"]: rank["end_ns"] for rank in ranks}
    graphs = [
        _report(traces, folder / name, "--target", "astra-sim", *more)
        for name, more in (("host", ()), ("no-host", ("--no-host",)))
    ]
    network = graphs[0].get("network") or {}
    yield from (job, str(len(ranks)), f"{network.get('bandwidth_gib_s', '–')}, {network.get('latency_ns', '–')}")
    for binary in options.astra_sim:
        for name in ("host", "no-host"):
            yield _worst(_astra_sim(binary, folder / name), ends)
    messages = _report(traces, folder / "messages", "--target", "goal", "--simulator", "atlahs")
    fit = messages["goal"].get("network") or {"latency_ns": 0, "ns_per_byte": 0.0}
    yield f"{fit['latency_ns']}, {fit['ns_per_byte']}"
    if options.goal:
        yield _worst(_goal(options.goal, folder / "messages", fit["latency_ns"], fit["ns_per_byte"]), ends)
        yield _worst(_goal(options.goal, folder / "measured", 0, 0), ends)


def _traces(job: str, folder: Path) -> Path:
    if Path(job).is_dir():
        return Path(job)
    name, ranks = job.split(":")
    more = [*(("--steps", "3") if name in STEPS else ()), *(DEEP.get(name, ()) if int(ranks) > 8 else ())]
    _run(BIN / "trace-generate", name, "--ranks", ranks, *more, "-o", folder / "traces")
    return folder / "traces"


def _report(traces: Path, out: Path, *options: str) -> dict[str, Any]:
    _run(BIN / "trace-build", traces, "-o", out, *options)
    return msgspec.json.decode((out / "report.json").read_bytes(), type=dict[str, Any])


def _astra_sim(binary: str, graphs: Path) -> Ends:
    files = {"system": "system.json", "network": "network.yml", "remote-memory": "memory.json"}
    prefix = graphs / "astra-sim" / "graph" if (graphs / "astra-sim" / "graph.0.et").exists() else graphs / "graph"
    # the simulator writes a folder of logs to where it is started
    out = _run(
        Path(binary).absolute(),
        f"--workload-configuration={prefix}",
        *(f"--{name}-configuration={graphs / 'astra-sim' / file}" for name, file in files.items()),
        f"--comm-group-configuration={graphs / 'comm_groups.json'}",
        folder=graphs,
    )
    return {int(rank): int(cycles) for rank, cycles in FINISHED.findall(out)}


def _goal(simulator: str, job: Path, latency_ns: int, ns_per_byte: float) -> Ends:
    _run(Path(simulator, "txt2bin"), "-i", job / "job.goal", "-o", job / "job.bin")
    network = {"L": latency_ns, "o": 0, "g": 0, "G": ns_per_byte, "O": 0, "S": EAGER}
    flags = [text for name, value in network.items() for text in (f"-{name}", str(value))]
    return {
        int(rank): int(ns)
        for rank, ns in HOST.findall(_run(Path(simulator, "LogGOPSim"), "-f", job / "job.bin", *flags))
    }


def _worst(finished: Ends, measured: Ends) -> str:
    """Returns the error in % of the rank that is furthest off, or how many did not finish."""
    missing = measured.keys() - finished.keys()
    if missing:
        return f"{len(missing)} of {len(measured)} ranks did not finish"
    return f"{max((100 * (finished[rank] / end - 1) for rank, end in measured.items()), key=abs):+.2f} %"


def _run(*command: object, folder: Path | None = None) -> str:
    """Returns what a command prints, started in a folder. Ends the measurement if it fails, with what it said last."""
    words: Sequence[str] = [str(word) for word in command]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, cwd=folder, check=True).stdout
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip() or error.stdout.strip() or "nothing").splitlines()[-1]
        sys.exit(f"{shlex.join(words)}: failed with status {error.returncode}: {said}")
    except subprocess.TimeoutExpired:
        sys.exit(f"{shlex.join(words)}: not done after {LIMIT_S} s")
    except OSError as error:
        sys.exit(f"{words[0]}: cannot be run ({error.strerror})")


if __name__ == "__main__":
    main()
