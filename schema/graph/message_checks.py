"""Checks the nodes of graph messages that pass by, for callers that do not keep them."""

from collections import defaultdict

import numpy as np

from .decoder import StringTable, decode_nodes
from .node_problems import NodeProblems
from .wire import Messages, WireError

BYTES_AT_ONCE = 1 << 19


class MessageChecks:
    """The problems of the Node messages added so far, in a few bytes of memory per message."""

    def __init__(self) -> None:
        self._problems = NodeProblems()
        self._waiting: list[bytes] = []
        self._size = 0

    def add(self, message: bytes) -> None:
        """Takes the next message."""
        self._waiting.append(message)
        self._size += len(message)
        if self._size >= BYTES_AT_ONCE:
            self._check()

    def notes(self, path: str) -> list[str]:
        """Returns a sentence for each kind of problem."""
        self._check()
        return self._problems.notes(path)

    def _check(self) -> None:
        messages, self._waiting, self._size = self._waiting, [], 0
        ends = np.cumsum([0, *map(len, messages)])
        try:
            nodes = decode_nodes(
                Messages.of(b"".join(messages), ends[:-1], ends[1:]), defaultdict(StringTable), tensors=False
            )
        except WireError:
            # readers of the nodes report the byte
            return
        self._problems.add(nodes)
