"""Runs the code of docs/capture-to-what-if.ipynb and writes what it prints into it: python docs/notebook.py"""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).with_name("capture-to-what-if.ipynb")


def with_outputs(text: str) -> str:
    """The notebook with what its code prints now, one cell after the other."""
    notebook = json.loads(text)
    names: dict[str, Any] = {}
    for number, cell in enumerate((one for one in notebook["cells"] if one["cell_type"] == "code"), start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec("".join(cell["source"]), names)
        said = printed.getvalue().splitlines(keepends=True)
        cell["execution_count"] = number
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": said}] if said else []
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(with_outputs(NOTEBOOK.read_text(encoding="utf-8")), encoding="utf-8")
