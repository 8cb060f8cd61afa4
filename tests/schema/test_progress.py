"""Work in another thread, or in this one where none can start; workers where few processes can."""

import os
import subprocess
import sys
import threading
import time

import pytest
from execgraph.schema.progress import beside, give_up

resource = pytest.importorskip("resource")


def test_the_work_is_done_beside() -> None:
    begun = threading.Event()
    work = beside(lambda: (begun.set(), threading.get_ident()))
    assert begun.wait(10)
    assert work.result()[1] != threading.get_ident()


def no_memory(*_: object) -> None:
    raise OSError("cannot allocate memory")


def no_thread(*_: object) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("module", "name", "refuse"), [("mmap", "mmap", no_memory), ("threading.Thread", "start", no_thread)]
)
def test_without_a_thread_the_work_is_done_here(monkeypatch, module, name, refuse):
    monkeypatch.setattr(f"{module}.{name}", refuse)
    assert beside(threading.get_ident).result() == threading.get_ident()


def test_an_error_is_raised_to_who_wants_the_result() -> None:
    with pytest.raises(ZeroDivisionError):
        beside(lambda: 1 // 0).result()


def test_who_gives_up_waits_for_what_has_begun() -> None:
    begun, ended = threading.Event(), list[int]()
    work = beside(lambda: (begun.set(), time.sleep(0.1), ended.append(1)))
    begun.wait(10)
    give_up(work)
    assert ended == [1]


@pytest.mark.skipif(sys.platform != "linux", reason="limits are those of Linux")
@pytest.mark.parametrize(("limit", "most"), [("RLIMIT_AS", 400_000_000), ("RLIMIT_NOFILE", 32)])
def test_a_build_takes_fewer_workers_where_the_system_gives_fewer(data, tmp_path, limit, most):
    start = f"import resource, sys; resource.setrlimit(resource.{limit}, ({most}, {most}))"
    program = f"{start}; from execgraph.start import trace_build; trace_build()"
    command = [sys.executable, "-c", program, str(data / "training"), "-o", str(tmp_path / "out"), "--jobs", "2", "-q"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    )
    assert (done.returncode, done.stderr) == (0, "")
