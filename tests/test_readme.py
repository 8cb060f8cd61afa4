"""The commands of the README's worked example, run one after the other in an empty folder, print what stands there."""

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

README = Path(__file__).parent.parent / "README.md"
SAMPLES = README.parent / "tests"


class Example(NamedTuple):
    """A command line, and the lines that it prints; the last one is … where there are more."""

    command: list[str]
    printed: list[str]


def worked_example() -> Iterator[Example]:
    section = re.search(r"^## A worked example$(.*?)^## ", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert section
    for block in re.findall(r"(?:^    .*\n)+", section[1], re.MULTILINE):
        first, *printed = [line[4:] for line in block.splitlines()]
        assert first.startswith("$ ")
        yield Example(shlex.split(first[2:]), printed)


def test_the_worked_example_prints_what_the_readme_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(SAMPLES)
    examples = list(worked_example())
    assert len(examples) == 5
    for example in examples:
        command, *arguments = example.command
        with pytest.raises(SystemExit) as ended:
            import_module(f"execgraph.tools.commands.{command.replace('-', '_')}").main(arguments)
        assert not ended.value.code, command
        said = capsys.readouterr()
        lines, printed = (said.out + said.err).splitlines(), example.printed
        if printed[-1] == "…":
            printed = printed[:-1]
            lines = lines[: len(printed)]
        assert lines == printed, command
