"""The one exception for data a user handed in that cannot be used."""


class DataError(Exception):
    """Input that cannot be used; its text is one line: which file, what is wrong, where, and what to do."""
