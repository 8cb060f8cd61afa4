"""Hostile files through all commands: they are read, or refused in one line; what was recorded is in the graph or counted as left out.

    python tests/fuzz/commands.py --cases 20000 --seed 7        many cases, the same ones for the same seed
    python tests/fuzz/commands.py --case host:7:123             one of them again; its files stay in the folder that it names

A case is a kind of file, and the seed of all that is random in it.
"""

import argparse
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random

from tqdm import tqdm

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from cases import KINDS  # noqa: E402
from running import ENDED, Failed  # noqa: E402

MEMORY = 3 << 30
SHARES = (
    *("host", "device", "host", "device", "linked", "graph", "host", "device"),
    *("json", "linked", "database", "graph", "groups", "noise"),
)
"""The kinds of a run's cases in turn."""


def case_of(seed: int, number: int) -> str:
    """The name of a run's case."""
    return f"{SHARES[number % len(SHARES)]}:{seed}:{number}"


def check(case: str, folder: Path) -> None:
    """Runs a case. Raises Failed."""
    KINDS[case.partition(":")[0]](folder, Random(case))


def main() -> None:
    """Runs the cases, prints what failed and how to repeat it, and exits 1 if anything did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    if arguments.case:
        folder = Path(tempfile.mkdtemp(prefix="case."))
        print(f"{arguments.case} in {folder}")
        check(arguments.case, folder)
        return
    failed: Counter[str] = Counter()
    refused, longest, began = 0, (0.0, ""), time.monotonic()
    for number in tqdm(range(arguments.first, arguments.first + arguments.cases), unit=" cases", disable=None):
        case, done, then = case_of(arguments.seed, number), ENDED[0], time.monotonic()
        commands = ENDED.total()
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(case, Path(folder))
                refused += ENDED.total() - commands > ENDED[0] - done
            except Exception as error:
                failed[case.partition(":")[0]] += 1
                what = error if isinstance(error, Failed) else traceback.format_exc()
                tqdm.write(f"--- {what}\n    again: python {sys.argv[0]} --case {case}")
                sys.stdout.flush()
        longest = max(longest, (time.monotonic() - then, case))
    count = failed.total()
    print(
        f"{arguments.cases} cases in {time.monotonic() - began:.0f} s: {arguments.cases - refused - count} read, "
        f"{refused} refused by a command, {count} failed {dict(failed) or ''}; "
        f"{ENDED.total()} commands; the longest case {longest[0]:.1f} s, {longest[1]}"
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
