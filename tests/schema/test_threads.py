"""Work on another thread, or in this one where none can start or it dies; workers where few processes can."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from execgraph.schema import threads
from execgraph.schema.threads import Beside

resource = pytest.importorskip("resource")


def dead(*_: object) -> int:
    """A thread that dies before it begins, as one without memory does."""
    return 0


def refused(*_: object) -> int:
    raise RuntimeError("can't start new thread")


def test_the_work_is_done_beside() -> None:
    begun = threading.Event()
    beside = Beside(lambda: (begun.set(), threading.get_ident()))
    assert begun.wait(10)
    assert beside.result()[1] != threading.get_ident()


@pytest.mark.parametrize("start", [dead, refused])
def test_without_a_thread_who_wants_the_result_does_the_work(monkeypatch: pytest.MonkeyPatch, start: object) -> None:
    monkeypatch.setattr(threads, "start_new_thread", start)
    beside = Beside(threading.get_ident)
    assert beside.result() == beside.result() == threading.get_ident()


def test_an_error_is_raised_to_who_wants_the_result() -> None:
    with pytest.raises(ZeroDivisionError):
        Beside(lambda: 1 // 0).result()


def test_what_is_given_up_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "start_new_thread", dead)
    Beside(pytest.fail).give_up()


@pytest.mark.skipif(sys.platform != "linux", reason="limits are those of Linux")
@pytest.mark.parametrize(("limit", "most"), [("RLIMIT_AS", 400_000_000), ("RLIMIT_NOFILE", 32)])
def test_a_build_takes_fewer_workers_where_the_system_gives_fewer(
    data: Path, tmp_path: Path, limit: str, most: int
) -> None:
    start = f"import resource, sys; resource.setrlimit(resource.{limit}, ({most}, {most}))"
    program = f"{start}; from execgraph.start import trace_build; trace_build()"
    command = [sys.executable, "-c", program, str(data / "training"), "-o", str(tmp_path / "out"), "--jobs", "2", "-q"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    )
    assert (done.returncode, done.stderr) == (0, "")
