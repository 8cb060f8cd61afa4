"""Runs the code of the notebooks here and writes what it prints and shows into them: python docs/notebook.py"""

import ast
import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any

PIXELS = 1.5
"""Per pixel of a chart."""
NOTEBOOKS = sorted(Path(__file__).parent.glob("*.ipynb"))


def with_outputs(text: str) -> str:
    """Returns the notebook with what its code prints and shows now, one cell after the other."""
    notebook = json.loads(text)
    names: dict[str, Any] = {}
    for number, cell in enumerate((one for one in notebook["cells"] if one["cell_type"] == "code"), start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            shown = value_of("".join(cell["source"]), names)
        cell["execution_count"] = number
        said = printed.getvalue().splitlines(keepends=True)
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": said}] if said else []
        if shown is not None:
            data = {kind: content.splitlines(keepends=True) for kind, content in pictures_of(shown).items()}
            cell["outputs"].append(
                {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
            )
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def value_of(source: str, names: dict[str, Any]) -> object:
    """Runs a cell and returns the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


def pictures_of(shown: object) -> dict[str, str]:
    """Returns how a notebook shows a value: charts as pictures, which need neither a network nor scripts."""
    if type(shown).__module__.startswith("altair"):
        import vl_convert

        picture = vl_convert.vegalite_to_png(shown.to_dict(), scale=PIXELS)  # type: ignore[attr-defined]
        return {"image/png": base64.b64encode(picture).decode()}
    as_html = getattr(shown, "_repr_html_", lambda: None)()
    return {"text/html": as_html} if as_html else {"text/plain": repr(shown)}


if __name__ == "__main__":
    for notebook in NOTEBOOKS:
        notebook.write_text(with_outputs(notebook.read_text(encoding="utf-8")), encoding="utf-8")
