"""Command lines of docs/coming-from-chakra.md, which are Chakra's but for the programs' names, work."""

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TRACES = ROOT / "tests" / "data" / "training"


def test_chakras_command_lines_work_under_our_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for trace in TRACES.glob("*.json.gz"):
        (tmp_path / trace.name).symlink_to(trace)
    text = (ROOT / "docs" / "coming-from-chakra.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    lines = block.splitlines()
    assert len(lines) == 4
    for line in lines:
        command, *arguments = shlex.split(line)
        with pytest.raises(SystemExit) as ended:
            import_module(f"execgraph.tools.commands.{command.replace('-', '_')}").main(arguments)
        assert not ended.value.code, line
        assert Path(arguments[-1]).stat().st_size, line
