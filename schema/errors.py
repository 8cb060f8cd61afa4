"""The one exception for data a user handed in that cannot be used."""

BEGINNING, END = 1000, 300


class DataError(Exception):
    """Input that cannot be used; its text is one line: which file, what is wrong, where, and what to do.

    What a file brings into the text may be of any length; the middle of a very long one is left out.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text if len(text) <= BEGINNING + END else f"{text[:BEGINNING]} … {text[-END:]}")
