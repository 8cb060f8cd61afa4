"""The pages of docs/ and the README as Markdown: their blocks, the commands in them, and what those print."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {page.name: page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
PROMPT = "$ "
SECONDS = re.compile(r"\b\d+\.\d s\b")
"""How long something took: the only thing that may differ without … in the page."""


class Block(NamedTuple):
    """What stands between two fences, and the language that the first one names."""

    language: str
    text: str


class Example(NamedTuple):
    """A command line, and what it prints; None where the page does not show it."""

    command: str
    printed: str | None

    @property
    def fails(self) -> bool:
        """Whether the page shows an error."""
        return ": error: " in (self.printed or "")


def blocks(page: Path) -> list[Block]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [Block(*one) for one in found]


def examples(block: Block) -> Iterator[Example]:
    """The commands of a `console` block, behind prompts, or of an `sh` block, one a line."""
    if block.language == "sh":
        yield from (Example(line, None) for line in block.text.splitlines())
    elif block.language == "console":
        for part in re.split(rf"^{re.escape(PROMPT)}", block.text, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield Example(command, printed)


def run(example: Example, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command line prints; it must end as the page says. Our commands run in this process, others in a shell."""
    name, *arguments = shlex.split(example.command)
    if not name.startswith("trace-") or "|" in arguments:
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        line = ["bash", "-ec", example.command]
        ran = subprocess.run(line, env={"PATH": path}, capture_output=True, text=True, check=False)
        assert bool(ran.returncode) == example.fails, ran.stderr
        return ran.stdout + ran.stderr
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        import_module(f"execgraph.tools.commands.{name.replace('-', '_')}").main(arguments)
    said = capsys.readouterr()
    assert bool(ended.value.code) == example.fails, said.err
    return said.out + said.err


def agrees(printed: str, shown: str) -> bool:
    """Whether that is what the page shows; a line … stands for any lines, … in a line for any text."""
    lines = _normal(shown).splitlines()
    pattern = "".join(r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in lines)
    return re.fullmatch(pattern, _normal(printed)) is not None


def _normal(text: str) -> str:
    return SECONDS.sub("0.0 s", "".join(f"{line.rstrip()}\n" for line in text.splitlines()))
