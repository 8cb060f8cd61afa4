"""Hostile files through all commands: they are read, or refused in one line, and nothing recorded is lost uncounted.

    python tests/fuzz/commands.py --cases 20000 --seed 7        many cases, the same ones for the same seed
    python tests/fuzz/commands.py --case host:7:123             one of them again; names the folder of its files

A case is a kind of file, and the seed of all that is random in it.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random

import tqdm

sys.path[:0] = map(str, Path(__file__).parents[1:3])

from fuzz.cases import KINDS  # noqa: E402
from fuzz.running import Verdict, run_cases, without_workers  # noqa: E402
from fuzz.samples import prepare  # noqa: E402

SHARES = (
    "host", "device", "parents", "times", "ids", "texts", "several", "linked", "fields", "spellings",
    "parts", "mixed", "crowds", "jobs", "graph", "times", "parents", "texts", "several", "ids",
    "host", "device", "json", "database", "groups", "noise", "spellings", "fields", "parts", "mixed",
)  # fmt: skip
"""The kinds of a run's cases in turn."""
SHOWN = 3
"""Cases named for each cause."""


def case_of(seed: int, number: int, kind: str = "") -> str:
    """The name of a run's case."""
    return f"{kind or SHARES[number % len(SHARES)]}:{seed}:{number}"


def check(case: str, folder: Path) -> None:
    """Runs a case in this process. Raises Failed."""
    KINDS[case.partition(":")[0]](folder, Random(case))


def main() -> None:
    """Runs the cases, prints what failed and how to repeat it, and exits 1 if anything did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, default="", help="cases of this kind alone")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="cases at a time (the cores)")
    parser.add_argument("--case", help="run this one, and leave its files")
    arguments = parser.parse_args()
    without_workers()
    if arguments.case:
        sys.exit(repeat(arguments.case))
    prepare()
    cases = [case_of(arguments.seed, arguments.first + number, arguments.kind) for number in range(arguments.cases)]
    begun, verdicts, shown = time.monotonic(), [], Counter[str]()
    # a thread of its own would have forks warn
    tqdm.tqdm.monitor_interval = 0
    for verdict in tqdm.tqdm(run_cases(cases, check, arguments.jobs), total=len(cases), unit=" cases", disable=None):
        verdicts.append(verdict._replace(detail=""))
        shown[verdict.symptom] += 1
        if verdict.symptom and shown[verdict.symptom] <= SHOWN:
            tqdm.tqdm.write(f"--- {verdict.case}: {verdict.symptom}\n{verdict.detail}\n")
            sys.stdout.flush()
    print(summary(verdicts, time.monotonic() - begun))
    sys.exit(any(verdict.symptom for verdict in verdicts))


def repeat(case: str) -> int:
    """Runs one case, in a folder that stays. Returns 1 if it fails."""
    folder = tempfile.mkdtemp(prefix="case.")
    print(f"{case} in {folder}", flush=True)
    [verdict] = run_cases([case], lambda name, _: check(name, Path(folder)), jobs=1)
    print(f"{verdict.symptom}\n{verdict.detail}" if verdict.symptom else "nothing is wrong")
    return int(bool(verdict.symptom))


def summary(verdicts: list[Verdict], seconds: float) -> str:
    """What became of all cases, by kind, then the causes of failures, the most frequent first."""
    longest = max(verdicts, key=lambda verdict: verdict.seconds)
    lines = [
        f"{len(verdicts)} cases in {seconds:.0f} s, {len(verdicts) / seconds:.1f} a second, "
        f"{sum(verdict.commands for verdict in verdicts)} commands; the longest case {longest.seconds:.1f} s, {longest.case}",
        "kind       cases  read  refused  failed  ms each",
    ]
    for kind, cases in _by(verdicts, lambda verdict: verdict.case.partition(":")[0]).items():
        failed = sum(bool(case.symptom) for case in cases)
        refused = sum(bool(case.refused) and not case.symptom for case in cases)
        each = 1000 * sum(case.seconds for case in cases) / len(cases)
        lines.append(f"{kind:10} {len(cases):5} {len(cases) - refused - failed:5} {refused:8} {failed:7} {each:8.0f}")
    causes = _by([verdict for verdict in verdicts if verdict.symptom], lambda verdict: verdict.symptom)
    for symptom, cases in sorted(causes.items(), key=lambda item: -len(item[1])):
        lines.append(f"{len(cases):6} {symptom}\n       --case {' '.join(verdict.case for verdict in cases[:SHOWN])}")
    return "\n".join(lines)


def _by(verdicts: list[Verdict], key: Callable[[Verdict], str]) -> dict[str, list[Verdict]]:
    found: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        found[key(verdict)].append(verdict)
    return dict(found)


if __name__ == "__main__":
    main()
