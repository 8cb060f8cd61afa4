"""Coverage-guided fuzzing of everything that reads a file, with atheris, which has to be installed beside the project.

    python tests/fuzz/fuzz.py device -max_total_time=600     (or another of `readers.CHECKS`; then libFuzzer's options)

A case that fails is written by libFuzzer as crash-…; it becomes a line of `FOUND` in
tests/fuzz/test_cases.py, or a file in found/.
"""

import gzip
import io
import json
import sys
import tempfile
from pathlib import Path

import atheris

sys.path[:0] = map(str, Path(__file__).parents[1:3])

with atheris.instrument_imports(include=["execgraph"]):
    from execgraph.schema.graph import read_frames

    from fuzz.readers import CHECKS, KEYS, sample

LONGEST = 32_000


def seeds(kind: str) -> list[bytes]:
    """Sound files with few elements each, the same cut in half, and a compressed one."""
    if kind in KEYS:
        whole = [few_elements(kind, begin, step) for begin in range(0, 300, 29) for step in (1, 7)]
    elif kind == "graph":
        whole = [few_frames(begin) for begin in range(1, 300, 29)]
    else:
        whole = [sample(kind)]
    return [*whole, *(text[: len(text) // 2] for text in whole), gzip.compress(whole[0])]


def few_elements(kind: str, begin: int, step: int) -> bytes:
    document = json.loads(sample(kind))
    rows = document[KEYS[kind]]
    document[KEYS[kind]] = rows[begin : begin + 8 * step : step]
    return json.dumps(document, indent=begin % 2 or None).encode()


def few_frames(begin: int) -> bytes:
    """The metadata and a few nodes."""
    [block] = read_frames(io.BytesIO(sample("graph")), "")
    begins = [0, *block.ends.tolist()]
    return bytes(block.data[: begins[1]]) + bytes(block.data[begins[begin] : begins[begin + 8]])


def main() -> None:
    kind, options = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        for number, content in enumerate(seeds(kind)):
            (Path(folder) / str(number)).write_bytes(content)
        limits = [f"-max_len={LONGEST}", "-timeout=20", "-rss_limit_mb=4096"]
        atheris.Setup([sys.argv[0], folder, *limits, *options], CHECKS[kind])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
