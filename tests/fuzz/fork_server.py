"""Runs cases in forks of this process, several at a time, so that none can end the run, hold it up, or take all memory.

A fork runs a batch of cases, as forking takes as long as a small case. A case that dies ends its fork, and the next
fork goes on behind it.
"""

import faulthandler
import json
import os
import re
import resource
import selectors
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple, NoReturn

from fuzz.running import ENDED, Failed, Transcript, place_in, without_workers

MEMORY = 2 << 30
"""What a fork may map beyond what this process has mapped."""
SECONDS = 300
"""How long a case may take by the clock: one that waits for what never comes takes no time of a core."""
BATCH = 20
LONGEST = 8000
"""Characters of the detail of a verdict, the last ones."""

Check = Callable[[str, Path], None]


class Verdict(NamedTuple):
    """What became of a case; `symptom` is empty where nothing failed."""

    case: str
    symptom: str = ""
    detail: str = ""
    commands: int = 0
    refused: int = 0
    seconds: float = 0


def run_cases(cases: Iterable[str], check: Check, jobs: int) -> Iterator[Verdict]:
    """Runs `check(case, folder)` for each case, and yields what became of it, in the order in which they end."""
    waiting = iter(cases)
    forks: set[_Fork] = set()
    with selectors.DefaultSelector() as selector:
        try:
            while True:
                while len(forks) < jobs and (batch := deque(islice(waiting, BATCH))):
                    forks.add(_start(batch, check, selector))
                if not forks:
                    return
                for key, _ in selector.select(1):
                    fork: _Fork = key.data
                    if said := os.read(fork.verdicts, 1 << 16):
                        yield from fork.heard(said)
                        continue
                    selector.unregister(fork.verdicts)
                    forks.remove(fork)
                    yield from fork.ended()
                    if fork.batch:
                        forks.add(_start(fork.batch, check, selector))
                for fork in forks:
                    if time.monotonic() - fork.since > SECONDS:
                        os.kill(fork.process, signal.SIGPROF)
        finally:
            for fork in forks:
                os.kill(fork.process, signal.SIGKILL)
                os.waitpid(fork.process, 0)


class _Fork:
    """A process that runs a batch of cases; `batch` are those whose verdict it has not given yet."""

    def __init__(self, process: int, verdicts: int, transcript: IO[str], batch: deque[str]) -> None:
        self.process, self.verdicts, self.transcript, self.batch = process, verdicts, transcript, batch
        self.since, self.unread = time.monotonic(), b""

    def heard(self, said: bytes) -> Iterator[Verdict]:
        """Yields the verdicts that are whole by now."""
        *lines, self.unread = (self.unread + said).split(b"\n")
        for line in lines:
            self.since = time.monotonic()
            self.batch.popleft()
            yield Verdict(*json.loads(line))

    def ended(self) -> Iterator[Verdict]:
        """Yields the verdict of the case that ended the process, if one did."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        os.close(self.verdicts)
        self.transcript.seek(0)
        transcript = self.transcript.read()
        self.transcript.close()
        if self.batch:
            seconds = time.monotonic() - self.since
            yield Verdict(self.batch.popleft(), _death(status, transcript), transcript[-LONGEST:], seconds=seconds)


def _death(status: int, transcript: str) -> str:
    """The command that ended the process, and where it was."""
    commands = re.findall(r"^\$ (\S+)", transcript, re.MULTILINE)
    where = place_in(transcript.rpartition("Current thread")[2], innermost=0)
    # to write down where it is may itself fail, at a bad moment
    late = status == -signal.SIGPROF or ("most recent call first" in transcript and "Fatal" not in transcript)
    what = "takes too long" if late else f"ends the process ({status})"
    return f"{commands[-1] if commands else 'a case'} {what}{where}"


def _start(batch: deque[str], check: Check, selector: selectors.BaseSelector) -> _Fork:
    hearing, saying = os.pipe()
    transcript = tempfile.TemporaryFile("w+")  # noqa: SIM115
    sys.stdout.flush()
    process = os.fork()
    if not process:
        os.close(hearing)
        _run_batch(batch, check, saying, transcript)
    os.close(saying)
    fork = _Fork(process, hearing, transcript, batch)
    selector.register(fork.verdicts, selectors.EVENT_READ, fork)
    return fork


def _run_batch(batch: Iterable[str], check: Check, saying: int, transcript: IO[str]) -> NoReturn:
    """Does the work of a fork, and ends it: what this process does at its end is not for the fork to do."""
    try:
        os.dup2(transcript.fileno(), 2)
        faulthandler.enable(transcript)
        faulthandler.register(signal.SIGPROF, transcript, chain=True)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, resource.RLIM_INFINITY))
        Transcript.stream = transcript
        without_workers()
        for case in batch:
            transcript.seek(0)
            transcript.truncate()
            verdict = run_case(case, check)
            transcript.seek(0)
            _write_all(saying, json.dumps(verdict._replace(detail=f"{transcript.read()}{verdict.detail}"[-LONGEST:])))
    finally:
        os._exit(0)


def _write_all(descriptor: int, line: str) -> None:
    with open(descriptor, "wb", closefd=False) as stream:
        stream.write(line.encode() + b"\n")


def run_case(case: str, check: Check, folder: Path | None = None) -> Verdict:
    """Runs a case in this process, in a folder of its own if none is given."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="case.") as name:
            return run_case(case, check, Path(name))
    before, begun = ENDED.copy(), time.process_time()
    symptom = detail = ""
    try:
        check(case, folder)
    except Failed as error:
        symptom, detail = error.symptom, error.detail
    except Exception as error:
        symptom, detail = f"the fuzzer: {error!r}", traceback.format_exc()
    commands, refused = ENDED.total() - before.total(), sum((ENDED - before).values()) - (ENDED - before)[0]
    return Verdict(case, symptom, detail, commands, refused, time.process_time() - begun)
