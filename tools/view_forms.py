"""The forms of files in which a graph is viewed, by their names, and what pictures show. Loads nothing, so that
commands answer at once.
"""

FORMS = (".svg", ".dot", ".graphml")
FLOW, LANES = "flow", "lanes"


def form_of(path: str) -> str:
    """Returns the suffix that tells the form, without .gz.

    >>> form_of("around.svg.gz")
    '.svg'
    """
    return "." + path.removesuffix(".gz").rpartition(".")[2]
