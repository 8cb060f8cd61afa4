"""The oldest versions that pyproject.toml allows, one a line, as constraints for pip.

`python tests/support/lower_bounds.py > constraints.txt`
"""

import re
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def lower_bounds(text: str) -> dict[str, str]:
    """The version by the name of the package, the highest where it has several; of types no version counts."""
    found: dict[str, str] = {}
    for name, bound in re.findall(r'"(?!types-)([\w.-]+)(?:\[[\w,]+\])?>=([\d.]+)"', text):
        found[name] = max(found.get(name, bound), bound, key=lambda one: [int(part) for part in one.split(".")])
    return found


if __name__ == "__main__":
    print("\n".join(f"{name}=={bound}" for name, bound in lower_bounds(PROJECT.read_text("utf-8")).items()))
