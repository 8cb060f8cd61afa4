"""How much a compressed file may be when it is decompressed: as --max-size says, in every process of a command."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from execgraph.schema.errors import DataError
from execgraph.schema.io import GZIP_MAGIC, bytes_of, decompressing_at_most
from execgraph.schema.io.compressed import ZSTD_MAGIC
from execgraph.tools.commands import trace_jsonize, trace_link
from execgraph.tools.workers import in_processes, on_cluster
from support.tasks import content

KB = 1024
PACKED = {"gzip": gzip.compress, "zstd": zstandard.compress}


@pytest.fixture(params=PACKED.values(), ids=PACKED)
def file(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A compressed file of 64 KB that is no trace."""
    path = tmp_path / "file"
    path.write_bytes(request.param(b"a" * 64 * KB))
    return str(path)


def test_sizes_are_binary() -> None:
    assert [bytes_of(text) for text in ("7", "1k", "3M", "20G", "1TB")] == [7, KB, 3 << 20, 20 << 30, 1 << 40]


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5G", "G", "20P", "2 G"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="is no size such as 300M or 20G"):
        bytes_of(text)


def test_as_much_as_is_asked_for_is_read_and_no_more(file: str) -> None:
    with decompressing_at_most("64K"):
        assert content(file) == 64 * KB
    with decompressing_at_most("63K"), pytest.raises(DataError, match=r"more than 0.1 MB.*EXECGRAPH_MAX_SIZE to 1G$"):
        content(file)
    assert content(file) == 64 * KB


def test_the_limit_may_be_above_what_files_of_that_size_are(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("execgraph.schema.io.files.LEAST_SUSPECT", KB)
    monkeypatch.setattr("execgraph.schema.io.files.LARGEST_RATIO", dict.fromkeys((GZIP_MAGIC, ZSTD_MAGIC), 1))
    with pytest.raises(DataError, match="decompresses to more"):
        content(file)
    with decompressing_at_most("64K"):
        assert content(file) == 64 * KB


@pytest.mark.parametrize("run", [in_processes, on_cluster])
def test_workers_have_the_limit_of_the_command(
    file: str, run: Callable[..., object], request: pytest.FixtureRequest
) -> None:
    where = 2 if run is in_processes else request.getfixturevalue("scheduler")
    with decompressing_at_most("63K"):
        outcomes = [outcome for _, outcome in run(content, [file, file], where)]  # type: ignore[attr-defined]
    assert ["decompresses to more" in str(outcome) for outcome in outcomes] == [True, True]


def test_a_command_takes_the_limit_and_leaves_none_behind(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(os.environ)
    with pytest.raises(SystemExit) as end:
        trace_jsonize.main(["--input", file, "--output", str(tmp_path / "graph.json"), "--max-size", "52K"])
    assert (end.value.code, dict(os.environ)) == (1, before)
    assert (
        "decompresses to more than 0.1 MB, the limit for a file of its size; if you trust it" in capsys.readouterr().err
    )


def test_a_size_that_is_none_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        trace_link.main(["--max-size", "much"])
    assert end.value.code == 2
    assert "argument --max-size: much is no size such as 300M or 20G" in capsys.readouterr().err
