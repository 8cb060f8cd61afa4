"""Coverage-guided fuzzing of the readers of traces, with atheris, which has to be installed beside the project.

    python tests/fuzz/fuzz.py device -max_total_time=600        (or host, or linked; then libFuzzer's options)

A case that fails is written by libFuzzer as crash-…; it becomes a line of `FOUND` in tests/test_fuzz_readers.py.
"""

import gzip
import json
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["execgraph"]):
    from readers import CHECKS, KEYS, sample

LONGEST = 16_000


def small(kind: str, begin: int, step: int) -> bytes:
    """A real file with few of its elements."""
    document = json.loads(sample(kind))
    rows = document[KEYS[kind]]
    document[KEYS[kind]] = rows[begin : begin + 8 * step : step]
    return json.dumps(document, indent=begin % 2 or None).encode()


def write_seeds(kind: str, folder: Path) -> None:
    for begin in range(0, 300, 29):
        for step in (1, 7):
            text = small(kind, begin, step)
            (folder / f"{begin}-{step}").write_bytes(text)
            (folder / f"{begin}-{step}.cut").write_bytes(text[: len(text) // 2])
    (folder / "gzip").write_bytes(gzip.compress(small(kind, 0, 1)))


def main() -> None:
    kind, options = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        write_seeds(kind, Path(folder))
        atheris.Setup(
            [sys.argv[0], folder, f"-max_len={LONGEST}", "-timeout=20", "-rss_limit_mb=4096", *options], CHECKS[kind]
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
