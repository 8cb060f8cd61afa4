"""A few cases of every kind that `make fuzz` runs by the thousand, and whether the fuzzer notices what it should.

Real files, damaged anyhow: whatever reads them reads on or refuses, and never loses anything without a word.
"""

import gzip
import json
import os
import signal
import sys
import time
from itertools import chain
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from support.folders import TESTS

from fuzz import running as fork_server
from fuzz.changes import changed_bytes, changed_json
from fuzz.commands import KINDS, SHARES, case_of, check
from fuzz.readers import CHECKS, KEYS, sample
from fuzz.running import Failed, Verdict, run, run_cases
from fuzz.samples import DEVICE, HOST, traces, write
from fuzz.texts import PACKINGS, SPELLING_WAYS, spelled_anew

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="forks limit what they may take")
SEED = int(os.environ.get("EXECGRAPH_FUZZ_SEED", "22"))
EACH = int(os.environ.get("EXECGRAPH_FUZZ_CASES", "1"))


CASES = {kind: [case_of(SEED, number, kind) for number in range(EACH)] for kind in KINDS}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    """What became of each case; one fork runs them all, as each fork makes their sound files anew."""
    cases = [*chain.from_iterable(CASES.values())]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_server, "BATCH", len(cases))
        return {verdict.case: verdict for verdict in run_cases(cases, check, jobs=1)}


@pytest.mark.parametrize("kind", [*KINDS])
def test_hostile_files_are_read_or_refused(kind: str, verdicts: dict[str, Verdict]) -> None:
    found = [verdicts[case] for case in CASES[kind]]
    assert [(verdict.case, verdict.symptom, verdict.detail) for verdict in found if verdict.symptom] == []


# the fuzzer itself


def test_every_kind_of_file_has_its_share() -> None:
    assert {*SHARES} == {*KINDS}


def verdict_of(work: object) -> Verdict:
    """What is said of a case that does this, between two that do nothing."""

    def check_one(case: str, _: Path) -> None:
        if case == "bad":
            work()  # type: ignore[operator]

    before, verdict, after = run_cases(["good", "bad", "good again"], check_one, jobs=1)
    assert (before.symptom, before.case, after.symptom, after.case) == ("", "good", "", "good again")
    return verdict


def test_a_case_that_never_ends_is_ended_with_a_traceback() -> None:
    def never_end() -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.1)
        while True:
            pass

    verdict = verdict_of(never_end)
    assert verdict.symptom == "a case takes too long"
    assert "in never_end" in verdict.detail


def test_a_case_that_waits_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "SECONDS_OF_A_CHILD", 1)
    assert verdict_of(lambda: time.sleep(1000)).symptom == "a case takes too long"


def test_a_case_that_kills_its_process_or_takes_too_much_memory_is_a_failure_of_that_case() -> None:
    assert verdict_of(lambda: os.kill(os.getpid(), signal.SIGKILL)).symptom == "a case ends the process (-9)"
    assert verdict_of(lambda: bytearray(fork_server.MEMORY + (1 << 28))).symptom == "the fuzzer: MemoryError()"


def test_cases_run_side_by_side_and_each_is_answered() -> None:
    def wait(_: str, __: Path) -> None:
        time.sleep(0.001)

    cases = [f"case {number}" for number in range(100)]
    assert sorted(verdict.case for verdict in run_cases(cases, wait, jobs=3)) == sorted(cases)


def broken(monkeypatch: pytest.MonkeyPatch, folder: Path, said: str, status: int = 1) -> str:
    """The symptom of a command that ends like this."""

    def main(_: object) -> None:
        print(said, file=sys.stderr)
        sys.exit(status)

    monkeypatch.setattr("execgraph.tools.commands.trace_view.main", main)
    with pytest.raises(Failed) as raised:
        run("view", folder / "graph.et")
    return raised.value.symptom


@pytest.mark.parametrize(
    ("said", "status", "symptom"),
    [
        ("trace-view: internal error: KeyError('x'); run again", 1, "trace-view: internal error: KeyError(…)"),
        ("trace-view: error: a\ntrace-view: error: b", 1, "trace-view: 2 errors for one refusal"),
        ("nothing", 1, "trace-view: exit status 1 without a line that says why"),
        ("trace-view: error: a", 0, "trace-view: an error, and exit status 0"),
        ("trace-view: error: a", 3, "trace-view: exit status 3"),
        (f"trace-view: error: {'x' * 3000}", 1, "trace-view: a message of more than 2000 characters"),
        ("trace-view: error: \x1b[31m", 1, "trace-view: control characters on the terminal: ['\\x1b']"),
    ],
)
def test_how_no_command_may_end(monkeypatch, tmp_path, said, status, symptom):
    assert broken(monkeypatch, tmp_path, said, status) == symptom


def test_files_that_a_failed_command_leaves_are_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def main(_: object) -> None:
        (tmp_path / "half").write_text("")
        print("trace-view: error: it failed", file=sys.stderr)
        sys.exit(1)

    monkeypatch.setattr("execgraph.tools.commands.trace_view.main", main)
    with pytest.raises(Failed, match="trace-view fails and leaves files behind"):
        run("view", tmp_path / "graph.et")


def test_what_is_spelled_anew_says_the_same() -> None:
    document = {"traceEvents": [{"name": "é/\U0001f600", "ts": 1.5, "args": {"a": [1, {"b": 2.0}], "c": None}}] * 3}
    text = json.dumps(document).encode()
    written = {spelled_anew(text, Random(seed)) for seed in range(200)}
    assert {said for _, said in written} > {
        way.__name__.strip("_").replace("_", " ") for way in (*SPELLING_WAYS, *PACKINGS)
    }
    assert all(
        json.loads(content) == document
        for content, said in written
        if said not in ("gzip", "zstd", "byte order mark", "everything")
    )


def test_a_case_is_the_same_whenever_it_is_repeated(tmp_path: Path) -> None:
    written = []
    for name in ("once", "again"):
        folder = tmp_path / name
        folder.mkdir()
        check(case_of(SEED, 0, "parts"), folder)
        written.append({path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()})
    assert written[0] == written[1]


def test_sound_files_pass(tmp_path: Path) -> None:
    write(tmp_path, traces("played 2.13"))
    assert run("link", tmp_path / HOST, tmp_path / DEVICE, "-o", tmp_path / "linked.json")[0] == 0


EXAMPLES = int(os.environ.get("EXECGRAPH_FUZZ_EXAMPLES", "8"))
often = settings(max_examples=EXAMPLES, deadline=20_000, suppress_health_check=list(HealthCheck))
seldom = settings(often, max_examples=max(EXAMPLES // 5, 1))
SEEDS = st.integers(0, (1 << 32) - 1)


def with_changed_bytes(text: bytes, random: Random) -> bytes:
    for _ in range(random.choice([1, 1, 2, 4])):
        text = changed_bytes(text, random)
    return text


@pytest.mark.parametrize("kind", CHECKS)
@often
@given(seed=SEEDS)
def test_files_whose_bytes_changed(kind: str, seed: int) -> None:
    CHECKS[kind](with_changed_bytes(sample(kind), Random(seed)))


@pytest.mark.parametrize("kind", KEYS)
@seldom
@given(seed=SEEDS)
def test_json_that_says_odd_things(kind: str, seed: int) -> None:
    CHECKS[kind](changed_json(sample(kind), Random(seed)))


@often
@given(SEEDS)
def test_compressed_device_traces(seed: int) -> None:
    CHECKS["device"](with_changed_bytes(gzip.compress(sample("device"), 1), Random(seed)))


# What fuzzing found

FOUND = [
    ("device", b"\x1f\x8b\x08\0\0\0\0\0\0\3" + b"\xff" * 20),
    ("device", b'{"x": "\xf5", "traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1}]}'),
    ("device", b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1, "args": {"External id": [[7]]}}]}'),
    ("device", b'{"traceEvents": [null, {"ph": "X", "cat": "cpu_op", "ts": 1}, ]}'),
    ("host", b'{"nodes": [{"id": 1, "name": "a", "inputs": {}, "attrs": [{"name": "rf_id", "value": [2]}]}]}'),
    ("linked", b'{"nodes": [{"id": 1, "name": "a", "ts": 1, "attrs": [{"name": "rf_id", "value": null}]}]}'),
    ("linked", b'{"nodes": [{"id": 1, "name": "a", "ts": 1, "attrs": [{"name": "op_schema", "value": [1]}]}]}'),
]
FILES = sorted((TESTS / "fuzz" / "found").iterdir())


@pytest.mark.parametrize(("kind", "content"), FOUND)
def test_found_cases(kind: str, content: bytes) -> None:
    CHECKS[kind](content)


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in FILES])
def test_found_files(path: Path) -> None:
    CHECKS[path.name.split("-")[0]](path.read_bytes())
