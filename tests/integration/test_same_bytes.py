"""The same files give the same bytes, whatever Python, library, hash seed and order they are read with."""

import json
import os
import subprocess
import sys

import pytest
from support import digests

UPDATE = "where outputs were meant to change: python tests/support/digests.py --write"


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, str]]:
    """The digests by how they were made, each in a process of its own, as a process has one hash seed."""
    ways = {"hash seed 0": ("0",), "hash seed 1, files in the other order": ("1", "--reversed")}
    running = {
        way: subprocess.Popen(
            [sys.executable, digests.__file__, *options],
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
        )
        for way, (seed, *options) in ways.items()
    }
    return {way: json.loads(process.communicate()[0]) for way, process in running.items()}


def test_the_order_of_files_and_the_hash_seed_change_nothing(found: dict[str, dict[str, str]]) -> None:
    one, other = found.values()
    assert [name for name in one if one[name] != other.get(name)] == []


def test_outputs_are_those_that_every_supported_version_gives(found: dict[str, dict[str, str]]) -> None:
    kept, now = json.loads(digests.KEPT.read_text()), found["hash seed 0"]
    changed = [name for name in kept | now if kept.get(name) != now.get(name)]
    assert not changed, f"other bytes than before: {', '.join(changed)}; {UPDATE}"
