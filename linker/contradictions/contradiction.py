"""What is said of a contradiction."""

import msgspec


class Contradiction(msgspec.Struct, frozen=True):
    """File `path` says something that cannot be so: `what` and where, what it means for the result, and what to do."""

    path: str
    what: str
    meaning: str
    advice: str

    @property
    def sentence(self) -> str:
        """All of it in one line."""
        return f"{self.path}: {self.what}; {self.meaning}; {self.advice}"
