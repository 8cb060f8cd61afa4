"""The peak of what a process and its children hold, mapped files left out."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bench.memory import anonymous_bytes, watched

MB = 1_000_000
pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell")


def peak_of(program: str) -> int:
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        with watched(process.pid) as peak:
            assert process.stdout is not None
            process.stdout.read()
        return peak.bytes


def test_memory_of_a_child_counts_and_that_of_a_mapped_file_does_not(tmp_path: Path) -> None:
    nothing = peak_of("import mmap, subprocess, sys, time; time.sleep(0.1)")
    child = "import time; held = bytearray(100_000_000); time.sleep(0.2)"
    assert peak_of(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])") > nothing + 95 * MB
    file = tmp_path / "file"
    file.write_bytes(bytes(100 * MB))
    mapped = (
        f"import mmap, time; file = open({str(file)!r}, 'rb'); pages = mmap.mmap(file.fileno(), 0, prot=1); "
        "sum(pages[::4096]); time.sleep(0.1)"
    )
    assert peak_of(mapped) < nothing + 20 * MB


def test_a_process_that_has_ended_holds_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert anonymous_bytes(process.pid) == 0
