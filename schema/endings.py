"""What the ending of a file's name says it is, so that nothing is written under a name that says another thing."""

KNOWN_ENDINGS = (
    ".json", ".et", ".html", ".htm", ".csv", ".svg", ".dot", ".graphml", ".pdf", ".png", ".db", ".goal", ".txt",
)  # fmt: skip


def other_ending(path: str, *endings: str) -> str:
    """Returns what is wrong with a name that ends like some other kind of file; "" for any other name.

    >>> other_ending("graph.txt", ".et", ".json")
    'graph.txt ends in .txt; name a file that ends in .et or .json'
    >>> other_ending("graph.0.et.gz", ".et", ".json"), other_ending("rank0", ".et")
    ('', '')
    """
    name = path.lower().removesuffix(".gz").removesuffix(".zst")
    ending = next((ending for ending in KNOWN_ENDINGS if name.endswith(ending)), "")
    if not ending or ending in endings:
        return ""
    return f"{path} ends in {ending}; name a file that ends in {' or '.join(endings)}"


def check_ending(path: str, *endings: str) -> None:
    """Raises ValueError for a name that ends like some other kind of file."""
    if problem := other_ending(path, *endings):
        raise ValueError(problem)
