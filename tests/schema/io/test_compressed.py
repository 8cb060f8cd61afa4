"""Compressed inputs: the same bytes and errors with isal and without, read by a thread that ends with the stream."""

import gzip
import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from execgraph.schema.io import open_input

CONTENT = b"".join(b'{"id": %d, "name": "aten::add"},\n' % number for number in range(40_000))
ZIPPED = gzip.compress(CONTENT)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


FILES: dict[str, Callable[[], bytes]] = {
    "whole": lambda: ZIPPED, "of several members": lambda: ZIPPED + gzip.compress(b"") + gzip.compress(b"end"),
    "followed by zeros": lambda: ZIPPED + bytes(20), "followed by noise": lambda: ZIPPED + b"noise",
    "cut in its header": lambda: ZIPPED[:5], "cut": lambda: ZIPPED[: len(ZIPPED) // 2],
    "cut in its check sum": lambda: ZIPPED[:-6], "with a wrong check sum": lambda: flipped(ZIPPED, len(ZIPPED) - 6),
    "with a wrong length": lambda: flipped(ZIPPED, len(ZIPPED) - 2),
    "damaged inside": lambda: flipped(ZIPPED, len(ZIPPED) // 3),
    "of noise": lambda: ZIPPED[:10] + np.random.default_rng(1).bytes(5000),
}  # fmt: skip


def read(path: Path) -> tuple[bytes, str]:
    """What comes out, and the error that ends it."""
    data = b""
    with open_input(str(path)) as stream:
        try:
            while part := stream.read1(10_000):  # type: ignore[attr-defined]
                data += part
        except Exception as error:
            return data, f"{type(error).__name__}: {error}"
    return data, ""


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_isal_gives_what_the_standard_library_gives(tmp_path, monkeypatch, content):
    pytest.importorskip("isal")
    (tmp_path / "file.gz").write_bytes(content())
    fast = read(tmp_path / "file.gz")
    monkeypatch.setitem(sys.modules, "isal.igzip", None)
    assert read(tmp_path / "file.gz") == fast
    assert fast[0] or fast[1]


@pytest.mark.parametrize("damaged", [1, 2, 3])
def test_all_zstd_frames_before_a_damaged_one_come_out(tmp_path: Path, damaged: int) -> None:
    """Their sizes and that of a read are not multiples of each other."""
    zstandard = pytest.importorskip("zstandard")
    places = [0, 90_000, 360_000, 363_000, len(CONTENT)]
    frames = [zstandard.compress(CONTENT[first:last]) for first, last in pairwise(places)]
    frames[damaged] = bytes(64) + frames[damaged][64:]
    (tmp_path / "file.zst").write_bytes(b"".join(frames))
    data, error = read(tmp_path / "file.zst")
    assert data == CONTENT[: places[damaged]]
    assert error.startswith("OSError: zstd decompress error")


def test_what_was_whole_comes_out_whole(tmp_path: Path) -> None:
    (tmp_path / "file.gz").write_bytes(ZIPPED + gzip.compress(b"end"))
    assert read(tmp_path / "file.gz") == (CONTENT + b"end", "")


def test_an_error_stays(tmp_path: Path) -> None:
    (tmp_path / "file.gz").write_bytes(ZIPPED[:-6])
    with open_input(str(tmp_path / "file.gz")) as stream:
        for _ in range(2):
            with pytest.raises(EOFError):
                while stream.read(1 << 16):
                    pass


def test_a_stream_that_is_left_early_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "file.gz").write_bytes(ZIPPED)
    before = threading.active_count()
    with open_input(str(tmp_path / "file.gz")) as stream:
        assert stream.read(10) == CONTENT[:10]
    assert threading.active_count() == before
