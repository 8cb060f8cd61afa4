"""What the pages on recording tell people to write and to run records traces that link completely."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from support.commands import status_of
from support.folders import ROOT
from support.reports import Block, examples, run_example

DOCUMENTS = [ROOT / "docs" / name for name in ("capture.md", "capture-more.md")]
RECORDED = re.compile(r"execgraph: rank \d+ recorded (\S+) and (\S+)")


@pytest.fixture(autouse=True)
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    return pytest.importorskip("torch", minversion="2.7", reason="the oldest that follows every way of the document")


def blocks(section: str, language: str) -> list[str]:
    """The blocks of a section in a language, in their order."""
    text = "".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    found = re.search(rf"^## {section}$(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, section
    return re.findall(rf"^```{language}\n(.*?)^```$", found[1], re.DOTALL | re.MULTILINE)


def links(said: str) -> int:
    """How many pairs a recording says that it wrote; every host op of them is matched."""
    pairs = RECORDED.findall(said)
    for host, device in pairs:
        report = link(read_host_trace(host), read_device_trace(device)).report
        assert report.host_ops == report.matched > 0
    return len(pairs)


def training(torch) -> dict[str, object]:
    """The names that the document's loops take from around them."""
    model = torch.nn.Linear(8, 1)
    return {"loader": [torch.randn(4, 8)] * 20, "train_step": lambda batch: model(batch).sum().backward()}


def follow(line: str) -> None:
    """Runs a command line of the document; it must succeed."""
    assert status_of(*shlex.split(line)) == 0


def test_the_loop_runs_as_it_is_and_what_follows_reads_its_traces(torch, capsys):
    [loop], [request] = (blocks(title, "python") for title in ("A loop", "Options"))
    names: dict[str, object] = {}
    exec(loop, names)
    times = r"takes [\d.]+ ms \(most [\d.]+ to [\d.]+ ms\), the median of \d+"
    said = re.sub(times, "takes … ms (most … to … ms), the median of 29", capsys.readouterr().err)
    [shown] = blocks("A loop", "text")
    # where other work holds steps up, some do not count, or their length is not known
    printed = [line for line in said.splitlines() if line.startswith("execgraph")]
    assert printed and printed == shown.splitlines()[-len(printed) :]
    assert links(said) == 1
    for example in examples(Block("console", blocks("A loop", "console")[0])):
        run_example(example, capsys)
    exec(request, names)
    assert links(capsys.readouterr().err) == 1


def test_the_profiler(torch, capsys):
    [loop] = blocks("A profiler", "python")
    exec(loop, training(torch))
    assert links(capsys.readouterr().err) == 2


def started_twice(script: str, line: str) -> str:
    """What a script of the document says on stderr that torchrun starts as a line of the document says."""
    torchrun, *options, _ = shlex.split(line)
    assert torchrun == "torchrun"
    Path("script.py").write_text(script)
    command = [sys.executable, "-m", "torch.distributed.run", *options, "script.py"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not ran.returncode, ran.stderr
    return ran.stderr


def test_the_job_of_several_processes_and_what_builds_its_graphs():
    [script] = blocks("Several processes", "python")
    torchrun, build = blocks("Several processes", "sh")[0].splitlines()
    assert links(started_twice(script, torchrun)) == 2
    follow(build)
    follow("trace-diagnose traces")


def test_the_job_with_accelerate():
    pytest.importorskip("accelerate")
    [script] = blocks("accelerate", "python")
    torchrun, _ = blocks("Several processes", "sh")[0].splitlines()
    assert links(started_twice(script, torchrun)) == 2


def test_the_callback(torch, capsys):
    lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
    [callback] = blocks("Lightning", "python")
    scope: dict[str, type] = {}
    exec(callback, scope)

    class Net(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch, _):
            return self.layer(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.Trainer(max_steps=20, accelerator="cpu", devices=1, callbacks=[scope["Capture"]()], **quiet)
    trainer.fit(Net(), torch.utils.data.DataLoader(torch.randn(80, 8), batch_size=4))
    assert links(capsys.readouterr().err) == 1


SERVER = """
import os, signal, sys, torch
layer, ending = torch.nn.Linear(8, 8), sys.argv[1]
handler = torch.profiler.tensorboard_trace_handler(os.environ["TMPDIR"], "rank0")
profiler = torch.profiler.profile(record_shapes=True, on_trace_ready=handler)
profiler.start()  # as vLLM and SGLang do at /start_profile
for _ in range(20):
    layer(torch.randn(4, 8)).sum()
profiler.stop()
if ending == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("ending", ["shut down", "killed"])
def test_the_variables_of_servers_make_a_profiler_that_takes_no_observer_leave_a_host_trace(tmp_path, ending):
    make_folder, export = blocks("Inference servers", "sh")[0].splitlines()
    folder = shlex.split(make_folder)[-1]
    variables = dict(setting.split("=") for setting in shlex.split(export)[1:])
    assert variables["TMPDIR"] == folder
    variables["TMPDIR"] = str(tmp_path)
    subprocess.run([sys.executable, "-c", SERVER, ending], env=os.environ | variables, check=False)
    lines = [line.removeprefix("$ ") for block in blocks("Inference servers", "text") for line in block.splitlines()]
    [build] = {line for line in lines if line.startswith("trace-build")}
    follow(build.replace(folder, str(tmp_path)))
    [rank] = json.loads(Path("graphs/report.json").read_text())["ranks"]
    assert rank["host"]["file"].endswith(".et.json")
    link_report = rank["link"]
    assert link_report["host_ops"] == link_report["matched"] > 0
