"""A contradiction in a trace, as it is reported."""

import msgspec


class Contradiction(msgspec.Struct, frozen=True):
    """Something in file `path` that cannot be right: what and where, its meaning for the result, and what to do."""

    path: str
    what: str
    meaning: str
    advice: str

    @property
    def sentence(self) -> str:
        """The whole message, in one line."""
        return f"{self.path}: {self.what}; {self.meaning}; {self.advice}"
